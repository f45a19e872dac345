"""Compiled programs by key: built once each, in the background where that is asked for.

Decides when a program is built and that nobody builds it twice. Never knows what a program is. In:
keys. Out: programs. Any thread may ask.

Compiling holds the interpreter for a small part of its time only, so several programs are built
side by side.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Program = TypeVar("Program")

BUILDERS = min(4, os.cpu_count() or 1)


class Programs(Generic[Key, Program]):
    """Programs of keys. A build that fails raises where its program is got, and is tried again.

    Args:
      build: makes the program of a key; runs in another thread, several at once.
    """

    def __init__(self, build: Callable[[Key], Program]):
        self.waited_s = 0.0  # of callers, for programs
        self._build = build
        self._futures: dict[Key, Future[Program]] = {}
        self._ready: dict[Key, Program] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(BUILDERS, thread_name_prefix="programs")

    def __len__(self) -> int:
        return len(self._ready)

    def ask(self, keys: Iterable[Key]) -> None:
        """Starts building programs that are not there yet."""
        for key in keys:
            if key not in self._ready:
                self._future(key)

    def is_ready(self, key: Key) -> bool:
        """Whether `get` returns at once."""
        return key in self._ready

    def get(self, key: Key) -> Program:
        """The program of a key; builds it, or waits for it."""
        found = self._ready.get(key)
        if found is not None:
            return found
        start = time.perf_counter()
        try:
            return self._future(key).result()
        finally:
            with self._lock:
                self.waited_s += time.perf_counter() - start

    def _future(self, key: Key) -> Future[Program]:
        with self._lock:
            if key not in self._futures:
                self._futures[key] = self._pool.submit(self._make, key)
            return self._futures[key]

    def _make(self, key: Key) -> Program:
        try:
            program = self._build(key)
        except BaseException:
            with self._lock:
                del self._futures[key]
            raise
        self._ready[key] = program
        return program
