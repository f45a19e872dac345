"""Every `tool_use` of a Messages request must be answered in the very next message.

Decides which order of `tool_use`, `tool_result` and other blocks is allowed, and what is said when
it is broken. Never looks at what a block contains. In: block positions and ids, in the order of the
request. Out: nothing, or a `ConversionError`.
"""

from __future__ import annotations

from collections.abc import Set

from ds_jax.recipe.request import ConversionError, invalid_request


class Pairing:
    """Walks once over a request and remembers the ids that still wait for a result.

    `asked` are the ids of the assistant message before the present one, `missing` those of them
    without a result so far. Both are empty wherever nothing waits.
    """

    __slots__ = ("_asked", "_asker", "_missing")

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._missing: set[str] = set()
        self._asker = 0

    def start(self, message: int, role: str) -> None:
        """A message begins: while results are missing only the user may speak.

        Raises:
          ConversionError: an assistant or system message where results are due.
        """
        if self._missing and role != "user":
            raise _unanswered(f"messages.{message}: ", self._missing)

    def speak(self, message: int, block: int | None = None) -> None:
        """A text, image or document comes; `block` is its number in an assistant message.

        Raises:
          ConversionError: results are missing.
        """
        if self._missing:
            place = f"messages.{message}" if block is None else f"messages.{message}.{block}"
            raise _unanswered(f"{place}: ", self._missing)

    def ask(self, message: int, block: int, tool_use_id: str) -> None:
        """Mutates: notes a `tool_use` block.

        Raises:
          ConversionError: the same message has used this id already.
        """
        if tool_use_id in self._asked:
            raise invalid_request(
                f"messages.{message}.content.{block}: `tool_use` ids must be unique"
            )
        self._asked.add(tool_use_id)
        self._missing.add(tool_use_id)
        self._asker = message

    def answer(self, message: int, block: int, tool_use_id: str) -> None:
        """Mutates: notes a `tool_result` block.

        Raises:
          ConversionError: nobody asked, or the result was given before.
        """
        if tool_use_id not in self._asked:
            raise invalid_request(
                f"unexpected `messages.{message}.content.{block}: tool_use_id` found in "
                f"`tool_result` blocks: {tool_use_id}. Each `tool_result` block must have a "
                "corresponding `tool_use` block in the previous message."
            )
        if tool_use_id not in self._missing:
            raise invalid_request(
                f"messages.{message}.content.{block}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {tool_use_id}"
            )
        self._missing.discard(tool_use_id)

    def end_user(self) -> None:
        """Mutates: a user message ends, and with it the time for results.

        Raises:
          ConversionError: results are missing.
        """
        self.finish()
        if self._asked:
            self._asked = set()

    def finish(self) -> None:
        """The request ends.

        Raises:
          ConversionError: results are missing.
        """
        if self._missing:
            raise _unanswered(f"messages.{self._asker}:", self._missing)


def _unanswered(location: str, missing: Set[str]) -> ConversionError:
    ids = ", ".join(sorted(missing))  # by code point, which is the order of UTF-8 bytes
    return invalid_request(
        f"{location}`tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )
