"""The grammar behind an answer of a conversation.

Decides what response format, tools and tool choice of a request enforce, and when it starts. Never
reads a request body: `recipe` conversions do, and leave an `OutputConstraint`. In: its kind and
text. Out: a `GrammarRequest` for `SamplingParams.grammar`, or None.

| kind | text | enforced |
|---|---|---|
| `json` | a JSON Schema | it |
| `json` | empty | any JSON object |
| `regex` | an expression | the whole answer matches it |
| `tool_call_required` | tools, of which a prompt in V4.1's form has opened the block | the block |
| `tool_call` | tools | strict ones: a block that the model opens; else nothing |

A choice that names a tool is `tool_call_required` with that tool alone. While the model reasons its
output is free; it cannot end before the answer.
"""

from __future__ import annotations

import json
from typing import Any, Protocol, cast

from ds_jax.errors import RequestError
from ds_jax.grammar_request import GrammarRequest, refused

THINKING_END = "</think>"
MARKER = "｜DSML｜"


class Controls(Protocol):
    """The part of a tokenizer that is asked."""

    def find_control(self, token: str) -> int | None:
        """Id of a control string, or None."""
        ...


def grammar(
    kind: str,
    text: str,
    tokenizer: Controls,
    *,
    thinking: bool = False,
    opened: bool = True,
    thinking_end: str = THINKING_END,
    marker: str = MARKER,
) -> GrammarRequest | None:
    """What an answer is held to; None: nothing.

    Args:
      kind, text: of the `OutputConstraint` that a conversion leaves; tools are a JSON list.
      tokenizer: knows the ids of both control strings.
      thinking: the answer begins with reasoning.
      opened: with `tool_call_required`, the prompt ends with the opening line of the block, as
        `recipe.render` writes it.
      thinking_end: control string behind the reasoning.
      marker: control string of the markup of calls.

    Raises:
      RequestError: an unknown kind, or a control string that the tokenizer does not have.
    """
    trigger = (_control(tokenizer, thinking_end),) if thinking else ()
    if kind == "json":
        name = "json_schema" if text else "json_object"
        return GrammarRequest(name, text, trigger_token_ids=trigger)
    if kind == "regex":
        return GrammarRequest("regex", text, trigger_token_ids=trigger)
    if kind == "tool_call_required":
        start = "calls" if opened and not thinking else "block"
        return GrammarRequest("tool_calls", text, _options(start, marker), trigger)
    if kind == "tool_call":
        if not _any_strict(text):
            return None
        opening = (_control(tokenizer, marker),)
        options = _options("marker", marker)
        return GrammarRequest("tool_calls", text, options, opening, holds_end=False)
    kinds = "json, regex, tool_call or tool_call_required"
    raise refused("output_constraint", kind, f"must be {kinds}")


def _options(start: str, marker: str) -> tuple[tuple[str, Any], ...]:
    return (("start", start), ("marker", marker))


def _control(tokenizer: Controls, token: str) -> int:
    found = tokenizer.find_control(token)
    if found is None:
        raise RequestError(
            f"the tokenizer has no control token {token!r}, by which the answer's grammar starts; "
            "use the tokenizer.json that belongs to the model"
        )
    return found


def _any_strict(text: str) -> bool:
    try:
        tools = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refused("tools", text, f"is no JSON ({error})") from None
    if not isinstance(tools, list):
        raise refused("tools", text, "must be a list")
    found: list[Any] = []
    for tool in cast("list[Any]", tools):
        inner = cast("dict[str, Any]", tool) if isinstance(tool, dict) else {}
        function = inner.get("function", inner)
        if isinstance(function, dict):
            found.append(cast("dict[str, Any]", function).get("strict"))
    return any(each is True for each in found)
