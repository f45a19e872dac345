"""What a decode step costs the host, all of it: the real loop over a device that does nothing.

Decides what is timed: whole turns of `engine.loop` in which all sequences decode, so reading the
result before, planning, grouping, packing and handing tokens over. What jax takes to start a
program is not in it. In: numbers of sequences. Out: thread seconds a step (`host`).
"""

from __future__ import annotations

import time
import types
from typing import Any

import numpy as np

from ds_jax import config
from ds_jax.benchmark import host
from ds_jax.engine.buckets import Buckets, StepKey
from ds_jax.engine.limits import Limits
from ds_jax.engine.loop import Loop
from ds_jax.engine.plan import Copy, Event, Submit
from ds_jax.engine.step import StepOutput
from ds_jax.records import GenerateRequest, SamplingParams, TokenEvent

CONTEXT = 1024


class _Tokens(np.ndarray):
    """Tokens on a device that is the host."""

    def copy_to_host_async(self) -> None:
        """They are there."""


class _Programs:
    """Every program exists."""

    waited_s = 0.0

    def ask(self, keys: object) -> None:
        """Nothing is built."""

    def is_ready(self, key: StepKey) -> bool:
        """Always."""
        return True


class _Device:
    """What the loop asks of a runner: every slot's token is 5, whatever it is given."""

    def __init__(self, buckets: Buckets, slots: int):
        self.buckets, self.ranks, self.back = buckets, 1, 3
        self.layout = types.SimpleNamespace(num_slots=slots)
        self.programs = _Programs()
        self.newest = np.full(slots, 5, np.int32).view(_Tokens)
        self.state = types.SimpleNamespace(recent=self.newest)

    def start(self, key: StepKey, packed: np.ndarray) -> StepOutput:
        """Nothing runs."""
        newest: Any = self.newest
        return StepOutput(newest, newest, newest=newest)

    def load_states(self, copies: list[Copy]) -> None:
        """There are none."""

    def save_states(self, copies: list[Copy]) -> None:
        """There are none."""


def decode_step(sequences: int, steps: int = 200) -> host.HostTiming:
    """Times turns with overlap, after those in which prompts are computed."""
    engine = config.Engine(sequences, CONTEXT, (128, 512), step_tokens=8192)
    cache = config.Cache(snapshots=2 * sequences)
    limits = Limits.plan(engine, cache, rule=host.RELEASED)
    device: Any = _Device(Buckets.plan(engine, cache), sequences)
    loop = Loop(device, limits)
    loop.is_warm = True
    told: list[TokenEvent] = []
    params = SamplingParams(max_tokens=CONTEXT - host.PROMPT_TOKENS, temperature=0.0)
    events: list[Event] = [
        Submit(GenerateRequest(str(n), host.prompt(n), params), seed=n) for n in range(sequences)
    ]
    seconds: list[float] = []
    while len(seconds) < steps:
        start = time.thread_time()
        loop.turn(events, told.extend)
        spent = time.thread_time() - start
        if len(told) == sequences and not events:
            seconds.append(spent)
        told.clear()
        events = []
    return host.HostTiming(sequences, tuple(seconds))
