"""How the deepseek-recipe library spells values inside its messages.

Decides the wording of a JSON value in an error. Never raises. In: a JSON value. Out: text.
"""

from __future__ import annotations

from ds_jax.recipe import json_text
from ds_jax.recipe.quoting import quoted


def describe(value: object) -> str:
    """A JSON value by its type, scalars spelled out: ``integer `5` ``, ``string "x"``, ``map``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"boolean `{'true' if value else 'false'}`"
    if isinstance(value, int):
        return f"integer `{value}`"
    if isinstance(value, float):
        return f"floating point `{json_text.dumps_compact(value)}`"
    if isinstance(value, str):
        return f"string {quoted(value)}"
    return "sequence" if isinstance(value, list) else "map"
