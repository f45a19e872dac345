"""Compiles grammars beside the engine.

Decides who waits for a grammar, for how long, and which grammars are kept. Never blocks its caller.
In: kind, text, options. Out: a `Pending` that holds a `Grammar` or a `RequestError` later.

Equal requests share one compilation. A compilation that takes too long is given up by those who
wait for it; its thread goes on until the library's own limits end it, which is why sizes are
checked before.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable
from concurrent import futures
from typing import Any

from ds_jax import errors
from ds_jax.grammar_request import GrammarRequest
from ds_jax.structured import kinds
from ds_jax.structured.grammar import Grammar
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import refused
from ds_jax.structured.vocabulary import Vocabulary


class Pending:
    """A grammar that is being compiled.

    Args:
      kind: what it is compiled from.
      future: the compilation, shared by equal requests.
      deadline_s: tells when this request gives up, on `clock`.
      limit_s: how long that is, for the message.
      clock: seconds.
    """

    def __init__(
        self,
        kind: str,
        future: futures.Future[Grammar],
        deadline_s: Callable[[], float],
        limit_s: float,
        clock: Callable[[], float],
    ):
        self._kind = kind
        self._future = future
        self._deadline_s = deadline_s
        self._limit_s = limit_s
        self._clock = clock

    def poll(self) -> Grammar | None:
        """The grammar, or None while it is not ready; never waits.

        Raises:
          RequestError: it was refused, or it took too long.
        """
        if self._future.done():
            return self._future.result()
        if self._clock() >= self._deadline_s():
            raise self._late()
        return None

    def result(self) -> Grammar:
        """Waits for the grammar.

        Raises:
          RequestError: as `poll`.
        """
        while True:
            left = self._deadline_s() - self._clock()
            try:  # not for longer than a second: the deadline may move
                return self._future.result(max(0.0, min(left, 1.0)))
            except futures.TimeoutError:
                if self._future.done():
                    return self._future.result()
                if left <= 0:
                    raise self._late() from None

    def _late(self) -> errors.RequestError:
        return refused(self._kind, f"not compiled within {self._limit_s:g} s; simplify the grammar")


class Compiler:
    """A few threads and a cache. Every method mutates it and may be called from any thread.

    Args:
      vocabulary: whose tokens are constrained, or what makes it: called once, on a thread of the
        pool, when the first grammar asks for it.
      limits: of each grammar.
      workers: threads that compile.
      kept_grammars: the cache holds as many, those used last.
      kept_bytes: and as much text.
      most_waiting: compilations that may wait for a thread; further ones are refused at once.
      clock: seconds.
    """

    def __init__(
        self,
        vocabulary: Vocabulary | Callable[[], Vocabulary],
        limits: Limits | None = None,
        *,
        workers: int = 2,
        kept_grammars: int = 512,
        kept_bytes: int = 32 * 2**20,
        most_waiting: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ):
        made = (lambda: vocabulary) if isinstance(vocabulary, Vocabulary) else vocabulary
        self._vocabulary = functools.cache(made)
        self._prepared_s = -math.inf if isinstance(vocabulary, Vocabulary) else math.inf
        self._preparing = threading.Lock()
        self._limits = limits or Limits()
        self._pool = futures.ThreadPoolExecutor(workers, thread_name_prefix="grammar")
        self._kept_grammars = kept_grammars
        self._kept_bytes = kept_bytes
        self._most_waiting = most_waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: collections.OrderedDict[bytes, tuple[int, Grammar]] = collections.OrderedDict()
        self._running: dict[bytes, futures.Future[Grammar]] = {}
        self._bytes = 0

    def vocabulary(self) -> Vocabulary:
        """Whose tokens are constrained; the first call prepares them."""
        with self._preparing:
            found = self._vocabulary()
            self._prepared_s = min(self._prepared_s, self._clock())
            return found

    def submit(self, kind: str, text: str, **options: Any) -> Pending:
        """Starts a compilation, or finds one that runs or is kept.

        Raises:
          RequestError: too many compilations wait, or the text is too long to be looked at.
        """
        if len(text) > self._limits.text_bytes:
            raise refused(kind, f"{len(text)} characters; at most {self._limits.text_bytes} bytes")
        key = _key(kind, text, options)
        asked_s = self._clock()

        def deadline_s() -> float:
            """The time of preparing the vocabulary is not the grammar's."""
            return max(asked_s, self._prepared_s) + self._limits.seconds

        started: futures.Future[Grammar] | None = None
        with self._lock:
            future = self._find(key)
            if future is None:
                if len(self._running) >= self._most_waiting:
                    raise errors.RequestError(
                        f"{len(self._running)} grammars are being compiled; try again later",
                        status=503,
                        param=kind,
                        code="overloaded",
                    )
                future = self._pool.submit(self._compile, kind, text, options, deadline_s)
                self._running[key] = started = future
        if started is not None:  # outside the lock: it may be done already, and calls at once
            started.add_done_callback(lambda done: self._keep(key, len(text), done))
        return Pending(kind, future, deadline_s, self._limits.seconds, self._clock)

    def submit_request(self, request: GrammarRequest) -> Pending:
        """The same for a parsed request; its trigger is the matcher's."""
        return self.submit(request.kind, request.text, **dict(request.options))

    def close(self) -> None:
        """Drops what waits; what runs is waited for."""
        self._pool.shutdown(cancel_futures=True)

    def _compile(
        self, kind: str, text: str, options: dict[str, Any], deadline_s: Callable[[], float]
    ) -> Grammar:
        vocabulary = self.vocabulary()
        if self._clock() >= deadline_s():  # whoever asked has given up
            raise refused(kind, "not compiled in time; try again later")
        return kinds.compile(kind, text, vocabulary, limits=self._limits, **options)

    def _find(self, key: bytes) -> futures.Future[Grammar] | None:
        running = self._running.get(key)
        if running is not None or key not in self._ready:
            return running
        self._ready.move_to_end(key)
        future: futures.Future[Grammar] = futures.Future()
        future.set_result(self._ready[key][1])
        return future

    def _keep(self, key: bytes, size: int, done: futures.Future[Grammar]) -> None:
        with self._lock:
            self._running.pop(key, None)
            if done.cancelled() or done.exception() is not None:
                return
            self._ready[key] = (size, done.result())
            self._bytes += size
            while len(self._ready) > self._kept_grammars or self._bytes > self._kept_bytes:
                _, (dropped, _) = self._ready.popitem(last=False)
                self._bytes -= dropped


def _key(kind: str, text: str, options: dict[str, Any]) -> bytes:
    spelled = json.dumps([kind, text, options], sort_keys=True, default=repr)
    return hashlib.sha256(spelled.encode("utf-8", "backslashreplace")).digest()
