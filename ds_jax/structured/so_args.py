"""The structured-output field of DeepInfer requests.

Decides how its four keys are read. Never compiles. In: the JSON value of `so_args`. Out: a
`GrammarRequest`.

| key | value |
|---|---|
| `schema_type` | `json`, `regex` or `ebnf` |
| `schema` | text; for `json` a JSON value is taken too |
| `trigger_token_ids` | optional, ids after which the grammar starts |
| `bound_token_id` | optional, only with a trigger: nothing but the trigger may follow this id |

There, a JSON schema forbids undeclared properties wherever it declares some: `strict` is set.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, cast

from ds_jax import errors
from ds_jax.structured.trigger import Trigger

_KINDS = {"json": "json_schema", "regex": "regex", "ebnf": "ebnf"}
_KEYS = ("schema_type", "schema", "trigger_token_ids", "bound_token_id")


@dataclasses.dataclass(frozen=True, slots=True)
class GrammarRequest:
    """What to compile, with which options, and when it starts."""

    kind: str
    text: str
    options: tuple[tuple[str, Any], ...] = ()
    trigger: Trigger | None = None


def parse(value: Any) -> GrammarRequest:
    """Reads `so_args`.

    Raises:
      RequestError: a key is unknown or missing, or its value is of the wrong kind.
    """
    if not isinstance(value, Mapping):
        raise _refused("so_args", value, f"must be an object with the keys {', '.join(_KEYS)}")
    items = cast("Mapping[Any, Any]", value)
    for key in items:
        if key not in _KEYS:
            raise _refused("so_args", key, f"unknown key; allowed: {', '.join(_KEYS)}")
    kind = items.get("schema_type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _refused("schema_type", kind, f"must be one of {', '.join(_KINDS)}")
    text = items.get("schema")
    if kind == "json" and isinstance(text, dict | bool):
        text = json.dumps(text)
    if not isinstance(text, str):
        raise _refused("schema", text, "must be text")
    options = (("strict", True),) if kind == "json" else ()
    return GrammarRequest(_KINDS[kind], text, options, _trigger(items))


def _trigger(items: Mapping[Any, Any]) -> Trigger | None:
    ids = items.get("trigger_token_ids") or None
    bound = items.get("bound_token_id")
    if bound is not None and (type(bound) is not int or bound < 0):
        raise _refused("bound_token_id", bound, "must be one whole number from 0")
    if ids is None:
        if bound is not None:
            raise _refused("bound_token_id", bound, "needs trigger_token_ids")
        return None
    if not isinstance(ids, list | tuple):
        raise _refused("trigger_token_ids", ids, "must be a list of token ids")
    return Trigger(tuple(cast("list[int]", ids)), bound, holds_end=False)


def _refused(param: str, value: Any, allowed: str) -> errors.RequestError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return errors.RequestError(f"{param}={shown}: {allowed}", param=param)
