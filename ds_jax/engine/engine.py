"""A replica that takes requests from any thread or event loop and gives back streams of events.

Decides who may submit, how events find their caller, and when the loop's thread runs, waits and
ends. Never plans. In: requests. Out: streams of `TokenEvent`s, each with exactly one final event.

The loop runs in a thread of its own, started by the first request. Callers only ever put messages
into its inbox; what they get back comes in lists, one a step and caller.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import secrets
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ds_jax.engine import stats
from ds_jax.engine.inbox import Inbox
from ds_jax.engine.loop import Loop
from ds_jax.engine.plan import Cancel, Event, Submit
from ds_jax.engine.stop import Detokenizer
from ds_jax.errors import DsJaxError, RequestError, StepError
from ds_jax.kvcache import explain
from ds_jax.records import FinishReason, GenerateRequest, ImageSpan, TokenEvent

if TYPE_CHECKING:
    from ds_jax.structured.compiler import Compiler

DRAINS = "the engine drains: it takes no more requests; ask another replica"
Answer = TypeVar("Answer")
STUCK_S = 0.002  # how long a loop in which nothing runs waits before it looks at the clock again


class Sink(Protocol):
    """Where the events of some requests go."""

    def deliver(self, events: list[TokenEvent]) -> None:
        """Takes events in order; called by the engine's thread, must not wait."""
        ...


class Engine:
    """The front of one replica. Its methods may be called from any thread.

    Args:
      loop: the replica; from now on only the engine's thread touches it.
      detokenizer: makes a new one, for requests with stop strings; None: there is no tokenizer.
      grammars: compiles what constrained requests follow; None: there is no tokenizer.
    """

    def __init__(
        self,
        loop: Loop,
        detokenizer: Callable[[], Detokenizer] | None = None,
        grammars: Compiler | None = None,
    ):
        self._worker = _Worker(loop)
        self._detokenizer = detokenizer
        self._grammars = grammars
        self._mailboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Mailbox]
        self._mailboxes = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        # runs at the latest when the interpreter ends: a thread inside the runtime must not be then
        self._close = weakref.finalize(self, self._worker.stop)

    def submit(self, request: GenerateRequest, seed: int | None = None) -> Stream:
        """Sends a request off; to be called inside an event loop.

        Args:
          seed: of its draws; None: that of its parameters, or a drawn one.

        Returns: its events as they come; leaving the stream before its end aborts the request.
        Raises:
          RequestError: its id is that of a request under way, the model has no such token, the
            replica cannot sample as asked, or the engine takes no more.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            mailbox = self._mailboxes.setdefault(loop, _Mailbox(loop, self._worker.abort))
        events = mailbox.open(request.request_id)
        try:
            self._send(request, seed, mailbox)
        except RequestError:
            mailbox.close(request.request_id, events)
            raise
        return Stream(request.request_id, events, self.abort)

    def run(
        self, requests: Iterable[GenerateRequest], seeds: Iterable[int | None] | None = None
    ) -> Iterator[TokenEvent]:
        """Sends requests off and yields their events, blocking, sequences interleaved.

        Leaving the iterator before its end aborts what is left.

        Raises: RequestError as `submit` does; what was sent before is aborted.
        """
        sink = _Queue()
        left: set[str] = set()
        try:
            chosen = iter(seeds) if seeds is not None else None
            for request in requests:
                self._send(request, None if chosen is None else next(chosen), sink)
                left.add(request.request_id)
            while left:
                for event in sink.events.get():
                    if event.finish_reason is not None:
                        left.discard(event.request_id)
                    yield event
        finally:
            for name in left:
                self.abort(name)

    def abort(self, request_id: str) -> None:
        """Ends a request with the next step; its final event says `cancelled`. Unknown ids: no."""
        self._worker.abort(request_id)

    async def drain(self) -> None:
        """Takes no more requests and waits until those under way have ended."""
        await asyncio.to_thread(self.wait_until_drained)

    def wait_until_drained(self, timeout_s: float | None = None) -> bool:
        """The same for callers that may block; False: some are still under way."""
        self._worker.drain()
        return self._worker.idle.wait(timeout_s)

    def resume(self) -> None:
        """Takes requests again after a drain; an engine that is closed or has failed stays so."""
        self._worker.draining = False

    def close(self) -> None:
        """Cancels what is under way and ends the thread; nothing can be submitted afterwards."""
        self._close()

    @property
    def failure(self) -> str | None:
        """Why the engine will never run anything again: it failed or is closed; None: it can."""
        return self._worker.over

    def stats(self) -> dict[str, int | float]:
        """Numbers now and since the start: `stats.read`, and medians of the newest steps."""
        loop = self._worker.loop
        drafts = {} if loop.speculation is None else loop.speculation.stats()
        return {**stats.read(loop.scheduler), **loop.log.read(), **drafts}

    def explain_miss(
        self, token_ids: list[int], tenant: str = "", images: Iterable[ImageSpan] = ()
    ) -> explain.Miss:
        """Why a prompt is not in the prefix cache. For operators; waits for a turn of the loop."""
        spans = tuple(images)

        def ask() -> explain.Miss:
            return stats.explain_miss(self._worker.loop.scheduler, token_ids, tenant, spans)

        return self._worker.ask(ask)

    def _send(self, request: GenerateRequest, seed: int | None, sink: Sink) -> None:
        self._worker.loop.check(request, has_grammars=self._grammars is not None)
        params = request.params
        if seed is None:
            seed = secrets.randbits(64) if params.seq_seed is None else params.seq_seed
        detokenizer = None
        if params.stop and self._detokenizer is not None:
            detokenizer = self._detokenizer()
        grammar = None
        if params.grammar is not None and self._grammars is not None:
            grammar = self._grammars.submit_request(params.grammar)
        self._worker.submit(Submit(request, seed, detokenizer, grammar), sink)


class Stream:
    """Events of one request, in order; the last one has a finish reason."""

    def __init__(
        self,
        request_id: str,
        events: Inbox,
        abort: Callable[[str], None],
    ):
        self.request_id = request_id
        self._events = events
        self._abort = abort

    def __aiter__(self) -> AsyncIterator[TokenEvent]:
        return self

    async def __anext__(self) -> TokenEvent:
        event = await self._events.one()
        if event is None:
            raise StopAsyncIteration
        return event

    async def batch(self) -> list[TokenEvent]:
        """Every event that is there, at least one; empty behind the last one."""
        return await self._events.batch()

    async def rest(self) -> list[TokenEvent]:
        """Every event up to the last one, once that is there; wakes up once."""
        return await self._events.rest()

    @property
    def backlog(self) -> int:
        """Events that wait to be read."""
        return len(self._events)

    async def aclose(self) -> None:
        """Aborts the request, if it has not ended."""
        if not self._events.ended:
            self._abort(self.request_id)
            self._events.ended = True

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self):
        if not self._events.ended:
            self._abort(self.request_id)


class _Queue:
    """The sink of a blocking caller."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[list[TokenEvent]] = queue.SimpleQueue()

    def deliver(self, events: list[TokenEvent]) -> None:
        self.events.put(events)


class _Mailbox:
    """The sink of an event loop: one wake-up a step, however many streams it has."""

    def __init__(self, loop: asyncio.AbstractEventLoop, abort: Callable[[str], None]):
        # the engine must not keep a loop alive; the loop keeps its mailbox by the streams
        self._loop = weakref.ref(loop)
        self._abort = abort
        self._streams: dict[str, Inbox] = {}

    def open(self, request_id: str) -> Inbox:
        if request_id in self._streams:
            raise _taken(request_id)
        return self._streams.setdefault(request_id, Inbox())

    def close(self, request_id: str, events: Inbox) -> None:
        if self._streams.get(request_id) is events:
            del self._streams[request_id]

    def deliver(self, events: list[TokenEvent]) -> None:
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError("the event loop is gone")
            loop.call_soon_threadsafe(self._spread, events)
        except RuntimeError:  # closed: nobody can read
            for event in events:
                if event.finish_reason is None:
                    self._abort(event.request_id)
                else:
                    self._streams.pop(event.request_id, None)

    def _spread(self, events: list[TokenEvent]) -> None:
        for event in events:
            stream = self._streams[event.request_id]
            if event.finish_reason is not None:
                del self._streams[event.request_id]
            stream.put(event)


class _Worker:
    """The thread, its inbox, and who gets the events of which request."""

    def __init__(self, loop: Loop):
        self.loop = loop
        self.draining = False
        self.over: str | None = None  # why it will never run anything again
        self.idle = threading.Event()
        self.idle.set()
        self._inbox: queue.SimpleQueue[Event | _Question | None] = queue.SimpleQueue()
        self._sinks: dict[str, Sink] = {}
        # a stream may be collected, and so aborted, in whatever thread holds the lock
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._ended = False  # the thread has looked into its inbox for the last time

    def submit(self, submit: Submit, sink: Sink) -> None:
        name = submit.request.request_id
        with self._lock:
            refusal = self.over or (DRAINS if self.draining else None)
            if refusal is not None:
                raise RequestError(refusal, status=503, code="unavailable")
            if name in self._sinks:
                raise _taken(name)
            self._sinks[name] = sink
            self.idle.clear()
            self._inbox.put(submit)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ds_jax", daemon=True)
                self._thread.start()

    def abort(self, request_id: str) -> None:
        with self._lock:  # in front of the next request of the same id
            if request_id in self._sinks:
                self._inbox.put(Cancel(request_id))

    def ask(self, function: Callable[[], Answer]) -> Answer:
        """What a function finds in the loop between two turns; waits for it."""
        question = _Question(function)
        with self._lock:
            if self._ended or self._thread is None:
                return function()  # nobody else is in the loop
            self._inbox.put(question)
        return question.answer.result()

    def drain(self) -> None:
        with self._lock:  # whoever was let in before is waited for
            self.draining = True

    def stop(self) -> None:
        with self._lock:
            self.over = self.over or "the engine is closed"
            thread = self._thread
        self._inbox.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        try:
            while self._turn():
                pass
            self._end_all(FinishReason.CANCELLED, None)
        except Exception as error:
            self.over = f"the engine has failed ({type(error).__name__}: {error}); restart it"
            self._end_all(FinishReason.ERROR, StepError(self.over))
            raise
        finally:
            self._answer_rest()

    def _turn(self) -> bool:
        """One turn of the loop, or a wait for work; False: the thread is to end."""
        loop, events = self.loop, list[Event]()
        if loop.is_idle:
            self._note_idle()
            message = self._inbox.get()
        elif loop.is_stuck:
            message = self._next(STUCK_S)
        else:
            message = self._next(None)
        while message is not None:
            if isinstance(message, _Nothing):
                loop.turn(events, self._deliver)
                return True
            if isinstance(message, _Question):
                message.give()
            else:
                events.append(message)
            message = self._next(None)
        return False

    def _next(self, wait_s: float | None) -> Event | _Question | _Nothing | None:
        try:
            return self._inbox.get(wait_s is not None, wait_s)
        except queue.Empty:
            return _NOTHING

    def _note_idle(self) -> None:
        with self._lock:
            if not self._sinks:
                self.idle.set()

    def _deliver(self, events: list[TokenEvent]) -> None:
        sinks: dict[Sink, list[TokenEvent]] = {}
        for event in events:
            name = event.request_id
            sink = self._sinks[name] if event.finish_reason is None else self._sinks.pop(name)
            mine = sinks.get(sink)
            if mine is None:
                sinks[sink] = [event]
            else:
                mine.append(event)
        for sink, mine in sinks.items():
            sink.deliver(mine)

    def _end_all(self, reason: FinishReason, error: DsJaxError | None) -> None:
        """The last event of whoever still waits for one."""
        with self._lock:
            sinks, self._sinks = self._sinks, {}
        for name, sink in sinks.items():
            with contextlib.suppress(RuntimeError):
                sink.deliver([TokenEvent(name, 0, None, reason, error=error)])
        self.idle.set()

    def _answer_rest(self) -> None:
        """Whoever still waits for an answer gets it; later ones ask for themselves."""
        with self._lock:
            self._ended = True
            while not self._inbox.empty():
                message = self._inbox.get()
                if isinstance(message, _Question):
                    message.give()


class _Question:
    """Something to find out between two turns."""

    def __init__(self, function: Callable[[], Any]):
        self._function = function
        self.answer: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def give(self) -> None:
        try:
            self.answer.set_result(self._function())
        except Exception as error:  # the asker's, not the loop's
            self.answer.set_exception(error)


class _Nothing:
    """The inbox is empty."""


_NOTHING = _Nothing()


def _taken(name: str) -> RequestError:
    return RequestError(
        f"request_id={name!r}: a request of this id is under way; give every request its own",
        param="request_id",
        status=409,
    )
