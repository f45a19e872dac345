"""What was said so far, as frozen records.

Decides which messages, tools and answer formats exist. Never spells a prompt and never checks
whether a conversation makes sense: a renderer accepts any order. In: plain Python values.
Out: `Conversation` and the records it holds.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

TOOL_CHOICES = ("auto", "none", "required")
REASONING_EFFORTS = ("low", "high", "xhigh", "max")


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """One call made by the assistant; `arguments` is its raw text (JSON if well formed)."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True)
class ToolDefinition:
    """One tool on offer; `parameters` is a JSON schema as Python values."""

    name: str
    description: str | None = None
    parameters: Any = None
    strict: bool | None = None
    defer_loading: bool = False


@dataclasses.dataclass(frozen=True)
class UrlImageSource:
    """An image to fetch."""

    url: str
    detail: str = "high"
    path: str = dataclasses.field(default="", kw_only=True)
    kind: ClassVar[str] = "url"
    data_url: ClassVar[None] = None


@dataclasses.dataclass(frozen=True)
class DataUrlImageSource:
    """An image inside the request, as a data URL."""

    data_url: str
    detail: str = "high"
    path: str = dataclasses.field(default="", kw_only=True)
    kind: ClassVar[str] = "data_url"
    url: ClassVar[None] = None


@dataclasses.dataclass(frozen=True)
class BytesImageSource:
    """An image as raw bytes."""

    data: bytes
    detail: str = "high"
    path: str = dataclasses.field(default="", kw_only=True)
    kind: ClassVar[str] = "bytes"
    url: ClassVar[None] = None
    data_url: ClassVar[None] = None


ImageSource = UrlImageSource | DataUrlImageSource | BytesImageSource


def _tuple(record: object, name: str) -> None:
    """Stores a list given for a frozen record's field as a tuple (None becomes empty)."""
    object.__setattr__(record, name, tuple(getattr(record, name) or ()))


def _check_image_token(image_token: str | None) -> None:
    if image_token == "":
        raise ValueError("image_token must not be empty")


@dataclasses.dataclass(frozen=True)
class SystemMessage:
    """Instructions; `tools` announces changed tool schemas from here on.

    The first `len(image_sources)` occurrences of `image_token` (default: the image control string)
    in the content are image placeholders. The same holds for users and tools.
    """

    content: str
    image_sources: tuple[ImageSource, ...] = ()
    tools: tuple[ToolDefinition, ...] | None = None
    image_token: str | None = dataclasses.field(default=None, kw_only=True)
    role: ClassVar[str] = "system"

    def __post_init__(self) -> None:
        _check_image_token(self.image_token)
        _tuple(self, "image_sources")
        if self.tools is not None:
            _tuple(self, "tools")


@dataclasses.dataclass(frozen=True)
class UserMessage:
    """What the user said."""

    content: str
    image_sources: tuple[ImageSource, ...] = ()
    image_token: str | None = dataclasses.field(default=None, kw_only=True)
    role: ClassVar[str] = "user"

    def __post_init__(self) -> None:
        _check_image_token(self.image_token)
        _tuple(self, "image_sources")


@dataclasses.dataclass(frozen=True)
class AssistantMessage:
    """What the assistant said; a `prefix` is an unfinished turn that the model continues."""

    content: str
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    prefix: bool = False
    role: ClassVar[str] = "assistant"

    def __post_init__(self) -> None:
        if self.tool_calls is not None:
            _tuple(self, "tool_calls")


@dataclasses.dataclass(frozen=True)
class ToolMessage:
    """What a tool returned for the call with this id."""

    content: str
    tool_call_id: str | None = None
    image_sources: tuple[ImageSource, ...] = ()
    image_token: str | None = dataclasses.field(default=None, kw_only=True)
    role: ClassVar[str] = "tool"

    def __post_init__(self) -> None:
        _check_image_token(self.image_token)
        _tuple(self, "image_sources")


@dataclasses.dataclass(frozen=True)
class LatestReminderMessage:
    """A reminder placed directly before the answer."""

    content: str
    role: ClassVar[str] = "latest_reminder"


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage | LatestReminderMessage


@dataclasses.dataclass(frozen=True)
class Conversation:
    """A whole conversation and how the next turn shall be answered.

    `response_format` is "text" or "json_object" when given; a `response_schema` makes it
    "json_schema" and a `response_regex` makes it "regex".
    """

    messages: tuple[Message, ...]
    _: dataclasses.KW_ONLY
    thinking_mode: bool = True
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: str = "auto"
    reasoning_effort: str | None = None
    response_format: str = "text"
    response_schema: Any = None
    response_regex: str | None = None

    def __post_init__(self) -> None:
        _tuple(self, "messages")
        _tuple(self, "tools")
        schema, regex = self.response_schema is not None, self.response_regex is not None
        derived = "json_schema" if schema else "regex" if regex else None
        if self.response_format not in ("text", "json_object", derived):
            raise ValueError(
                f'invalid response_format "{self.response_format}"; '
                'expected "text" or "json_object"'
            )
        if self.response_format == "json_object" and derived:
            raise ValueError(
                'response_format "json_object" cannot be combined with '
                "response_schema or response_regex"
            )
        if schema and regex:
            raise ValueError("response_schema and response_regex cannot be combined")
        if self.tool_choice not in TOOL_CHOICES:
            raise ValueError(
                f'invalid tool_choice "{self.tool_choice}"; expected "auto", "none", or "required"'
            )
        if self.reasoning_effort not in (None, *REASONING_EFFORTS):
            raise ValueError(
                f'invalid reasoning_effort "{self.reasoning_effort}"; '
                'expected "low", "high", "xhigh", or "max"'
            )
        if derived:
            object.__setattr__(self, "response_format", derived)
