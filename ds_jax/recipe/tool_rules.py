"""Rules about tools that the conversions of all three protocols share.

Decides which names and schemas are accepted, what a tool choice leaves of the tools, when strict
tools may be used, and what constrained decoding would enforce. Never reads a body. In: tool
definitions and a choice. Out: the final tools and choice, an output constraint, or
`ConversionError`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from ds_jax.recipe import json_text, rules, schema_check, strict_schema
from ds_jax.recipe.conversation import Conversation, ToolChoice, ToolDefinition
from ds_jax.recipe.message import Message, SystemMessage, with_places
from ds_jax.recipe.request import ConversionError, OutputConstraint, invalid_request

MAX_NAME_LENGTH = 128
_NAME = re.compile(r"[a-zA-Z0-9_-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool choice that names one tool."""

    name: str


class ActiveTools(NamedTuple):
    """The tools on offer and how free the model is to call them."""

    tools: list[ToolDefinition]
    choice: ToolChoice

    @property
    def active(self) -> bool:
        """Whether the model may call a tool at all."""
        return bool(self.tools) and self.choice != "none"


def check_name(name: str, path: str) -> None:
    """Refuses a tool name that is empty, too long or has other characters.

    Args:
      name: the tool's name.
      path: where the name stands in the request, such as `tools[0].function.name`.
    """
    if not name:
        raise rules.empty_string(path)
    if _NAME.fullmatch(name) is None:
        raise invalid_request(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the"
            " pattern '^[a-zA-Z0-9_-]+$'."
        )
    if len(name) > MAX_NAME_LENGTH:
        raise invalid_request(
            f"Invalid '{path}': string too long. Expected a string with maximum length"
            f" {MAX_NAME_LENGTH}, but got a string with length {len(name)} instead."
        )


def prepare(
    tools: Sequence[ToolDefinition], *, strict: bool = True, may_lack_parameters: bool = True
) -> list[ToolDefinition]:
    """Tools with checked (strict ones: normalised) parameters, in order.

    Not to be called when the choice is none: then nothing about the tools is checked.

    Args:
      tools: as declared.
      strict: whether the protocol knows strict tools.
      may_lack_parameters: whether missing parameters mean `{}`; else they are an error.

    Raises:
      ConversionError: a name given twice, or parameters that are no object schema.
    """
    names: set[str] = set()
    prepared: list[ToolDefinition] = []
    for tool in tools:
        if tool.name in names:
            raise invalid_request("Tool names must be unique.")
        names.add(tool.name)
        prepared.append(_prepared(tool, strict, may_lack_parameters))
    return prepared


def _prepared(tool: ToolDefinition, strict: bool, may_lack_parameters: bool) -> ToolDefinition:
    parameters = tool.shared_parameters
    if strict and tool.strict:
        if parameters is None:
            return _with_parameters(tool, strict_schema.EMPTY_PARAMETERS)
        try:
            normal = strict_schema.normalize(
                parameters,
                prefix="Invalid tool parameters schema : ",
                top="function parameters",
                may_be_empty=True,
            )
        except strict_schema.StrictSchemaError as error:
            raise invalid_request(str(error)) from None
        return _with_parameters(tool, normal)
    if parameters is None and may_lack_parameters:
        return _with_parameters(tool, {})
    _check_parameters(tool.name, parameters)
    return tool


def _with_parameters(tool: ToolDefinition, parameters: Any) -> ToolDefinition:
    return ToolDefinition.sharing(
        tool.name, tool.description, parameters, tool.strict, tool.defer_loading
    )


def _check_parameters(name: str, parameters: Any) -> None:
    error = schema_check.first_error(parameters)
    if error is None:
        kind = None
        if isinstance(parameters, dict):
            kind = cast("dict[str, Any]", parameters).get("type")
        if kind == "object":
            return
        error = (
            "schema must be a JSON Schema of 'type: \"object\"', got"
            f" 'type: {json_text.dumps_compact(kind)}'."
        )
    raise invalid_request(f"Invalid schema for function '{name}': {error}")


def choose(
    tools: list[ToolDefinition],
    choice: ToolChoice | NamedTool,
    *,
    thinking: bool,
) -> ActiveTools:
    """What a choice leaves of the tools.

    Raises:
      ConversionError: a name that no tool has, or a forced call while thinking.
    """
    if choice == "none":
        return ActiveTools([], "none")
    if not tools:
        return ActiveTools([], "auto")
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool.name == choice.name]
        if not tools:
            raise unknown_tool(choice.name)
        choice = "required"
    if choice == "required" and thinking:
        raise invalid_request("Thinking mode does not support this tool_choice")
    return ActiveTools(tools, choice)


def reduce_announcements(
    messages: Sequence[Message], tools: Sequence[ToolDefinition]
) -> list[Message]:
    """System messages announce only tools that are on offer in the end, as they are offered then.

    Args:
      messages: the converted messages.
      tools: the final tools.

    Returns:
      A new list; a system message that is left with neither tools nor text is dropped.
    """
    offered = {tool.name: tool for tool in tools}
    reduced: list[Message] = []
    for message in messages:
        if isinstance(message, SystemMessage) and (announced := message.tools) is not None:
            left = [offered[tool.name] for tool in announced if tool.name in offered]
            if not left and not message.content:
                continue
            same = SystemMessage(message.content, message.image_sources, left)
            message = with_places(same, message.parts, message.image_token)
        reduced.append(message)
    return reduced


def unknown_tool(name: str) -> ConversionError:
    """The refusal of a choice that names a tool which is not there."""
    return invalid_request(
        f"Invalid value for 'tool_call': no function named '{name}' was specified"
        " in the 'tools' parameter."
    )


def check_strict(tools: Sequence[ToolDefinition], *, has_response_format: bool) -> None:
    """Refuses strict tools beside others or beside a response format (of any kind)."""
    strict = sum(1 for tool in tools if tool.strict)
    if not strict:
        return
    if strict < len(tools):
        raise invalid_request("Cannot use strict tool with non-strict tool in the same request")
    if has_response_format:
        raise invalid_request("response_format should not be used with tools")


def output_constraint(
    conversation: Conversation, response_schema: Any = None
) -> OutputConstraint | None:
    """What constrained decoding would enforce; active tools hide the response format.

    Args:
      conversation: the finished conversation.
      response_schema: the schema to enforce if it differs from the one the prompt shows.
    """
    tools = conversation.tools
    if tools and conversation.tool_choice != "none":
        required = conversation.tool_choice == "required"
        return OutputConstraint(
            "tool_call_required" if required else "tool_call",
            json_text.dumps_compact([_as_chat_tool(tool) for tool in tools]),
        )
    if conversation.response_format == "json_object":
        return OutputConstraint("json", "")
    if conversation.response_format == "json_schema":
        schema = response_schema
        if schema is None:
            schema = conversation.shared_response_schema
        return OutputConstraint("json", json_text.dumps_compact(schema))
    if conversation.response_regex is not None:
        return OutputConstraint("regex", conversation.response_regex)
    return None


def _as_chat_tool(tool: ToolDefinition) -> dict[str, Any]:
    value: dict[str, Any] = {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.shared_parameters,
            "strict": tool.strict,
        },
    }
    if tool.defer_loading:
        value["defer_loading"] = True
    return value
