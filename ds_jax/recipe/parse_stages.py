"""The stages of generated output: what is looked for in each, and what happens then.

Decides the grammar of reasoning, answer, JSON and tool calls. Never reads output. In: the settings
that shape the grammar. Out: stages, each a matcher with one action and one next stage per pattern.

Tool tags are recognised by fragments, so that both spellings (with and without a space after the
marker) are read by one grammar.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import TypeAlias

from ds_jax.recipe.marker_match import LITERAL, MARKER, Matcher, Pattern

_CACHED_STOP_CHARACTERS = 256


class Does(enum.Enum):
    """What an action does with the symbols it covers."""

    SKIP = enum.auto()
    REASONING = enum.auto()
    CONTENT = enum.auto()
    SPACE = enum.auto()
    """One space in the answer, whatever the symbols."""
    BEGIN_CALL = enum.auto()
    NAME = enum.auto()
    """Part of the name of the call."""
    ANNOUNCE_CALL = enum.auto()
    ARGUMENTS = enum.auto()
    STRING = enum.auto()
    """Arguments, spelled as the inside of a JSON string."""
    BRACKET = enum.auto()
    """The action's own text in the answer, once."""
    FIXED = enum.auto()
    """The action's own text as arguments, once."""
    STOP = enum.auto()
    """A stop string, which is the action's text."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Action:
    """What happens to a stretch of symbols."""

    does: Does
    text: str = ""


class At(enum.Enum):
    """Where in the output the parser is. `_LEAD`: newlines that come first are dropped."""

    REASON = enum.auto()
    REASON_LEAD = enum.auto()
    COMMON = enum.auto()
    COMMON_LEAD = enum.auto()
    JSON = enum.auto()
    JSON_END = enum.auto()
    CALLS = enum.auto()
    NAME = enum.auto()
    FIRST_ARGUMENT = enum.auto()
    ARGUMENT = enum.auto()
    ARGUMENT_NAME = enum.auto()
    ARGUMENT_TYPE = enum.auto()
    STRING_VALUE = enum.auto()
    RAW_VALUE = enum.auto()
    DONE = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One place in the output.

    Args:
      default: what happens to symbols that belong to no pattern.
      matcher: the patterns.
      actions: for each pattern, what happens to its symbols.
      nexts: for each pattern, where the output is after it.
    """

    default: Action
    matcher: Matcher
    actions: tuple[Action, ...]
    nexts: tuple[At, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Grammar:
    """The settings that shape the stages."""

    tool_calls: bool
    json_output: bool
    stop_sequences: tuple[str, ...]
    thinking_end: str
    dsml: str


class Stages(dict[At, Stage]):
    """The stages of one grammar, made when first asked for."""

    def __init__(self, grammar: Grammar) -> None:
        super().__init__()
        self._grammar = grammar

    def __missing__(self, at: At) -> Stage:
        default, branches = _CONTENTS[at](self._grammar)
        stage = Stage(
            default,
            Matcher([branch.pattern for branch in branches]),
            tuple(branch.action for branch in branches),
            tuple(branch.next for branch in branches),
        )
        self[at] = stage
        return stage


def stages(grammar: Grammar) -> Stages:
    """The stages of a grammar; shared between streams unless its stop strings are long."""
    if sum(map(len, grammar.stop_sequences)) > _CACHED_STOP_CHARACTERS:
        return Stages(grammar)
    return _shared(grammar)


@functools.lru_cache(maxsize=32)
def _shared(grammar: Grammar) -> Stages:
    return Stages(grammar)


@dataclasses.dataclass(frozen=True, slots=True)
class _Branch:
    pattern: Pattern
    action: Action
    next: At


_Content: TypeAlias = tuple[Action, list[_Branch]]

_SKIP = Action(Does.SKIP)
_REASONING = Action(Does.REASONING)
_CONTENT = Action(Does.CONTENT)
_SPACE = Action(Does.SPACE)


def _literal(text: str, action: Action, then: At) -> _Branch:
    return _Branch(Pattern(text, bytes([LITERAL]) * len(text)), action, then)


def _marked(
    before: str, marker: str, after: str, action: Action, then: At, *, newlines: bool = False
) -> _Branch:
    kinds = bytes([LITERAL] * len(before) + [MARKER] * len(marker) + [LITERAL] * len(after))
    return _Branch(Pattern(before + marker + after, kinds, newlines), action, then)


def _tool_block(grammar: Grammar) -> list[_Branch]:
    if not grammar.tool_calls:
        return []
    return [_marked("<", grammar.dsml, "", _SKIP, At.CALLS, newlines=True)]


def _lead(then: At) -> _Branch:
    return _Branch(Pattern("\n", bytes([LITERAL]), first_only=True), _SKIP, then)


def _stops(grammar: Grammar) -> list[_Branch]:
    return [
        _literal(stop, Action(Does.STOP, stop), At.DONE) for stop in grammar.stop_sequences if stop
    ]


def _reason(grammar: Grammar, *, lead: bool) -> _Content:
    return _REASONING, [
        *_tool_block(grammar),
        *([_lead(At.REASON_LEAD)] if lead else []),
        _marked("", grammar.thinking_end, "", _SKIP, At.COMMON_LEAD, newlines=True),
    ]


def _common(grammar: Grammar, *, lead: bool) -> _Content:
    rest = [
        *_tool_block(grammar),
        *([_lead(At.COMMON_LEAD)] if lead else []),
        _marked("", grammar.thinking_end, "", _SKIP, At.COMMON),
    ]
    if not grammar.json_output:
        return _CONTENT, [*_stops(grammar), *rest]
    return _SPACE, [
        _literal("```json\n", _SKIP, At.JSON),
        _literal("```\n", _SKIP, At.JSON),
        _literal("{", Action(Does.BRACKET, "{"), At.JSON),
        _literal("[", Action(Does.BRACKET, "["), At.JSON),
        *rest,
    ]


def _json(grammar: Grammar) -> _Content:
    return _CONTENT, [*_stops(grammar), _literal("\n```", _SKIP, At.JSON_END)]


def _json_end(grammar: Grammar) -> _Content:
    return _SPACE, _tool_block(grammar)


def _calls(grammar: Grammar) -> _Content:
    return _SKIP, [
        _literal('invoke name="', Action(Does.BEGIN_CALL), At.NAME),
        _marked("</", grammar.dsml, "tool_calls>", _SKIP, At.DONE),
        _marked("</", grammar.dsml, " calls>", _SKIP, At.DONE),
    ]


def _name(grammar: Grammar) -> _Content:
    return Action(Does.NAME), [_literal('"', Action(Does.ANNOUNCE_CALL), At.FIRST_ARGUMENT)]


def _argument(grammar: Grammar, *, opening: str, closing: str) -> _Content:
    return _SKIP, [
        _literal("parameter name=", Action(Does.FIXED, opening), At.ARGUMENT_NAME),
        _marked("</", grammar.dsml, "", Action(Does.FIXED, closing), At.CALLS),
    ]


def _argument_name(grammar: Grammar) -> _Content:
    return Action(Does.ARGUMENTS), [_literal(" ", Action(Does.FIXED, ": "), At.ARGUMENT_TYPE)]


def _argument_type(grammar: Grammar) -> _Content:
    return _SKIP, [
        _literal('true">', Action(Does.FIXED, '"'), At.STRING_VALUE),
        _literal('false">', _SKIP, At.RAW_VALUE),
    ]


def _string_value(grammar: Grammar) -> _Content:
    quote = Action(Does.FIXED, '"')
    return Action(Does.STRING), [_marked("</", grammar.dsml, "", quote, At.ARGUMENT)]


def _raw_value(grammar: Grammar) -> _Content:
    return Action(Does.ARGUMENTS), [_marked("</", grammar.dsml, "", _SKIP, At.ARGUMENT)]


def _done(grammar: Grammar) -> _Content:
    return _SKIP, []


_CONTENTS: dict[At, Callable[[Grammar], _Content]] = {
    At.REASON: functools.partial(_reason, lead=False),
    At.REASON_LEAD: functools.partial(_reason, lead=True),
    At.COMMON: functools.partial(_common, lead=False),
    At.COMMON_LEAD: functools.partial(_common, lead=True),
    At.JSON: _json,
    At.JSON_END: _json_end,
    At.CALLS: _calls,
    At.NAME: _name,
    At.FIRST_ARGUMENT: functools.partial(_argument, opening="{", closing="{}"),
    At.ARGUMENT: functools.partial(_argument, opening=", ", closing="}"),
    At.ARGUMENT_NAME: _argument_name,
    At.ARGUMENT_TYPE: _argument_type,
    At.STRING_VALUE: _string_value,
    At.RAW_VALUE: _raw_value,
    At.DONE: _done,
}
"""Each stage's default action, and its branches in the order they are tried."""
