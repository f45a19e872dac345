"""Golden cases as conversations: reads the JSON shapes of tests/golden/recipe."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from ds_jax.recipe import conversation as conv

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "recipe"


def read(name: str) -> list[dict[str, Any]]:
    """One case a line."""
    with open(GOLDEN / name, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def conversation(data: dict[str, Any]) -> conv.Conversation:
    """A conversation from its golden form."""
    options: dict[str, Any] = {
        key: data[key]
        for key in ("thinking_mode", "tool_choice", "reasoning_effort")
        if key in data
    }
    match data.get("response_format", "text"):
        case "json_object":
            options["response_format"] = "json_object"
        case "json_schema":
            options["response_schema"] = data["response_schema"]
        case "regex":
            options["response_regex"] = data["response_regex"]
    messages = tuple(_message(message) for message in data["messages"])
    return conv.Conversation(messages, tools=_tools(data.get("tools", [])), **options)


def _message(data: dict[str, Any]) -> conv.Message:
    content = data["content"]
    images = tuple(
        conv.UrlImageSource(source["url"], source["detail"], path=source["path"])
        for source in data.get("image_sources", [])
    )
    match data["role"]:
        case "system":
            tools = data.get("tools")
            return conv.SystemMessage(content, images, None if tools is None else _tools(tools))
        case "user":
            return conv.UserMessage(content, images)
        case "assistant":
            calls = data.get("tool_calls")
            return conv.AssistantMessage(
                content,
                data.get("reasoning_content"),
                None if calls is None else tuple(conv.ToolCall(**call) for call in calls),
                bool(data.get("prefix")),
            )
        case "tool":
            return conv.ToolMessage(content, data.get("tool_call_id"), images)
        case _:
            return conv.LatestReminderMessage(content)


def _tools(data: list[dict[str, Any]]) -> tuple[conv.ToolDefinition, ...]:
    return tuple(conv.ToolDefinition(**tool) for tool in data)
