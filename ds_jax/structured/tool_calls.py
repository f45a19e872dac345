"""A grammar of V4.1's block of tool calls.

Decides which tools and parameters a block may name and what each value looks like: a parameter of
type string is raw text, every other type is JSON. Never renders and never parses. In: tools as
JSON. Out: text of a Lark grammar, or a `RequestError` with the place.

    \\n\\n<｜DSML｜ calls>\\n
    <｜DSML｜ invoke name="f">\\n
    <｜DSML｜ parameter name="p" string="true|false">...</｜DSML｜ parameter>\\n
    </｜DSML｜ invoke>\\n
    </｜DSML｜ calls>

| a tool is | its calls |
|---|---|
| strict | follow its schema: what cannot be enforced is refused |
| not strict | have its required parameters; values have the declared types, nothing more |
| without `properties` | have any parameters, unless it forbids additional ones |

Parameters come in the order of the schema, each once. The markers are control tokens: text that
spells one is never read as one.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

from ds_jax import errors
from ds_jax.structured import schema, tool_values
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import refused, shown
from ds_jax.structured.vocabulary import TextTokenizer

KIND = "tool_calls"
STARTS = ("block", "marker", "calls")
_UNSAFE = frozenset('"\n\r')


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How a block is shaped.

    Attributes:
      choice: `required`: any of the tools; else the name of the only tool.
      start: where the grammar starts. `block`: at the blank lines in front; `marker`: behind the
        first marker, for a trigger; `calls`: behind the opening line, which the prompt then ends
        with.
      max_calls: calls of one block; None: any number.
      marker: the control string of the markup.
      max_blanks: blanks between two JSON tokens.
    """

    choice: str = "required"
    start: str = "block"
    max_calls: int | None = None
    marker: str = "｜DSML｜"
    max_blanks: int = 8

    def __post_init__(self):
        if self.start not in STARTS:
            raise refused("start", f"{self.start!r} must be one of {', '.join(STARTS)}")
        if self.max_calls is not None and (type(self.max_calls) is not int or self.max_calls < 1):
            raise refused("max_calls", f"{self.max_calls!r} must be a whole number from 1, or null")


def to_lark(
    text: str, options: Options, tokenizer: TextTokenizer, limits: Limits, blanks: str | None
) -> str:
    """The grammar of a block of calls.

    Args:
      text: a JSON list of objects with `name`, `parameters` (a JSON Schema) and `strict`; the form
        `{"type": "function", "function": {...}}` is read too.
      options: how the block is shaped.
      tokenizer: has the marker as a control token.
      limits: how large it may be.
      blanks: regular expression of the blanks inside JSON values; None: none.
    """
    marker = tokenizer.find_control(options.marker)
    if marker is None:
        raise refused(KIND, f"the tokenizer has no control token {options.marker!r}; give `marker`")
    tools = _chosen(_tools(text, limits), options.choice)
    writer = tool_values.Writer(f"<[{marker}]>", limits, blanks)
    names = [_tool(tool, place, writer) for place, tool in tools]
    most = "" if options.max_calls is None else options.max_calls
    opening = {
        "block": f'"\\n\\n<" {writer.marker} " calls>\\n" ',
        "marker": '" calls>\\n" ',
        "calls": "",
    }[options.start]
    lines = [
        f'start: {opening}(call){{1,{most}}} "</" {writer.marker} " calls>"',
        f'call: "<" {writer.marker} ({" | ".join(names)})',
        *writer.lines,
    ]
    return "\n".join(lines) + "\n"


def _tools(text: str, limits: Limits) -> list[tuple[str, dict[str, Any]]]:
    value = schema.parse(text, limits, KIND)
    if not isinstance(value, list) or not value:
        raise refused(KIND, "must be a list of at least one tool")
    tools = cast("list[Any]", value)
    if len(tools) > limits.tools:
        raise refused(KIND, f"{len(tools)} tools; at most {limits.tools}")
    out: list[tuple[str, dict[str, Any]]] = []
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        place = f"#/{index}"
        if isinstance(tool, dict) and isinstance(cast("Any", tool).get("function"), dict):
            tool, place = cast("dict[str, Any]", tool)["function"], f"{place}/function"
        if not isinstance(tool, dict):
            raise refused(KIND, "a tool must be an object with a name", place)
        name = cast("dict[str, Any]", tool).get("name")
        if not isinstance(name, str) or not name or _UNSAFE & set(name):
            raise refused(
                KIND,
                f"the name {shown(repr(name))} must be a string without quotes and line breaks",
                place,
            )
        if name in seen:
            raise refused(KIND, f"the name {shown(repr(name))} stands twice", place)
        seen.add(name)
        out.append((place, cast("dict[str, Any]", tool)))
    return out


def _chosen(
    tools: list[tuple[str, dict[str, Any]]], choice: str
) -> list[tuple[str, dict[str, Any]]]:
    if choice == "required":
        return tools
    chosen = [(place, tool) for place, tool in tools if tool["name"] == choice]
    if not chosen:
        names = ", ".join(tool["name"] for _, tool in tools[:8])
        raise refused(KIND, f"no tool is named {shown(repr(choice))}; there are {shown(names)}")
    return chosen


def _tool(tool: dict[str, Any], place: str, writer: tool_values.Writer) -> str:
    """Adds the rule of one tool's call, behind its first marker."""
    rule = writer.fresh("tool")
    parameters = tool.get("parameters")
    strict = tool.get("strict") is True
    head = json.dumps(f' invoke name="{tool["name"]}">\n', ensure_ascii=False)
    tail = f'"</" {writer.marker} " invoke>\\n"'
    if parameters is None or parameters is True:
        parameters = {}
    if not isinstance(parameters, dict):
        raise refused(KIND, "must be a JSON Schema object", f"{place}/parameters")
    items = cast("dict[str, Any]", parameters)
    try:
        body = _parameters(items, strict, writer)
    except errors.RequestError as error:
        raise refused(KIND, str(error), f"{place}/parameters") from error
    writer.lines.append(f"{rule}: {head} {body} {tail}")
    return rule


def _parameters(parameters: dict[str, Any], strict: bool, writer: tool_values.Writer) -> str:
    declared = parameters.get("properties", {})
    required = parameters.get("required", [])
    reader = tool_values.Reader(parameters, strict, writer)
    if not isinstance(declared, dict) or not isinstance(required, list):
        raise refused("parameters", "`properties` must be an object and `required` a list")
    members = cast("dict[str, Any]", declared)
    needed = cast("list[Any]", required)
    if not members and not needed and parameters.get("additionalProperties") is not False:
        return f"({writer.any_parameter()})*"
    if strict:
        reader.check()
    parts: list[str] = []
    for name in [*members, *(each for each in needed if each not in members)]:
        if not isinstance(name, str) or _UNSAFE & set(name):
            raise refused("parameter", f"the name {shown(repr(name))} has quotes or line breaks")
        part = reader.parameter(name)
        if name in needed:
            if part is None:
                raise refused("parameter", f"{shown(repr(name))} is required and has no value")
            parts.append(part)
        elif part is not None:
            parts.append(f"({part})?")
    # A call without parameters has an empty line where they would stand.
    body = " ".join(parts)
    return body if needed else f'({body} | "\\n")' if body else '("\\n")?'
