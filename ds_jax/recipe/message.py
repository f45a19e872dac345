"""The messages of a conversation.

Decides which roles exist, what a message of each role carries, and where the images of its text
stand. Never decides whether an order of messages makes sense. In: texts, calls, image sources. Out:
frozen records.

Places of images are kept as positions: `parts` is the text between them. The same spelling typed
anywhere else is text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from ds_jax.recipe import arguments
from ds_jax.recipe.image_source import ImageSource
from ds_jax.recipe.quoting import quoted
from ds_jax.recipe.special_tokens import SpecialToken
from ds_jax.recipe.tool import ToolCall, ToolDefinition

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "latest_reminder"]
_IMAGE = SpecialToken.Image.default_str()
T = TypeVar("T", "SystemMessage", "UserMessage", "ToolMessage")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class Message:
    """What someone said; one of the subclasses.

    Properties a role has no use for read as None, False or an empty list.
    """

    content: str
    """The text; images stand in it as the image token."""
    reasoning_content: str | None
    """What the assistant thought before its answer."""
    tool_call_id: str | None
    """The call a tool message answers."""
    prefix: bool
    """Whether this assistant message is unfinished and the model continues it."""
    parts: tuple[str, ...]
    """The text before, between and after the places of images."""
    image_token: str
    """How the places of images are spelled in `content`."""
    _image_sources: tuple[ImageSource, ...]
    _tool_calls: tuple[ToolCall, ...] | None
    role: ClassVar[Role]

    def __init__(self) -> None:
        raise TypeError(f"cannot create '{type(self).__name__}' instances; use one of its roles")

    @property
    def tool_calls(self) -> list[ToolCall] | None:
        """The calls of an assistant message, as a new list."""
        return None if self._tool_calls is None else list(self._tool_calls)

    @property
    def image_sources(self) -> list[ImageSource]:
        """The images of the message in order, as a new list."""
        return list(self._image_sources)

    def _fill(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_call_id: str | None = None,
        prefix: bool = False,
        tool_calls: tuple[ToolCall, ...] | None = None,
        image_sources: Sequence[ImageSource] | None = None,
        image_token: str | None = None,
    ) -> None:
        """Sets every field, once. Mutates itself."""
        store = object.__setattr__
        store(self, "content", content)
        store(self, "reasoning_content", reasoning_content)
        store(self, "tool_call_id", tool_call_id)
        store(self, "prefix", prefix)
        store(self, "_tool_calls", tool_calls)
        sources = ()
        if image_sources is not None:
            sources = arguments.records("image_sources", image_sources, ImageSource)
        token = arguments.optional_text("image_token", image_token)
        if token == "":
            raise ValueError("image_token must not be empty")
        token = token or _IMAGE
        store(self, "image_token", token)
        store(self, "_image_sources", sources)
        store(self, "parts", tuple(content.split(token, len(sources))) if sources else (content,))


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class SystemMessage(Message):
    """Instructions; `tools` announces changed tool schemas from here on.

    The first `len(image_sources)` occurrences of `image_token` in the content are the places of the
    images; later ones are text, and sources without a place stay attached. The same holds for user
    and tool messages. `image_token` defaults to the image token's default spelling.
    """

    _tools: tuple[ToolDefinition, ...] | None
    role: ClassVar[Role] = "system"

    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content = arguments.text("content", content)
        self._fill(content, image_sources=image_sources, image_token=image_token)
        if tools is not None:
            tools = arguments.records("tools", tools, ToolDefinition)
        object.__setattr__(self, "_tools", tools)

    @property
    def tools(self) -> list[ToolDefinition] | None:
        """The announced tools, as a new list."""
        return None if self._tools is None else list(self._tools)

    def __repr__(self) -> str:
        return f"SystemMessage({quoted(self.content)})"


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class UserMessage(Message):
    """What the user said; images as in `SystemMessage`."""

    role: ClassVar[Role] = "user"

    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content = arguments.text("content", content)
        self._fill(content, image_sources=image_sources, image_token=image_token)

    def __repr__(self) -> str:
        return f"UserMessage({quoted(self.content)}, image_sources={len(self._image_sources)})"


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class AssistantMessage(Message):
    """What the assistant said; with `prefix` an unfinished turn that the model continues."""

    role: ClassVar[Role] = "assistant"

    def __init__(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_calls: Sequence[ToolCall] | None = None,
        prefix: bool = False,
    ) -> None:
        content = arguments.text("content", content)
        reasoning_content = arguments.optional_text("reasoning_content", reasoning_content)
        if tool_calls is not None:
            tool_calls = arguments.records("tool_calls", tool_calls, ToolCall)
        prefix = arguments.flag("prefix", prefix)
        self._fill(content, reasoning_content, prefix=prefix, tool_calls=tool_calls)

    def __repr__(self) -> str:
        return (
            f"AssistantMessage({quoted(self.content)}, "
            f"reasoning_content={self.reasoning_content is not None}, "
            f"tool_calls={len(self._tool_calls or ())}, prefix={self.prefix})"
        )


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ToolMessage(Message):
    """What a tool returned for the call with this id; images as in `SystemMessage`."""

    role: ClassVar[Role] = "tool"

    def __init__(
        self,
        content: str,
        tool_call_id: str | None = None,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        content = arguments.text("content", content)
        tool_call_id = arguments.optional_text("tool_call_id", tool_call_id)
        self._fill(
            content,
            tool_call_id=tool_call_id,
            image_sources=image_sources,
            image_token=image_token,
        )

    def __repr__(self) -> str:
        call_id = "None" if self.tool_call_id is None else f"Some({quoted(self.tool_call_id)})"
        return (
            f"ToolMessage({quoted(self.content)}, tool_call_id={call_id}, "
            f"image_sources={len(self._image_sources)})"
        )


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class LatestReminderMessage(Message):
    """A reminder placed directly before the answer."""

    role: ClassVar[Role] = "latest_reminder"

    def __init__(self, content: str) -> None:
        self._fill(arguments.text("content", content))

    def __repr__(self) -> str:
        return f"LatestReminderMessage({quoted(self.content)})"


def with_places(message: T, parts: Sequence[str], image_token: str) -> T:
    """The same message with its images at given places.

    Args:
      message: its content and places are replaced; everything else stays.
      parts: the text before, between and after the places.
      image_token: how the places are spelled in `content`; may be empty.

    Returns:
      A new message; the same spelling inside a part stays text.
    """
    placed: Any = object.__new__(type(message))
    for kind in (Message, type(message)):
        for name in kind.__slots__:
            object.__setattr__(placed, name, getattr(message, name))
    object.__setattr__(placed, "content", image_token.join(parts))
    object.__setattr__(placed, "parts", tuple(parts))
    object.__setattr__(placed, "image_token", image_token)
    return placed
