"""What a request wants its output to follow.

Decides how a grammar is named in a request, also in the form of DeepInfer's `so_args`. Never
compiles. In: values a caller gives. Out: a `GrammarRequest`, or a `RequestError` with the field.

| key of `so_args` | value |
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

from ds_jax.errors import RequestError

KINDS = ("json_schema", "json_object", "regex", "ebnf", "lark", "tool_calls")
_SO_KINDS = {"json": "json_schema", "regex": "regex", "ebnf": "ebnf"}
_SO_KEYS = ("schema_type", "schema", "trigger_token_ids", "bound_token_id")


@dataclasses.dataclass(frozen=True)
class GrammarRequest:
    """A grammar, and when it starts.

    Attributes:
      kind: one of `KINDS`; docs/structured_output.md says what each is.
      text: the grammar.
      options: of the kind, as (name, value) pairs.
      trigger_token_ids: output is free until these ids have come, one after the other, such as the
        end of reasoning; (): the grammar starts at once.
      bound_token_id: once it was generated, nothing but the trigger may follow.
      holds_end: the end token is refused until the grammar has started; without it an output may
        end unconstrained.
    """

    kind: str
    text: str
    options: tuple[tuple[str, Any], ...] = ()
    trigger_token_ids: tuple[int, ...] = ()
    bound_token_id: int | None = None
    holds_end: bool = True

    def __post_init__(self):
        if self.kind not in KINDS:
            raise refused("kind", self.kind, f"must be one of {', '.join(KINDS)}")
        if type(self.text) is not str:
            raise refused("schema", self.text, "must be text")
        for token_id in self.trigger_token_ids:
            if type(token_id) is not int or token_id < 0:
                raise refused("trigger_token_ids", token_id, "must be whole numbers from 0")
        bound = self.bound_token_id
        if bound is not None and (type(bound) is not int or bound < 0):
            raise refused("bound_token_id", bound, "must be one whole number from 0")
        if bound is not None and not self.trigger_token_ids:
            raise refused("bound_token_id", bound, "needs trigger_token_ids")


def from_json_schema(schema: Any) -> GrammarRequest:
    """The request of a JSON Schema: its text, or a JSON value."""
    return GrammarRequest("json_schema", _json_text("json_schema", schema))


def from_so_args(value: Any) -> GrammarRequest:
    """Reads `so_args`.

    Raises:
      RequestError: a key is unknown or missing, or its value is of the wrong kind.
    """
    if not isinstance(value, Mapping):
        raise refused("so_args", value, f"must be an object with the keys {', '.join(_SO_KEYS)}")
    items = cast("Mapping[Any, Any]", value)
    for key in items:
        if key not in _SO_KEYS:
            raise refused("so_args", key, f"unknown key; allowed: {', '.join(_SO_KEYS)}")
    kind = items.get("schema_type")
    if not isinstance(kind, str) or kind not in _SO_KINDS:
        raise refused("schema_type", kind, f"must be one of {', '.join(_SO_KINDS)}")
    text = items.get("schema")
    if kind == "json" and isinstance(text, dict | bool):
        text = _json_text("schema", text)
    if not isinstance(text, str):
        raise refused("schema", text, "must be text")
    ids = items.get("trigger_token_ids") or ()
    if not isinstance(ids, list | tuple):
        raise refused("trigger_token_ids", ids, "must be a list of token ids")
    return GrammarRequest(
        _SO_KINDS[kind],
        text,
        (("strict", True),) if kind == "json" else (),
        tuple(cast("list[int]", ids)),
        items.get("bound_token_id"),
        holds_end=False,
    )


def refused(param: str, value: Any, allowed: str) -> RequestError:
    """The error of a field: what was given, at most 80 characters of it, and what is allowed."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return RequestError(f"{param}={shown}: {allowed}", param=param)


def _json_text(param: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict | bool):
        raise refused(param, value, "must be a JSON Schema: its text, an object, true or false")
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise refused(param, cast("Any", value), f"is no JSON value ({error})") from None
