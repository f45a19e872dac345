"""Stored states of sequences at page borders: the part of a prefix that pages do not hold.

Decides which stored state is overwritten first. Never touches a state: a handle is a number that
the device side gives meaning to. In: keys of pages. Out: handles.

A state is the window rings and compressor tails right behind a page's last token; its key is the
key of that page. A handle is reserved when the copy is planned and bound when the key is known.
States are copied in the order of plans, so a handle may be reserved again while a copy from it is
still to run.

Most states are the end of a prompt that nobody sends again. So those from which a sequence has
started are kept apart, up to half of the budget: they are overwritten when no other is left.
"""

from __future__ import annotations

import collections


class SnapshotStore:
    """Handles with a budget. Every method but `find` and `check_integrity` mutates it.

    Args:
      capacity: states that can be stored; handles are numbered from 0.
    """

    def __init__(self, capacity: int):
        assert capacity >= 0, f"capacity={capacity}: must not be negative"
        self.capacity = capacity
        self.evictions = 0
        self._free = list(range(capacity - 1, -1, -1))
        self._reserved: set[int] = set()
        self._handles: collections.OrderedDict[bytes, int] = collections.OrderedDict()
        self._proven: collections.OrderedDict[bytes, int] = collections.OrderedDict()

    def __len__(self) -> int:
        """States that can be found."""
        return len(self._handles) + len(self._proven)

    @property
    def reserved(self) -> int:
        """Handles that are promised to a copy whose key is not known yet."""
        return len(self._reserved)

    def find(self, key: bytes) -> int | None:
        """The handle of a state, or None."""
        handle = self._proven.get(key)
        return self._handles.get(key) if handle is None else handle

    def use(self, key: bytes) -> int:
        """The handle of a stored state that a sequence starts from; the last to be overwritten."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            self._proven[key] = handle
        self._proven.move_to_end(key)
        handle = self._proven[key]
        if len(self._proven) > max(1, self.capacity // 2):
            oldest, other = self._proven.popitem(last=False)
            self._handles[oldest] = other
        return handle

    def keep(self, key: bytes) -> None:
        """Puts a state behind all others that no sequence has started from, if it is there."""
        if key in self._handles:
            self._handles.move_to_end(key)

    def reserve(self) -> int | None:
        """A handle to copy to; overwrites the state used longest ago. None without a budget."""
        if not self._free:
            states = self._handles or self._proven
            if not states:
                return None
            _, handle = states.popitem(last=False)
            self._free.append(handle)
            self.evictions += 1
        handle = self._free.pop()
        self._reserved.add(handle)
        return handle

    def bind(self, handle: int, key: bytes, *, likely: bool = True) -> None:
        """Makes a reserved handle findable; one that the key already has is kept instead.

        Args:
          likely: False: overwrite it first, it was taken only because it cost little.
        """
        self._reserved.remove(handle)
        if self.find(key) is not None:
            self._free.append(handle)
            return
        self._handles[key] = handle
        if not likely:
            self._handles.move_to_end(key, last=False)

    def cancel(self, handle: int) -> None:
        """Gives a reserved handle back."""
        self._reserved.remove(handle)
        self._free.append(handle)

    def forget(self, key: bytes) -> None:
        """Drops the state of a key, if there is one."""
        for states in (self._handles, self._proven):
            handle = states.pop(key, None)
            if handle is not None:
                self._free.append(handle)

    def check_integrity(self) -> None:
        """Asserts that every handle is in exactly one place."""
        stored = [*self._handles.values(), *self._proven.values()]
        everywhere = [*self._free, *self._reserved, *stored]
        assert sorted(everywhere) == list(range(self.capacity)), f"handles {everywhere}"
