"""The control strings of a prompt.

Decides which strings are control tokens and how they are spelled. Never assigns token ids: a
tokenizer file does. In: optional spellings. Out: a frozen table of names and strings.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe import arguments
from ds_jax.recipe.named_enum import NamedEnum

IMAGE_SPECIAL_TOKEN_ID = 129264
"""Id of the image token in the released V4.1 vocabulary; a tokenizer file decides for itself."""


class SpecialToken(NamedEnum):
    """A kind of control token."""

    Bos = 0
    """Starts a prompt."""
    Eos = 1
    """Ends an assistant turn."""
    ThinkingStart = 2
    """Opens reasoning."""
    ThinkingEnd = 3
    """Closes reasoning."""
    System = 4
    """Opens a system turn (V4.1)."""
    User = 5
    """Opens a user turn."""
    Assistant = 6
    """Opens an assistant turn."""
    LatestReminder = 7
    """Opens a reminder."""
    Dsml = 8
    """Stands inside the tags of tool calls."""
    Image = 9
    """Stands for one image."""
    Ref = 10
    RefEnd = 11
    Box = 12
    BoxEnd = 13
    Point = 14
    PointEnd = 15
    Polygon = 16
    PolygonEnd = 17

    def default_str(self) -> str:
        """The spelling used unless another one is given."""
        return _DEFAULTS[self.field]

    @property
    def field(self) -> str:
        """Name of this token among the arguments of `SpecialTokens`."""
        return _FIELDS[self.value]


_DEFAULTS = {
    "bos": "<｜begin▁of▁sentence｜>",
    "eos": "<｜end▁of▁sentence｜>",
    "thinking_start": "<think>",
    "thinking_end": "</think>",
    "system": "<｜System｜>",
    "user": "<｜User｜>",
    "assistant": "<｜Assistant｜>",
    "latest_reminder": "<｜latest_reminder｜>",
    "dsml": "｜DSML｜",
    "image": "<｜image｜>",
    "ref": "<｜ref｜>",
    "ref_end": "<｜/ref｜>",
    "box": "<｜box｜>",
    "box_end": "<｜/box｜>",
    "point": "<｜point｜>",
    "point_end": "<｜/point｜>",
    "polygon": "<｜polygon｜>",
    "polygon_end": "<｜/polygon｜>",
}
_FIELDS = tuple(_DEFAULTS)


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class SpecialTokens:
    """Spelling of every control token; each can be replaced, None keeps the default."""

    bos: str
    eos: str
    thinking_start: str
    thinking_end: str
    system: str
    user: str
    assistant: str
    latest_reminder: str
    dsml: str
    image: str
    ref: str
    ref_end: str
    box: str
    box_end: str
    point: str
    point_end: str
    polygon: str
    polygon_end: str

    def __init__(
        self,
        *,
        bos: str | None = None,
        eos: str | None = None,
        thinking_start: str | None = None,
        thinking_end: str | None = None,
        system: str | None = None,
        user: str | None = None,
        assistant: str | None = None,
        latest_reminder: str | None = None,
        dsml: str | None = None,
        image: str | None = None,
        ref: str | None = None,
        ref_end: str | None = None,
        box: str | None = None,
        box_end: str | None = None,
        point: str | None = None,
        point_end: str | None = None,
        polygon: str | None = None,
        polygon_end: str | None = None,
    ) -> None:
        given = dict(locals())
        for name, default in _DEFAULTS.items():
            value = arguments.optional_text(name, given[name])
            object.__setattr__(self, name, default if value is None else value)

    def token(self, token: SpecialToken) -> str:
        """The spelling of one kind of token.

        Args:
          token: the kind.

        Returns:
          Its spelling in this table; an empty one is never placed in a prompt.

        Raises:
          TypeError: `token` is no `SpecialToken`.
        """
        return getattr(self, arguments.record("token", token, SpecialToken).field)

    def items(self) -> list[tuple[str, str]]:
        """(field name, spelling) in declaration order."""
        return [(name, getattr(self, name)) for name in _FIELDS]
