"""Right or wrong, for one completion of a dialogue.

Decides how completion text is read back (reasoning, content, tool calls) and when it counts as
right. Never runs a model. In: a dialogue and the text the model wrote, control strings included.
Out: a `Score`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from ds_jax.recipe import json_text
from ds_jax.recipe.special_tokens import SpecialTokens
from ds_jax.training.tasks import Dialogue

_TOKENS = SpecialTokens()
_D = re.escape(_TOKENS.dsml)
_CALLS = re.compile(rf"\n\n<{_D} calls>\n(.*)</{_D} calls>\Z", re.S)
_INVOKE = re.compile(rf'<{_D} invoke name="([^"]*)">\n(.*?)\n</{_D} invoke>\n', re.S)
_PARAMETER = re.compile(
    rf'\n?<{_D} parameter name="([^"]*)" string="(true|false)">(.*?)</{_D} parameter>', re.S
)


@dataclasses.dataclass(frozen=True)
class Score:
    """Whether a completion is right; true in a condition if it is."""

    right: bool
    well_formed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.right


@dataclasses.dataclass(frozen=True)
class Completion:
    """A completion taken apart."""

    reasoning: str | None
    content: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    ended: bool


def parse_completion(text: str, *, thinking_mode: bool) -> Completion:
    """Takes completion text apart.

    Raises:
      ValueError: the reasoning does not end, or the tool calls are no V4.1 markup.
    """
    text, end, _ = text.partition(_TOKENS.eos)
    reasoning = None
    if thinking_mode:
        reasoning, stop, text = text.partition(_TOKENS.thinking_end)
        if not stop:
            raise ValueError(f"the reasoning does not end with {_TOKENS.thinking_end}")
    content, calls = text, ()
    if f"<{_TOKENS.dsml} calls>" in text:
        block = _CALLS.search(text)
        if not block:
            raise ValueError("the calls block is not closed or not at the end")
        content, calls = text[: block.start()], _parse_calls(block[1])
    return Completion(reasoning, content, calls, bool(end))


def grade(dialogue: Dialogue, completion_text: str) -> Score:
    """Scores a completion against the only right answer.

    Arithmetic: the exact number. Tools: names and arguments equal, in order. JSON: one JSON value
    with the schema's keys, types and values. Others: the exact text.
    """
    try:
        got = parse_completion(completion_text, thinking_mode=dialogue.prompt.thinking_mode)
    except ValueError as error:
        return Score(False, False, str(error))
    if not got.ended:
        return Score(False, False, f"no {_TOKENS.eos} at the end")
    want = dialogue.completion
    want_calls = tuple((call.name, json.loads(call.arguments)) for call in want.tool_calls or ())
    if not _same(got.calls, want_calls):
        return Score(False, True, f"calls are {got.calls}, expected {want_calls}")
    if dialogue.kind == "json":
        try:
            value = json_text.loads(got.content)
        except ValueError as error:
            return Score(False, False, f"the answer is not JSON: {error}")
        right = _same(value, json.loads(want.content))
        return Score(right, True, "" if right else f"JSON is {value}, expected {want.content}")
    right = got.content.strip() == want.content.strip()
    return Score(right, True, "" if right else f"{got.content!r}, expected {want.content!r}")


def _parse_calls(block: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    calls, position = [], 0
    while position < len(block):
        invoke = _INVOKE.match(block, position)
        if not invoke:
            raise ValueError(f"no invoke at {block[position : position + 40]!r}")
        calls.append((invoke[1], _parse_parameters(invoke[2])))
        position = invoke.end()
    return tuple(calls)


def _parse_parameters(body: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    position = 0
    while position < len(body):
        parameter = _PARAMETER.match(body, position)
        if not parameter:
            raise ValueError(f"no parameter at {body[position : position + 40]!r}")
        name, is_string, value = parameter.groups()
        arguments[name] = value if is_string == "true" else json_text.loads(value)
        position = parameter.end()
    return arguments


def _same(left: Any, right: Any) -> bool:
    """Equal values of equal types (true is not 1)."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return left == right
