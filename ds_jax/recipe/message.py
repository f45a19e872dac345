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
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from ds_jax.recipe import arguments
from ds_jax.recipe.image_source import ImageSource
from ds_jax.recipe.quoting import quoted
from ds_jax.recipe.special_tokens import SpecialToken
from ds_jax.recipe.tool import ToolCall, ToolDefinition

Role: TypeAlias = Literal["system", "user", "assistant", "tool", "latest_reminder"]
_IMAGE = SpecialToken.Image.default_str()
T = TypeVar("T", "SystemMessage", "UserMessage", "ToolMessage")


class _Images(NamedTuple):
    """The images of one message and where they stand."""

    sources: tuple[ImageSource, ...]
    parts: tuple[str, ...]
    token: str


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
    _tool_calls: tuple[ToolCall, ...] | None
    _images: _Images | None
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
        return [] if self._images is None else list(self._images.sources)

    @property
    def parts(self) -> tuple[str, ...]:
        """The text before, between and after the places of images."""
        return (self.content,) if self._images is None else self._images.parts

    @property
    def image_token(self) -> str:
        """How the places of images are spelled in `content`."""
        return _IMAGE if self._images is None else self._images.token

    def _fill(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_call_id: str | None = None,
        prefix: bool = False,
        tool_calls: tuple[ToolCall, ...] | None = None,
        images: _Images | None = None,
    ) -> None:
        """Sets every field, once. Mutates itself."""
        _store(self, "content", content)
        _store(self, "reasoning_content", reasoning_content)
        _store(self, "tool_call_id", tool_call_id)
        _store(self, "prefix", prefix)
        _store(self, "_tool_calls", tool_calls)
        _store(self, "_images", images)


_store = object.__setattr__


def _images(
    content: str, image_sources: Sequence[ImageSource] | None, image_token: str | None
) -> _Images | None:
    """The images at the first occurrences of the token."""
    if image_sources is None and image_token is None:
        return None
    sources = ()
    if image_sources is not None:
        sources = arguments.records("image_sources", image_sources, ImageSource)
    token = arguments.optional_text("image_token", image_token)
    if token == "":
        raise ValueError("image_token must not be empty")
    token = token or _IMAGE
    return _Images(sources, tuple(content.split(token, len(sources))), token) if sources else None


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
        self._fill(content, images=_images(content, image_sources, image_token))
        if tools is not None:
            tools = arguments.records("tools", tools, ToolDefinition)
        _store(self, "_tools", tools)

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
        self._fill(content, images=_images(content, image_sources, image_token))

    def __repr__(self) -> str:
        return f"UserMessage({quoted(self.content)}, image_sources={len(self.image_sources)})"


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
        self._fill(content, reasoning_content, None, prefix, tool_calls)

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
        images = _images(content, image_sources, image_token)
        self._fill(content, None, tool_call_id, images=images)

    def __repr__(self) -> str:
        call_id = "None" if self.tool_call_id is None else f"Some({quoted(self.tool_call_id)})"
        return (
            f"ToolMessage({quoted(self.content)}, tool_call_id={call_id}, "
            f"image_sources={len(self.image_sources)})"
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
    sources = message.image_sources
    images = _Images(tuple(sources), tuple(parts), image_token) if sources else None
    content = parts[0] if len(parts) == 1 else image_token.join(parts)
    placed: Any = object.__new__(type(message))
    for kind in (Message, type(message)):
        for name in kind.__slots__:
            _store(placed, name, getattr(message, name))
    _store(placed, "content", content)
    _store(placed, "_images", images)
    return placed
