"""A trace of arrivals served as it comes: what callers wait for, and what the cache found.

Decides what is noted. Never decides who arrives when. In: a pipeline and a trace. Out: a `Served`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from ds_jax.benchmark import replica, workload
from ds_jax.engine import stats
from ds_jax.pipeline import Pipeline
from ds_jax.records import GenerateRequest

SHARES = (50, 90, 99)  # percentiles


@dataclasses.dataclass(frozen=True)
class Served:
    """One run of a trace.

    Attributes:
      requests: of the trace; rate: its arrivals a second.
      seconds: from the first arrival to the last token.
      prompt_tokens, new_tokens: of all requests.
      cached_tokens: prompt tokens that were not computed again.
      ideal_tokens: those that a cache without bounds finds.
      first_token_s: from each request's arrival to its first token, in order of arrival.
      between_s: between two tokens of a request.
      idle: share of the time in which the device had nothing, waiting for arrivals included.
      host_s: what the host did for a step, median.
      compile_s: waiting for programs that were still missing.
      preemptions: sequences computed again.
    """

    requests: int
    rate: float
    seconds: float
    prompt_tokens: int
    new_tokens: int
    cached_tokens: int
    ideal_tokens: int
    first_token_s: tuple[float, ...]
    between_s: tuple[float, ...]
    idle: float
    host_s: float
    compile_s: float
    preemptions: int

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were not computed again."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def ideal_rate(self) -> float:
        """The hit rate of a cache without bounds."""
        return self.ideal_tokens / self.prompt_tokens


def serve(pipeline: Pipeline, trace: list[workload.Arrival]) -> Served:
    """Sends every request at its time and waits for all."""
    asked = replica.requests(
        [a.prompt for a in trace], [a.new_tokens for a in trace], reuse_prefix=True
    )
    limits = pipeline.loop.scheduler.limits
    before, compiled = pipeline.stats(), pipeline.runner.programs.waited_s
    with replica.watched(pipeline) as records:
        start = time.perf_counter()
        times = asyncio.run(_send(pipeline, trace, asked, start))
    after = pipeline.stats()
    first = [at[0] - start - arrival.at_s for at, arrival in zip(times, trace, strict=True)]
    return Served(
        requests=len(trace),
        rate=len(trace) / trace[-1].at_s,
        seconds=max(at[-1] for at in times) - start,
        prompt_tokens=sum(len(a.prompt) for a in trace),
        new_tokens=sum(map(len, times)),
        cached_tokens=int(after["prefix_hit_tokens_total"] - before["prefix_hit_tokens_total"]),
        ideal_tokens=workload.ideal_hit_tokens(trace, limits.page_tokens, limits.rule),
        first_token_s=tuple(first),
        between_s=tuple(float(gap) for at in times for gap in np.diff(at)),
        idle=stats.idle_share(records) or 0.0,
        host_s=float(np.median([r.host_s for r in records])),
        compile_s=pipeline.runner.programs.waited_s - compiled,
        preemptions=int(after["preemptions_total"] - before["preemptions_total"]),
    )


async def _send(
    pipeline: Pipeline,
    trace: Sequence[workload.Arrival],
    asked: Sequence[GenerateRequest],
    start: float,
) -> list[list[float]]:
    """Times at which the tokens of each request came."""

    async def one(arrival: workload.Arrival, request: GenerateRequest) -> list[float]:
        await asyncio.sleep(start + arrival.at_s - time.perf_counter())
        times = []
        async for event in pipeline.engine.submit(request):
            replica.refuse(event)
            if event.token_id is not None:
                times.append(time.perf_counter())
        return times

    return await asyncio.gather(*map(one, trace, asked))


def table(served: Served) -> str:
    """Markdown."""
    first = np.percentile(served.first_token_s, SHARES) * 1e3
    between = np.percentile(served.between_s, SHARES) * 1e3
    shares = " / ".join(f"p{share}" for share in SHARES)
    rows = [
        ("requests, a second", f"{served.requests}, {served.rate:.2f}"),
        ("prompt / new tokens", f"{served.prompt_tokens} / {served.new_tokens}"),
        ("new tokens/s", f"{served.new_tokens / served.seconds:.1f}"),
        (f"first token, ms, {shares}", " / ".join(f"{v:.0f}" for v in first)),
        (f"between tokens, ms, {shares}", " / ".join(f"{v:.1f}" for v in between)),
        ("hit rate, ideal", f"{served.hit_rate:.2%}, {served.ideal_rate:.2%}"),
        ("device idle, host ms a step", f"{served.idle:.1%}, {served.host_s * 1e3:.2f}"),
        ("preemptions", f"{served.preemptions}"),
    ]
    if served.compile_s:
        rows.append(("compiling meanwhile, s", f"{served.compile_s:.1f}"))
    return "\n".join(["| served | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])
