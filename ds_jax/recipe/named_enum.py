"""Enumerations as the deepseek-recipe library shows them.

Decides their text and their number. In: members with numbers as values. Out: the base class.
"""

from __future__ import annotations

import enum


class NamedEnum(enum.Enum):
    """An enumeration that shows as `ModelVersion.DeepseekV4Pro` and converts to its number."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __int__(self) -> int:
        return self.value
