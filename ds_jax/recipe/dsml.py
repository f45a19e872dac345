"""Tool calls and tool schemas as prompts spell them.

Decides the DSML markup in both dialects: the tool block of the system text and the calls of an
assistant turn. Never escapes names or values and never parses. In: tools and calls. Out: pieces
on a `PromptBuilder`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, cast

from ds_jax.recipe import conversation as conv
from ds_jax.recipe import json_text
from ds_jax.recipe.prompt import PromptBuilder
from ds_jax.recipe.special_tokens import SpecialTokens

# `{dsml}`, `{think}` and `{/think}` stand for control tokens.
TEXT_BEFORE_TOOLS = """## Tools

You have access to a set of tools to help answer the user's question. \
You can invoke tools by writing a "<{dsml} calls>" block like the following:

<{dsml} calls>
<{dsml} invoke name="$TOOL_NAME">
<{dsml} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{dsml} parameter>
...
</{dsml} invoke>
<{dsml} invoke name="$TOOL_NAME2">
...
</{dsml} invoke>
</{dsml} calls>

String parameters should be specified as is and set `string="true"`. \
For all other types (numbers, booleans, arrays, objects), \
pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {think}), \
you MUST output your complete reasoning inside {think}...{/think} \
BEFORE any tool calls or final response.

Otherwise, output directly after {/think} with tool calls or final response.

### Available Tool Schemas

"""
TEXT_AFTER_TOOLS = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Dialect:
    """How one model version spells markup and values."""

    calls: str
    """Tag name of a block of calls, with what stands between it and the DSML token."""
    invoke: str
    parameter: str
    ends_empty_lines: bool
    """A list without members still takes its line."""
    dumps: Callable[[Any], str]
    """Spells a JSON value."""
    before_tools: tuple[tuple[str, bool], ...]
    """The text before the schemas, cut into (text or name of a control token, is a token)."""


def _cut(template: str) -> tuple[tuple[str, bool], ...]:
    pieces: list[tuple[str, bool]] = []
    for piece in template.split("{"):
        name, brace, text = piece.partition("}")
        pieces += [(name, True), (text, False)] if brace else [(piece, False)]
    return tuple(pieces)


_V4_TEXT = TEXT_BEFORE_TOOLS.replace("{dsml} calls", "{dsml}tool_calls").replace(
    "{dsml} ", "{dsml}"
)
V41 = Dialect(" calls", " invoke", " parameter", True, json_text.dumps, _cut(TEXT_BEFORE_TOOLS))
V4 = Dialect("tool_calls", "invoke", "parameter", False, json_text.dumps_decimal, _cut(_V4_TEXT))


def tool_line(tool: conv.ToolDefinition, dialect: Dialect = V41) -> str:
    """One tool schema on one line."""
    return dialect.dumps(
        {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.shared_parameters,
        }
    )


def add_tool_block(
    out: PromptBuilder,
    tools: Iterable[conv.ToolDefinition],
    tokens: SpecialTokens,
    dialect: Dialect = V41,
) -> None:
    """How to call tools, then the schemas of all tools that are not deferred."""
    controls = {
        "dsml": tokens.dsml,
        "think": tokens.thinking_start,
        "/think": tokens.thinking_end,
    }
    out.at("system", "tool_instructions").text("\n\n")
    for text, is_token in dialect.before_tools:
        _ = out.special(controls[text]) if is_token else out.text(text)
    offered = [(index, tool) for index, tool in enumerate(tools) if not tool.defer_loading]
    for number, (index, tool) in enumerate(offered):
        out.at("system", "tools", None, index).text("\n" if number else "")
        out.text(tool_line(tool, dialect))
    after = TEXT_AFTER_TOOLS if offered or dialect.ends_empty_lines else TEXT_AFTER_TOOLS[1:]
    out.at("system", "tool_instructions").text(after)


def add_calls(
    out: PromptBuilder,
    calls: Iterable[tuple[int, conv.ToolCall]],
    tokens: SpecialTokens,
    dialect: Dialect = V41,
    message: int | None = None,
) -> None:
    """The numbered calls of one assistant turn, in order."""
    out.at("assistant", "tool_calls", message)
    add_calls_start(out, tokens, dialect)
    for number, call in calls:
        out.at("assistant", "tool_calls", message, number)
        out.joined(tokens.dsml, _call_texts(call, dialect))
    out.at("assistant", "tool_calls", message)
    out.joined(tokens.dsml, ["</", f"{dialect.calls}>"])


def add_calls_start(out: PromptBuilder, tokens: SpecialTokens, dialect: Dialect = V41) -> None:
    """The opening line of a calls block."""
    out.joined(tokens.dsml, ["\n\n<", f"{dialect.calls}>\n"])


def _call_texts(call: conv.ToolCall, dialect: Dialect) -> list[str]:
    """The texts between the DSML tokens of one call."""
    texts, before = ["<"], f'{dialect.invoke} name="{call.name}">\n'
    for name, is_string, value in _parameters(call.arguments, dialect):
        flag = "true" if is_string else "false"
        texts += [f"{before}<", f'{dialect.parameter} name="{name}" string="{flag}">{value}</']
        before = f"{dialect.parameter}>\n"
    if len(texts) == 1 and dialect.ends_empty_lines:
        before += "\n"
    return [*texts, f"{before}</", f"{dialect.invoke}>\n"]


def _parameters(arguments: str, dialect: Dialect) -> list[tuple[str, bool, str]]:
    """(name, is a string, spelled value); text that is no JSON object is one raw parameter."""
    try:
        parsed = json_text.loads(arguments)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return [("arguments", True, arguments)]
    record = cast("dict[str, Any]", parsed)
    return [
        (name, True, value) if isinstance(value, str) else (name, False, dialect.dumps(value))
        for name, value in record.items()
    ]
