"""Messages of an Anthropic request as messages of a conversation.

Decides where each kind of block may stand and what it becomes. Never decides whether thinking is
on, and never checks tool schemas. In: the decoded messages and what the request declares. Out: the
messages of a conversation; assistants without thinking blocks have no reasoning.

V4 has no system role inside a conversation, no images and no tools that appear later: system
messages become reminders of the user, images a note, and announced tools are dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from ds_jax.recipe import messages_content as given
from ds_jax.recipe.image_rules import UNSUPPORTED_IMAGE_TEXT
from ds_jax.recipe.image_source import ImageSource
from ds_jax.recipe.json_text import dumps_decimal
from ds_jax.recipe.message import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
    with_places,
)
from ds_jax.recipe.messages_images import image_source
from ds_jax.recipe.messages_pairing import Pairing
from ds_jax.recipe.request import ConversionError, invalid_request
from ds_jax.recipe.tool import ToolCall, ToolDefinition

T = TypeVar("T", SystemMessage, UserMessage, ToolMessage)

_SEPARATOR = "\n\n"


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """What the rest of the request says about its messages.

    Args:
      image_token: how places of images are spelled; None where the model knows no images, system
        messages or later tools (V4).
      tools: the declared tools by name.
      drop_server_blocks: whether calls run by the server are left out instead of refused.
    """

    image_token: str | None
    tools: Mapping[str, ToolDefinition]
    drop_server_blocks: bool


def convert(messages: Iterable[given.Message], setting: Setting) -> list[Message]:
    """The messages of a conversation, in order.

    Args:
      messages: the request's messages.
      setting: what else the request says.

    Returns:
      One message for an assistant or system message, one or more for a user message; V4 drops
      empty system messages.

    Raises:
      ConversionError: a block in the wrong place, an unanswered call, an image that is not
        acceptable, an unknown tool. The message says where.
    """
    pairing = Pairing()
    converted: list[Message] = []
    for index, message in enumerate(messages):
        pairing.start(index, message.role)
        if message.role == "user":
            _user(index, message.content, setting, pairing, converted)
        elif message.role == "assistant":
            converted.append(_assistant(index, message.content, setting, pairing))
        else:
            _system(index, message.content, setting, converted)
    pairing.finish()
    return converted


class _Parts:
    """Texts and places of images, joined by blank lines. Mutates itself."""

    def __init__(self, setting: Setting) -> None:
        self._token = setting.image_token
        self._parts: list[list[str]] = [[]]
        self._sources: list[ImageSource] = []
        self._empty = True

    def add(self, text: str) -> None:
        """Appends a text."""
        part = self._parts[-1]
        if not self._empty:
            part.append(_SEPARATOR)
        part.append(text)
        self._empty = False

    def add_image(self, image: given.Image, location: str, path: str) -> None:
        """Appends the place of an image, or the note that images are not supported."""
        if self._token is None:
            self.add(UNSUPPORTED_IMAGE_TEXT)
            return
        self._sources.append(image_source(image.source, location, path))
        self.add("")
        self._parts.append([])

    def text(self) -> str:
        """The joined texts, if there are no images."""
        return "".join(self._parts[0])

    def sources(self) -> list[ImageSource]:
        """The images so far."""
        return self._sources

    def placed(self, message: T) -> T:
        """`message` with these texts and places; its own content is replaced."""
        return with_places(message, ["".join(part) for part in self._parts], self._token or "")


def _user(
    index: int,
    content: str | Sequence[given.Block],
    setting: Setting,
    pairing: Pairing,
    converted: list[Message],
) -> None:
    """Appends one message a block, then one that announces the tools found by tool results."""
    if isinstance(content, str):
        pairing.speak(index)
        converted.append(UserMessage(content))
        pairing.end_user()
        return
    _refuse_empty(index, content)
    found: list[ToolDefinition] = []
    for number, block in enumerate(content):
        match block:
            case given.Text():
                pairing.speak(index)
                converted.append(UserMessage(block.text))
            case given.ToolResult():
                pairing.answer(index, number, block.tool_use_id)
                found.extend(_found_tools(f"messages.{index}.content.{number}", block, setting))
                converted.append(
                    _tool_message(f"messages.{index}.content.{number}", block, setting)
                )
            case given.Image():
                pairing.speak(index)
                place = f"messages.{index}.content[{number}]"
                converted.append(_image_message(block, place, setting))
            case given.Document():
                pairing.speak(index)
                converted.append(UserMessage(_document(block)))
            case _:
                raise _misplaced(index, block)
    pairing.end_user()
    if found and setting.image_token is not None:
        converted.append(SystemMessage("", tools=found))


def _image_message(block: given.Image, place: str, setting: Setting) -> UserMessage:
    parts = _Parts(setting)
    parts.add_image(block, place, place)
    return parts.placed(UserMessage("", parts.sources()))


def _found_tools(
    location: str, result: given.ToolResult, setting: Setting
) -> Iterable[ToolDefinition]:
    if not isinstance(result.content, list):
        return ()
    found: list[ToolDefinition] = []
    for part in result.content:
        if isinstance(part, given.FoundTool):
            tool = setting.tools.get(part.tool_name)
            if tool is None:
                raise invalid_request(
                    f"{location}: tool reference '{part.tool_name}' not found in available tools"
                )
            found.append(tool)
    return found


def _tool_message(location: str, result: given.ToolResult, setting: Setting) -> ToolMessage:
    if not isinstance(result.content, list):
        return ToolMessage(result.content or "", result.tool_use_id)
    parts = _Parts(setting)
    for number, part in enumerate(result.content):
        match part:
            case given.Text():
                parts.add(part.text)
            case given.Image():
                path = f"{location}.tool_result"
                parts.add_image(part, f"{path}.content[{number}]", path)
            case given.Document():
                parts.add(_document(part))
            case given.FoundTool():
                parts.add(part.tool_name)
    return parts.placed(ToolMessage("", result.tool_use_id, parts.sources()))


def _assistant(
    index: int, content: str | Sequence[given.Block], setting: Setting, pairing: Pairing
) -> AssistantMessage:
    if isinstance(content, str):
        return AssistantMessage(content)
    _refuse_empty(index, content)
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []

    def speak(number: int, text: str) -> None:
        pairing.speak(index, number)
        if text or texts:  # nothing separates a first text from empty ones before it
            texts.append(text)

    for number, block in enumerate(content):
        match block:
            case given.Text():
                speak(number, block.text)
            case given.Thinking():
                thoughts.append(block.thinking)
            case given.ToolUse():
                pairing.ask(index, number, block.id)
                calls.append(ToolCall(block.id, block.name, dumps_decimal(block.input)))
            case given.Document():
                speak(number, _document(block))
            case given.Image():
                speak(number, UNSUPPORTED_IMAGE_TEXT)
                if setting.image_token is not None:
                    place = f"messages.{index}.content[{number}]"
                    image_source(block.source, place, place)
                    raise invalid_request("Image in assistant message is unsupported")
            case given.ServerToolUse() | given.WebSearchToolResult():
                if not setting.drop_server_blocks:
                    raise invalid_request(
                        "Unsupported content block: server tools are not supported"
                    )
            case _:
                raise _misplaced(index, block)
    return AssistantMessage(
        _SEPARATOR.join(texts),
        _SEPARATOR.join(thoughts) if thoughts else None,
        calls or None,
    )


def _system(
    index: int,
    content: str | Sequence[given.Block],
    setting: Setting,
    converted: list[Message],
) -> None:
    """Appends a system message, or in V4 a reminder of the user."""
    parts = _Parts(setting)
    tools: list[ToolDefinition] = []
    for number, block in enumerate([given.Text(content)] if isinstance(content, str) else content):
        match block:
            case given.Text():
                parts.add(block.text)
            case given.Image():
                place = f"messages.{index}"
                parts.add_image(block, f"{place}.content[{number}]", place)
            case given.Document():
                parts.add(_document(block))
            case given.ToolAddition():
                tool = setting.tools.get(block.tool.name)
                if tool is None:
                    raise invalid_request(
                        f"messages.{index}.content.{number}: `tool_addition` references unknown "
                        f"tool '{block.tool.name}'"
                    )
                tools.append(tool)
            case _:
                raise _misplaced(index, block)
    if setting.image_token is not None:
        converted.append(parts.placed(SystemMessage("", parts.sources(), tools or None)))
    elif text := parts.text():
        converted.append(UserMessage(f"<system-reminder>\n{text}\n</system-reminder>"))


def _document(block: given.Document) -> str:
    kind = block.source.media_type
    return f"[Unsupported document type: {'unknown' if kind is None else kind}]"


def _refuse_empty(index: int, content: Sequence[given.Block]) -> None:
    if not content:
        raise invalid_request(f"messages.{index}: all messages must have non-empty content")


def _misplaced(index: int, block: given.Block) -> ConversionError:
    match block:
        case given.Thinking():
            return invalid_request(
                f"messages.{index}.content: thinking blocks may only be in `assistant` messages"
            )
        case given.ToolUse() | given.ServerToolUse():
            name, role = "tool_use", "assistant"
        case given.WebSearchToolResult():
            name, role = "web_search_tool_result", "assistant"
        case given.ToolResult():
            name, role = "tool_result", "user"
        case _:
            name, role = "tool_addition", "system"
    return invalid_request(f"messages.{index}: `{name}` blocks can only be in `{role}` messages")
