"""From the text of a grammar to a compiled one.

Decides which kinds exist and which options each takes. Never waits and never caches: the compiler
does. In: kind, text, options. Out: a `Grammar`, or a `RequestError`.

| kind | text | options |
|---|---|---|
| `json_schema` | a JSON Schema | `strict`, `max_blanks`, `forced` |
| `json_object` | ignored | `strict`, `max_blanks`, `forced` |
| `regex` | an expression that the whole output matches | `forced` |
| `ebnf` | GBNF, the output is the rule `root` | `forced` |
| `lark` | the library's Lark dialect, start rule `start` | `forced` |
| `tool_calls` | a JSON list of tools | those of `tool_calls.Options` |

`forced`: where only one text can follow, its usual cut into tokens is the only one allowed, and
`Matcher.forced_tokens` tells it. JSON and tool calls have it on; the other kinds allow every cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ds_jax.grammar_request import KINDS
from ds_jax.structured import backend, ebnf, regex, schema, tool_calls
from ds_jax.structured.grammar import Grammar
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import refused, shown
from ds_jax.structured.vocabulary import TextTokenizer, Vocabulary, prepared

MAX_BLANKS = 8
"""Blanks between two JSON tokens; without a bound an output can go on with blanks for ever."""

_CONTROL = re.compile(r"<([^<>\[\]\s]+)>")
_MOST_BLANKS = 1_000


def compile(
    kind: str,
    text: str,
    tokenizer: TextTokenizer | Vocabulary | None = None,
    *,
    limits: Limits | None = None,
    **options: Any,
) -> Grammar:
    """A grammar, compiled on this thread.

    Args:
      kind: one of the table above.
      text: the grammar.
      tokenizer: whose tokens are constrained; None: bytes, enough to check whole texts.
      limits: how large the grammar may be.
      options: of the kind.

    Raises:
      RequestError: broken, too large, not enforceable, or nothing can come out of it; the message
        has the reason and the place.
      MissingLibraryError: llguidance is not installed.
    """
    limits = limits or Limits()
    maker = _MAKERS.get(kind)
    if maker is None:
        raise refused("kind", f"{shown(repr(kind))} is unknown; use one of {', '.join(_MAKERS)}")
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise refused(kind, f"the grammar is a {type(text).__name__}; give its text")
    if len(text) > limits.text_bytes:
        raise refused(kind, f"{len(text)} characters; at most {limits.text_bytes} bytes")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refused(kind, f"a lone surrogate at character {error.start}") from None
    vocabulary = prepared(tokenizer)
    try:
        source, controls = maker(text, options, vocabulary, limits)
    except TypeError as error:
        raise refused(kind, str(error)) from error
    template = backend.make_matcher(vocabulary.handle, source, limits)
    _check(kind, template)
    return Grammar(kind, vocabulary, template, controls)


def _check(kind: str, template: Any) -> None:
    """Refuses what did not compile, and a grammar out of which nothing can come."""
    if not template.is_error():
        probe = template.deep_copy()
        probe.compute_bitmask()
        if not probe.is_error():
            if probe.is_stopped() and not probe.is_accepting():
                raise refused(kind, "nothing can come out of this grammar; check its recursion")
            return
        template = probe
    raise refused(kind, shown(regex.reason(template.get_error())))


_Made = tuple[str, tuple[str, ...]]
"""Source, and the control strings it asks for."""


def _json_schema(text: str, given: dict[str, Any], _: Vocabulary, limits: Limits) -> _Made:
    blanks, strict, forced = _options(given, max_blanks=MAX_BLANKS, strict=False, forced=True)
    known = schema.read(text, limits, strict=_flag("strict", strict))
    lark = f"start: {backend.schema_text(known, blank_pattern(blanks))}\n"
    return backend.source(lark, forced=_flag("forced", forced)), ()


def _json_object(text: str, given: dict[str, Any], _: Vocabulary, limits: Limits) -> _Made:
    return _json_schema('{"type": "object"}', given, _, limits)


def _regex(text: str, given: dict[str, Any], _: Vocabulary, limits: Limits) -> _Made:
    (forced,) = _options(given, forced=False)
    regex.check(text)
    lark = f"start: /{backend.regex_text(text)}/\n" if text else 'start: ""\n'
    return backend.source(lark, forced=_flag("forced", forced)), ()


def _ebnf(text: str, given: dict[str, Any], _: Vocabulary, limits: Limits) -> _Made:
    (forced,) = _options(given, forced=False)
    return backend.source(ebnf.to_lark(text, limits), forced=_flag("forced", forced)), ()


def _lark(text: str, given: dict[str, Any], vocabulary: Vocabulary, limits: Limits) -> _Made:
    (forced,) = _options(given, forced=False)
    if len(text.encode()) > limits.lark_bytes or text.count("\n") > limits.lark_lines:
        most = f"{limits.lark_bytes} bytes and {limits.lark_lines} lines"
        raise refused("lark", f"{len(text)} characters; at most {most}")
    named = dict.fromkeys(_CONTROL.findall(text))
    spellings = [spelling for name in named for spelling in (f"<{name}>", name)]
    find = vocabulary.tokenizer.find_control
    controls = tuple(each for each in spellings if find(each) is not None)
    return backend.source(text, forced=_flag("forced", forced)), controls


def _tool_calls(text: str, given: dict[str, Any], vocabulary: Vocabulary, limits: Limits) -> _Made:
    known = tool_calls.Options(**given)
    pattern = blank_pattern(known.max_blanks)
    lark = tool_calls.to_lark(text, known, vocabulary.tokenizer, limits, pattern)
    return backend.source(lark, forced=True), (known.marker,)


_MAKERS: dict[str, Callable[[str, dict[str, Any], Vocabulary, Limits], _Made]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "regex": _regex,
    "ebnf": _ebnf,
    "lark": _lark,
    "tool_calls": _tool_calls,
}
assert tuple(_MAKERS) == KINDS, "a request can name every kind"


def blank_pattern(most: Any) -> str | None:
    """What may stand between two JSON tokens; None: nothing."""
    if type(most) is not int or not 0 <= most <= _MOST_BLANKS:
        raise refused("max_blanks", f"{most!r} must be a whole number from 0 to {_MOST_BLANKS}")
    return rf"[\x20\x0A\x0D\x09]{{1,{most}}}" if most else None


def _options(given: dict[str, Any], **known: Any) -> list[Any]:
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        allowed = ", ".join(known) or "none"
        raise TypeError(f"unknown option {unknown[0]!r}; options of this kind: {allowed}")
    return [given.get(name, value) for name, value in known.items()]


def _flag(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise refused(name, f"{value!r} must be true or false")
    return value
