"""Chat Completions messages as messages of a conversation.

Decides how tool results answer calls and which messages are dropped. Never looks at anything but
the messages; `chat_content` turns content blocks into text and images. In: decoded messages. Out:
conversation messages in which missing reasoning is None, or `ConversionError`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds_jax.recipe import chat_body as body
from ds_jax.recipe import rules
from ds_jax.recipe.chat_content import Content, ContentReader
from ds_jax.recipe.conversation import (
    AssistantMessage,
    LatestReminderMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ds_jax.recipe.request import invalid_request

_FOLLOW = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'"
)


def convert_messages(
    messages: Sequence[body.ChatMessage], *, images: bool, image_token: str
) -> list[Message]:
    """The conversation that a request tells.

    Args:
      messages: as decoded.
      images: whether the model takes images; if not, every image becomes a fixed text and none is
        checked.
      image_token: how the place of an image is spelled.

    Returns:
      Messages in order, without empty system messages.

    Raises:
      ConversionError: the first message that is wrong.
    """
    reader = ContentReader(images, image_token)
    converted: list[Message] = []
    answered: dict[str, bool] = {}  # the calls of the last assistant message
    open_calls = 0
    for index, message in enumerate(messages):
        if isinstance(message, body.Tool):
            _answer(answered, open_calls, message.tool_call_id, index)
            open_calls -= 1
            converted.append(_tool(message, reader, index))
            continue
        if open_calls:
            raise _unanswered()
        if isinstance(message, body.User):
            converted.append(_user(message, reader, index))
        elif isinstance(message, body.Assistant):
            converted.append(_assistant(message, reader, index))
            answered = {call.id: False for call in message.tool_calls or ()}
            open_calls = len(answered)
        elif isinstance(message, body.System):
            content = _without_header(reader.read(message.content, index))
            if content.text:
                converted.append(content.placed(SystemMessage(content.text, content.sources)))
        else:
            converted.append(LatestReminderMessage(message.content))
    if open_calls:
        raise _unanswered()
    return converted


def _user(message: body.User, reader: ContentReader, index: int) -> UserMessage:
    if isinstance(message.content, str):
        return UserMessage(message.content)
    content = reader.read(message.content, index)
    return content.placed(UserMessage(content.text, content.sources))


def _tool(message: body.Tool, reader: ContentReader, index: int) -> ToolMessage:
    if isinstance(message.content, str):
        return ToolMessage(message.content, message.tool_call_id)
    content = reader.read(message.content, index)
    return content.placed(ToolMessage(content.text, message.tool_call_id, content.sources))


def _assistant(message: body.Assistant, reader: ContentReader, index: int) -> AssistantMessage:
    text = ""
    if message.content is not None:
        text = reader.read_text(message.content, index)
    elif message.tool_calls is None:
        raise invalid_request("Invalid assistant message: content or tool_calls must be set")
    calls = None
    if message.tool_calls is not None:
        calls = _calls(message.tool_calls, index)
    return AssistantMessage(text, message.reasoning_content, calls, bool(message.prefix))


def _calls(calls: list[body.Call], index: int) -> list[ToolCall]:
    if not calls:
        raise invalid_request(
            f"Invalid 'messages[{index}].tool_calls': empty array. Expected an array with minimum"
            " length 1, but got an empty array instead."
        )
    seen: set[str] = set()
    for call in calls:
        if call.id in seen:
            raise _repeated(call.id, index)
        seen.add(call.id)
    return [ToolCall(call.id, call.function.name, call.function.arguments) for call in calls]


def _answer(answered: dict[str, bool], open_calls: int, call_id: str, index: int) -> None:
    """Marks a call as answered. Mutates `answered`."""
    if not open_calls:
        raise invalid_request(
            "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
        )
    if call_id not in answered:
        raise invalid_request(
            f"{_FOLLOW}, The following tool_call_ids did not have response messages: {call_id}"
        )
    if answered[call_id]:
        raise _repeated(call_id, index)
    answered[call_id] = True


def _unanswered() -> Exception:
    return invalid_request(f"{_FOLLOW}. (insufficient tool messages following tool_calls message)")


def _repeated(call_id: str, index: int) -> Exception:
    return invalid_request(f"Duplicate value for 'tool_call_id' of {call_id} in message[{index}]")


def _without_header(content: Content) -> Content:
    """Content without a billing header; that stands before the first image if anywhere."""
    first, *rest = content.parts
    return content.with_parts([rules.without_billing_header(first), *rest])
