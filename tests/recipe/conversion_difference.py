"""Whether two libraries convert a request alike.

Decides what counts as a difference: everything but the wording of a JSON Schema library. In: a case
of `conversion_cases`. Out: what both say where they disagree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from ds_jax import recipe
from tests.recipe import conversion_cases

Outcome: TypeAlias = dict[str, Any]
_SCHEMA_TEXTS = ("Invalid schema for function ", "Invalid json schema: ")


def difference(
    case: dict[str, Any],
    outcome: Callable[[ModuleType, dict[str, Any]], Outcome] = conversion_cases.run,
    same: Callable[[str], str] = str,
) -> str | None:
    """The case and both outcomes where they are not equal, else None.

    Args:
      case: a request with options.
      outcome: what a library makes of a case.
      same: leaves out of an outcome's text what may differ.
    """
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    want, got = (outcome(each, json.loads(json.dumps(case))) for each in (reference, recipe))
    message = json.loads(want["error"]["body"])["error"]["message"] if "error" in want else ""
    wording = message.startswith(_SCHEMA_TEXTS)
    want_text, got_text = (
        same(conversion_cases.comparable(each, library_text=wording)) for each in (want, got)
    )
    if want_text == got_text:
        return None
    return f"{json.dumps(case, ensure_ascii=False)}\nwant {want_text}\ngot  {got_text}"
