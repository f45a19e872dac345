"""Programs are built once, side by side, by whoever needs them first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest

from ds_jax import SamplingParams
from ds_jax.engine.buckets import StepKey
from ds_jax.engine.programs import Programs
from ds_jax.testing import prompt
from tests.engine import replicas


def test_a_program_is_built_once_for_all_threads() -> None:
    built: list[str] = []
    go = threading.Event()

    def build(key: str) -> str:
        assert go.wait(10)
        built.append(key)
        return key.upper()

    programs = Programs(build)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(programs.get, "a") for _ in range(4)]
        programs.ask(["a", "a"])
        assert not programs.is_ready("a")
        go.set()
        assert [a.result() for a in asked] == ["A"] * 4
    assert programs.is_ready("a") and programs.get("a") == "A"
    assert built == ["a"] and len(programs) == 1
    assert programs.waited_s > 0


def test_asking_builds_in_the_background() -> None:
    done = threading.Event()
    programs = Programs(lambda key: done.set() or key)
    programs.ask(["a"])
    assert done.wait(10)
    assert programs.get("a") == "a"


def test_a_failed_build_raises_where_it_is_got_and_is_tried_again() -> None:
    tries = iter([ValueError("no memory"), None])

    def build(key: str) -> str:
        error = next(tries)
        if error is not None:
            raise error
        return key

    programs = Programs(build)
    with pytest.raises(ValueError, match="no memory"):
        programs.get("a")
    assert not programs.is_ready("a")
    assert programs.get("a") == "a"


def test_a_token_does_not_wait_for_the_program_of_the_next() -> None:
    pipeline = replicas.one_layer(max_sequences=2, max_context=32, page_tokens=32)
    programs = pipeline.runner.programs
    told = threading.Event()
    build = programs._build

    def build_late(key: StepKey) -> jax.stages.Compiled:
        assert not key.feeds_back or told.wait(60), "nobody was told the first token"
        return build(key)

    programs._build = build_late
    first = pipeline.generate([prompt(5)], SamplingParams(max_tokens=1, temperature=0))
    assert len(programs) == 1  # no decode program for one token
    tokens = []
    for event in pipeline.engine.run(replicas.requests([prompt(5)], replicas.GREEDY)):
        assert event.error is None
        tokens.append(event.token_id)
        told.set()
    assert len(tokens) == 6 and tuple(tokens[:1]) == first[0].token_ids
    assert len(programs) == 2
