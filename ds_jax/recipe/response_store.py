"""Responses that are kept so that a later request can continue them.

Decides what is kept of a response and how a chain of them becomes input items again. Never decides
where it is kept: the caller injects a `ResponseStore`. In: a response id. Out: input items.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Protocol, TypeAlias

JsonObject: TypeAlias = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredResponse:
    """One turn: what the request added and what the model answered.

    Args:
      previous_response_id: the turn before this one; None: this is the first.
      items: input items of the request, then output items of the response, as JSON values. An
        output item is also a valid input item.
    """

    previous_response_id: str | None
    items: tuple[JsonObject, ...]


class ResponseStore(Protocol):
    """Where responses are kept; given to `ConversionOptions.with_response_store`."""

    def get(self, response_id: str) -> StoredResponse | None:
        """The kept response, or None if it is not there."""
        ...

    def put(self, response_id: str, response: StoredResponse) -> None:
        """Keeps a response under its id."""
        ...


class MemoryResponseStore:
    """Keeps the latest responses in memory, for one process and for tests.

    Args:
      max_responses: the least recently used one goes when there are more.
    """

    def __init__(self, max_responses: int = 1000) -> None:
        if max_responses < 1:
            raise ValueError(f"{max_responses=}: at least one response must fit")
        self._max_responses = max_responses
        self._responses: collections.OrderedDict[str, StoredResponse] = collections.OrderedDict()

    def get(self, response_id: str) -> StoredResponse | None:
        """The kept response, or None; it counts as used."""
        response = self._responses.get(response_id)
        if response is not None:
            self._responses.move_to_end(response_id)
        return response

    def put(self, response_id: str, response: StoredResponse) -> None:
        """Mutates: keeps a response and drops the least recently used one beyond the limit."""
        self._responses[response_id] = response
        self._responses.move_to_end(response_id)
        if len(self._responses) > self._max_responses:
            self._responses.popitem(last=False)


def earlier_items(store: ResponseStore, response_id: str) -> list[JsonObject] | None:
    """Items of a response and of all turns before it, oldest first.

    Returns:
      The items, or None if a turn of the chain is missing (or the chain bites its own tail).
    """
    turns: list[StoredResponse] = []
    seen: set[str] = set()
    next_id: str | None = response_id
    while next_id is not None:
        turn = None if next_id in seen else store.get(next_id)
        if turn is None:
            return None
        seen.add(next_id)
        turns.append(turn)
        next_id = turn.previous_response_id
    return [item for turn in reversed(turns) for item in turn.items]
