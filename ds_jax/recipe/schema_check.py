"""Whether a JSON value is a JSON Schema.

Decides what is wrong first with a schema. Never checks a value against a schema. In: a JSON value.
Out: a sentence, or None.
"""

from __future__ import annotations

from typing import Any

from ds_jax.recipe import json_text


def first_error(schema: Any) -> str | None:
    """What is wrong with a schema; None if it is one."""
    if not isinstance(schema, dict | bool):
        return f'{json_text.dumps_compact(schema)} is not of types "boolean", "object"'
    return None
