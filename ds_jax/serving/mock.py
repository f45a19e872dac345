"""An engine without a model: scripted tokens at a steady pace.

Decides what a request is answered, and when. Never imports jax. In: requests. Out: events as those
of the real engine, for load tests and for trying clients.

All sequences in slots get one token a step. Everything runs on the event loop of whoever submits.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ds_jax.engine.inbox import Inbox
from ds_jax.errors import RequestError, StepError
from ds_jax.records import (
    FinishReason,
    GenerateRequest,
    ImageSpan,
    TokenEvent,
    TokenLogprob,
    Usage,
)

Script = Callable[[GenerateRequest], Sequence[int]]
LOGPROB = TokenLogprob(-0.25)


@dataclasses.dataclass(eq=False, slots=True)
class _Sequence:
    request: GenerateRequest
    tokens: Sequence[int]
    stream: MockStream
    cached: int
    sent: int = 0


class MockStream(Inbox):
    """Events of one request. Methods mutate it."""

    def __init__(self, request_id: str, abort: Callable[[str], None]):
        super().__init__()
        self._request_id = request_id
        self._abort = abort

    @property
    def backlog(self) -> int:
        """Events that wait to be read."""
        return len(self)

    async def aclose(self) -> None:
        """Aborts the request, if it has not ended."""
        if not self.ended:
            self.ended = True
            self._abort(self._request_id)


class MockEngine:
    """Methods mutate it; all but `close` are called on one event loop.

    Args:
      script: token ids of the answer to a request; the end token is not among them.
      slots: sequences at once; the others wait.
      step_s: seconds of a step; 0: as fast as it goes.
      drafts: tokens that a step adds to the one that it draws, as if drafted and accepted.
      page_tokens: whole pages of earlier prompts count as cached.
    """

    def __init__(
        self,
        script: Script,
        *,
        slots: int = 64,
        step_s: float = 0.0,
        page_tokens: int = 128,
        drafts: int = 0,
    ):
        self.failure: str | None = None
        self.aborted = 0
        self._script = script
        self._slots = slots
        self._step_s = step_s
        self._page_tokens = page_tokens
        self._drafts = drafts
        self._pages: set[tuple[Any, ...]] = set()
        self._running: dict[str, _Sequence] = {}
        self._waiting: dict[str, _Sequence] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._counts: collections.Counter[str] = collections.Counter()

    def submit(self, request: GenerateRequest, seed: int | None = None) -> MockStream:
        """As `Engine.submit`."""
        if self.failure is not None:
            raise RequestError(self.failure, status=503, code="unavailable")
        name = request.request_id
        if name in self._running or name in self._waiting:
            raise RequestError(
                f"request_id={name!r}: a request of this id is under way", status=409
            )
        stream = MockStream(name, self.abort)
        tokens = self._script(request)[: request.params.max_tokens]
        self._waiting[name] = _Sequence(request, tokens, stream, self._cached(request))
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._run())
        return stream

    def abort(self, request_id: str) -> None:
        """As `Engine.abort`."""
        for group in (self._running, self._waiting):
            sequence = group.pop(request_id, None)
            if sequence is not None:
                self.aborted += 1
                self._end(sequence, FinishReason.CANCELLED)

    def stats(self) -> dict[str, int | float]:
        """As `Engine.stats`, without steps."""
        return {
            "running": len(self._running),
            "waiting": len(self._waiting),
            "pages": 1024,
            "pages_held": len(self._running),
            "pages_cached": len(self._pages),
            "pages_pinned": 0,
            "preemptions_total": 0,
            **self._counts,
        }

    def explain_miss(
        self, token_ids: list[int], tenant: str = "", images: Iterable[ImageSpan] = ()
    ) -> Any:
        """Pages that are known."""
        found = self._found(token_ids, tenant)
        cause = "none" if found == len(token_ids) // self._page_tokens else "never seen"
        at = found * self._page_tokens
        return types.SimpleNamespace(
            page=found, position=at, cause=cause, found_tokens=at, state_tokens=at
        )

    def fail(self, reason: str = "broken on purpose") -> None:
        """The engine breaks: everything under way ends with an error."""
        self.failure = reason
        self._end_all(FinishReason.ERROR, StepError(reason))

    def close(self) -> None:
        """As `Engine.close`."""
        self.failure = self.failure or "the engine is closed"
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_all, FinishReason.CANCELLED, None)

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while self._running or self._waiting:
            due = max(due + self._step_s, clock() - self._step_s)
            await asyncio.sleep(max(0.0, due - clock()))
            self._step()

    def _step(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            name = next(iter(self._waiting))
            self._running[name] = self._waiting.pop(name)
        for name, sequence in list(self._running.items()):
            if sequence.sent < len(sequence.tokens):
                if self._drafts:
                    self._draft(sequence)
                self._token(sequence)
            elif self._running.pop(name, None) is not None:
                full = sequence.sent >= sequence.request.params.max_tokens
                self._end(sequence, FinishReason.LENGTH if full else FinishReason.STOP)

    def _draft(self, sequence: _Sequence) -> None:
        """Between none and all drafts are accepted, the less often the further they reach."""
        left = len(sequence.tokens) - sequence.sent - 1
        accepted = min(left, self._drafts, sequence.sent % (self._drafts + 1))
        for number in range(accepted):
            self._token(sequence, 0.95 * 0.85**number)
        self._counts["drafting_rounds_total"] += 1
        self._counts["drafts_verified_total"] += self._drafts
        self._counts["drafts_accepted_total"] += accepted

    def _token(self, sequence: _Sequence, draft: float | None = None) -> None:
        index, request = sequence.sent, sequence.request
        sequence.sent += 1
        usage = None
        if not index:
            usage = Usage(len(request.prompt_token_ids), 1, sequence.cached)
        logprob = LOGPROB if request.params.top_logprobs is not None else None
        token = sequence.tokens[index]
        sequence.stream.put(
            TokenEvent(
                request.request_id, index, token, None, None, logprob, usage=usage, draft=draft
            )
        )

    def _end(
        self, sequence: _Sequence, reason: FinishReason, error: StepError | None = None
    ) -> None:
        usage = Usage(len(sequence.request.prompt_token_ids), sequence.sent, sequence.cached)
        name = sequence.request.request_id
        sequence.stream.put(TokenEvent(name, sequence.sent, None, reason, usage=usage, error=error))

    def _end_all(self, reason: FinishReason, error: StepError | None) -> None:
        left = [*self._running.values(), *self._waiting.values()]
        self._running.clear()
        self._waiting.clear()
        for sequence in left:
            self._end(sequence, reason, error)

    def _cached(self, request: GenerateRequest) -> int:
        prompt, tenant = request.prompt_token_ids, request.tenant
        found = self._found(prompt, tenant)
        self._pages.update(self._keys(prompt, tenant))
        cached = min(found * self._page_tokens, len(prompt) - 1)
        self._counts["requests_total"] += 1
        self._counts["prefix_query_tokens_total"] += len(prompt)
        self._counts["prefix_hit_tokens_total"] += cached
        return cached

    def _found(self, prompt: Sequence[int], tenant: str) -> int:
        keys = self._keys(prompt, tenant)
        return next((n for n, key in enumerate(keys) if key not in self._pages), len(keys))

    def _keys(self, prompt: Sequence[int], tenant: str) -> list[tuple[Any, ...]]:
        keys, size = list[tuple[Any, ...]](), self._page_tokens
        key: tuple[Any, ...] = (tenant,)
        for start in range(0, len(prompt) - size + 1, size):
            key = (tenant, hash((key, tuple(prompt[start : start + size]))))
            keys.append(key)
        return keys
