"""Recorded cases: reads the JSON lines of tests/golden/recipe and makes their conversations."""

from __future__ import annotations

import json
import pathlib
from types import ModuleType
from typing import Any

from ds_jax import recipe
from tests.recipe import strategies

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "recipe"
_SOURCE_FIELDS = ("url", "data_url", "detail", "path")


def read(name: str) -> list[dict[str, Any]]:
    """One case a line."""
    with open(GOLDEN / name, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def conversation(data: dict[str, Any], library: ModuleType = recipe) -> Any:
    """A conversation from its recorded form."""
    fields = {"tools": [], **data, "messages": list(map(_message, data["messages"]))}
    if fields.get("response_format") in ("json_schema", "regex"):
        del fields["response_format"]
    return strategies.build_conversation(library, fields)


def _message(data: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in data.items() if value is not None}
    if "image_sources" in fields:
        fields["image_sources"] = [
            {name: one[name] for name in _SOURCE_FIELDS if one.get(name) is not None}
            for one in data["image_sources"]
        ]
    return fields
