"""The control strings of a V4.1 prompt.

Decides which strings are control tokens and how they are spelled. Never assigns token ids: a
tokenizer file does. In: optional spellings. Out: a frozen table of names and strings.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """Spelling of every control token; each can be replaced."""

    bos: str = "<｜begin▁of▁sentence｜>"
    eos: str = "<｜end▁of▁sentence｜>"
    thinking_start: str = "<think>"
    thinking_end: str = "</think>"
    system: str = "<｜System｜>"
    user: str = "<｜User｜>"
    assistant: str = "<｜Assistant｜>"
    latest_reminder: str = "<｜latest_reminder｜>"
    dsml: str = "｜DSML｜"
    image: str = "<｜image｜>"
    ref: str = "<｜ref｜>"
    ref_end: str = "<｜/ref｜>"
    box: str = "<｜box｜>"
    box_end: str = "<｜/box｜>"
    point: str = "<｜point｜>"
    point_end: str = "<｜/point｜>"
    polygon: str = "<｜polygon｜>"
    polygon_end: str = "<｜/polygon｜>"

    def items(self) -> list[tuple[str, str]]:
        """(field name, spelling) in declaration order."""
        return [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]
