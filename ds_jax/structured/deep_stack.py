"""Runs a function on a thread with a large stack.

Decides the size. Never runs two functions on one thread. In: a function. Out: its result.

The library compiles by recursion and its stack has no guard: a chain of some hundred definitions
ends the whole process on a usual stack of 8 MiB. The pages of a stack cost memory only when they
are used; 512 MiB hold what `limits.Limits` lets through (20,000 nested definitions took less).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Result = TypeVar("_Result")
STACK_BYTES = 512 * 2**20
_SETTING = threading.Lock()


def run(function: Callable[[], _Result]) -> _Result:
    """The function's result, or its exception; waits for it."""
    job = _Job(function)
    thread = threading.Thread(target=job.run, name="grammar-stack", daemon=True)
    with _SETTING:  # the size is one for the process, read when a thread starts
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    return job.result()


class _Job(Generic[_Result]):
    """A function and what came of it. Mutates itself."""

    def __init__(self, function: Callable[[], _Result]):
        self._function = function
        self._results: list[_Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._results.append(self._function())
        except BaseException as error:  # a panic of the library is no Exception
            self._error = error

    def result(self) -> _Result:
        if self._error is not None:
            if isinstance(self._error, Exception):
                raise self._error
            raise RuntimeError(f"the library failed: {self._error}") from self._error
        return self._results[0]
