"""Tool calls and tool schemas as V4.1 prompts spell them.

Decides the DSML markup: the tool block of the system text and the calls of an assistant turn. Never
escapes names or values and never parses. In: tools and calls. Out: pieces on a `PromptBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterable
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


def tool_line(tool: conv.ToolDefinition) -> str:
    """One tool schema on one line."""
    return json_text.dumps(
        {
            "name": tool.name,
            "description": tool.description or "",
            "parameters": tool.parameters,
        }
    )


def add_tool_block(
    out: PromptBuilder, tools: Iterable[conv.ToolDefinition], tokens: SpecialTokens
) -> None:
    """How to call tools, then the schemas of all tools that are not deferred."""
    controls = {
        "dsml": tokens.dsml,
        "think": tokens.thinking_start,
        "/think": tokens.thinking_end,
    }
    for piece in TEXT_BEFORE_TOOLS.split("{"):
        name, brace, text = piece.partition("}")
        if brace:
            out.special(controls[name]).text(text)
        else:
            out.text(piece)
    out.text("\n".join(tool_line(tool) for tool in tools if not tool.defer_loading))
    out.text(TEXT_AFTER_TOOLS)


def add_calls(out: PromptBuilder, calls: Iterable[conv.ToolCall], tokens: SpecialTokens) -> None:
    """The calls of one assistant turn; nothing without calls."""
    calls = tuple(calls)
    if not calls:
        return
    add_calls_start(out, tokens)
    for call in calls:
        out.text("<").special(tokens.dsml).text(f' invoke name="{call.name}">\n')
        for index, (name, is_string, value) in enumerate(_parameters(call.arguments)):
            out.text("\n" if index else "").text("<").special(tokens.dsml)
            flag = "true" if is_string else "false"
            out.text(f' parameter name="{name}" string="{flag}">{value}</')
            out.special(tokens.dsml).text(" parameter>")
        out.text("\n</").special(tokens.dsml).text(" invoke>\n")
    out.text("</").special(tokens.dsml).text(" calls>")


def add_calls_start(out: PromptBuilder, tokens: SpecialTokens) -> None:
    """The opening line of a calls block."""
    out.text("\n\n<").special(tokens.dsml).text(" calls>\n")


def _parameters(arguments: str) -> list[tuple[str, bool, str]]:
    """(name, is a string, spelled value); text that is no JSON object is one raw parameter."""
    try:
        parsed = json_text.loads(arguments)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        return [("arguments", True, arguments)]
    record = cast("dict[str, Any]", parsed)
    return [
        (name, True, value) if isinstance(value, str) else (name, False, json_text.dumps(value))
        for name, value in record.items()
    ]
