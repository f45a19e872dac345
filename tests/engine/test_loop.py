"""The loop on a device: the same tokens however a request is run, faults, and who hears of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import re
import threading
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.engine import stats
from ds_jax.errors import ConfigError, RequestError, StepError
from ds_jax.kvcache.explain import Cause
from ds_jax.records import FinishReason, GenerateRequest, TokenEvent
from ds_jax.testing import prompt
from tests.engine import replicas
from tests.engine.replicas import GREEDY, SAMPLED, requests, run, tokens

PROMPTS = [prompt(n, seed=n) for n in (41, 5, 23, 37, 30, 12)]


@pytest.fixture(scope="module")
def pipeline() -> Iterator[Pipeline]:
    """Pages for one and a half contexts: sequences are preempted."""
    with_pages = replicas.replica(cache={"pages": 6})
    yield with_pages
    with_pages.close()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_cold_cached_preempted_alone_and_together_give_the_same_tokens(
    pipeline: Pipeline, params: SamplingParams
) -> None:
    longer = SamplingParams(**{**vars_of(params), "max_tokens": 20})
    cold = [tokens(run(pipeline, requests([p], longer, reuse_prefix=False))[0]) for p in PROMPTS]
    before = pipeline.stats()["preemptions_total"]
    together = run(pipeline, requests(PROMPTS, longer, reuse_prefix=False))
    assert pipeline.stats()["preemptions_total"] > before
    assert [tokens(events) for events in together] == cold
    again = run(pipeline, requests(PROMPTS, longer))
    assert [tokens(events) for events in again] == cold
    hits = [run(pipeline, requests([p], longer))[0] for p in PROMPTS[:1] * 2]
    assert [tokens(events) for events in hits] == cold[:1] * 2
    assert hits[1][-1].usage is not None and hits[1][-1].usage.cached_tokens == 32


def vars_of(params: SamplingParams) -> dict:
    names = ("temperature", "top_p", "seq_seed", "ignore_eos")
    return {name: getattr(params, name) for name in names}


def test_overlap_changes_no_token(pipeline: Pipeline) -> None:
    wanted = [tokens(events) for events in run(pipeline, requests(PROMPTS, SAMPLED))]
    pipeline.loop.overlap = False
    try:
        got = [tokens(events) for events in run(pipeline, requests(PROMPTS, SAMPLED))]
    finally:
        pipeline.loop.overlap = True
    assert got == wanted


def test_nothing_is_copied_between_host_and_device_behind_the_loops_back(
    pipeline: Pipeline,
) -> None:
    run(pipeline, requests(PROMPTS, SAMPLED))
    jax.config.update("jax_transfer_guard", "disallow")  # of every thread
    try:
        found = run(pipeline, requests(PROMPTS, SAMPLED))
    finally:
        jax.config.update("jax_transfer_guard", "allow")
    assert all(events[-1].finish_reason is FinishReason.LENGTH for events in found)


@pytest.mark.parametrize("point", ["launch", "read"])
def test_a_step_that_raises_ends_its_sequences_alone(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    wanted = [tokens(events) for events in run(pipeline, requests(PROMPTS, GREEDY))]
    calls = [0]
    owner, name = (pipeline.runner, "start") if point == "launch" else (pipeline.loop, "_result")
    real = getattr(owner, name)

    def fails(*arguments):
        calls[0] += 1
        if calls[0] == 4:
            raise RuntimeError("the device is gone")
        return real(*arguments)

    monkeypatch.setattr(owner, name, fails)
    found = run(pipeline, requests(PROMPTS, GREEDY))
    monkeypatch.undo()
    errors = [events[-1].error for events in found]
    assert 0 < sum(e is not None for e in errors) <= 4
    for events, error, expected in zip(found, errors, wanted, strict=True):
        if error is None:
            assert tokens(events) == expected
        else:
            assert isinstance(error, StepError) and "the device is gone" in str(error)
            assert tokens(events) == expected[: len(tokens(events))]
    assert [tokens(events) for events in run(pipeline, requests(PROMPTS, GREEDY))] == wanted
    assert pipeline.stats()["pages_held"] == 0
    pipeline.loop.scheduler.check_integrity()


def test_a_result_says_why_its_sequence_failed(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(pipeline.runner, "start", fails)
    (result,) = pipeline.generate(PROMPTS[:1], GREEDY)
    assert result.finish_reason is FinishReason.ERROR
    assert isinstance(result.error, StepError) and "the device is gone" in str(result.error)


def test_a_reset_never_holds_two_states(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = pipeline.runner
    make, old = runner._make_state, jax.tree.leaves(runner.state)

    def made():
        assert all(array.is_deleted() for array in old)
        return make()

    monkeypatch.setattr(runner, "_make_state", made)
    runner.reset()
    assert not any(np.asarray(array).any() for array in jax.tree.leaves(runner.state))


def test_streams_of_an_event_loop(pipeline: Pipeline) -> None:
    wanted = [tokens(events) for events in run(pipeline, requests(PROMPTS, GREEDY))]

    async def collect(request: GenerateRequest) -> list[TokenEvent]:
        return [event async for event in pipeline.engine.submit(request)]

    async def main() -> list[list[TokenEvent]]:
        return await asyncio.gather(*map(collect, requests(PROMPTS, GREEDY)))

    assert [tokens(events) for events in asyncio.run(main())] == wanted


def test_leaving_a_stream_ends_its_request(pipeline: Pipeline) -> None:
    endless = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)

    async def main() -> None:
        (request,) = requests([PROMPTS[1]], endless)
        async with pipeline.engine.submit(request) as stream:
            await anext(stream)
            with pytest.raises(RequestError, match="under way"):
                pipeline.engine.submit(request)
        await pipeline.engine.drain()
        with pytest.raises(RequestError, match="drains"):
            pipeline.engine.submit(*requests([PROMPTS[1]], endless))

    asyncio.run(main())
    pipeline.engine.resume()
    assert pipeline.stats()["running"] == 0
    assert pipeline.stats()["pages_held"] == 0


def test_an_aborted_request_says_so(pipeline: Pipeline) -> None:
    (request,) = requests([PROMPTS[1]], SamplingParams(max_tokens=40, ignore_eos=True))
    events = pipeline.engine.run([request])
    first = next(events)
    pipeline.engine.abort(request.request_id)
    last = list(events)[-1]
    assert first.finish_reason is None
    assert last.finish_reason is FinishReason.CANCELLED


def test_threads_share_a_pipeline(pipeline: Pipeline) -> None:
    wanted = [r.token_ids for r in pipeline.generate(PROMPTS, GREEDY)]
    found: dict[int, list] = {}

    def call(number: int) -> None:
        found[number] = [r.token_ids for r in pipeline.generate(PROMPTS, GREEDY)]

    threads = [threading.Thread(target=call, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: wanted for n in range(3)}


def test_threads_score_at_the_same_time(pipeline: Pipeline) -> None:
    wanted = [pipeline.score(ids) for ids in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as threads:
        found = list(threads.map(pipeline.score, PROMPTS))
    for one, expected in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, expected)


def test_scoring_leaves_cached_prefixes_alone(pipeline: Pipeline) -> None:
    wanted = pipeline.generate(PROMPTS[:1], GREEDY)[0].token_ids
    pipeline.score(prompt(60, seed=99))
    result = pipeline.generate(PROMPTS[:1], GREEDY)[0]
    assert result.token_ids == wanted
    assert result.usage.cached_tokens == 32


def test_a_prompt_of_unknown_ids_never_reaches_a_step(pipeline: Pipeline) -> None:
    params = SamplingParams(max_tokens=2, temperature=0, presence_penalty=1.0)
    with pytest.raises(RequestError, match="the prompt: token id 96 is out of range"):
        run(pipeline, requests([[0, 96]], params))


def test_a_prompt_without_pages_ends_alone() -> None:
    small = replicas.one_layer(max_context=64, page_tokens=16, cache={"pages": 2})
    fits, refused, also = small.generate([prompt(9), prompt(40), prompt(20)], GREEDY)
    assert len(fits.token_ids) == len(also.token_ids) == GREEDY.max_tokens
    assert refused.finish_reason is FinishReason.ERROR and not refused.token_ids
    reason = r"40 tokens, a sequence can have 32 .*raise the number of pages"
    assert isinstance(refused.error, RequestError)
    assert re.search(reason, str(refused.error))
    with pytest.raises(RequestError, match=reason):  # no other result is lost
        small.generate([prompt(40)], GREEDY)
    with pytest.raises(RequestError, match=r"prompt 1 has 64 tokens.*raise max_context"):
        small.generate([prompt(9), prompt(64)], GREEDY)
    small.close()


def test_questions_are_answered_by_the_thread_that_owns_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = replicas.replica()
    threads: list[str] = []
    real = stats.explain_miss

    def noted(*arguments):
        threads.append(threading.current_thread().name)
        return real(*arguments)

    monkeypatch.setattr(stats, "explain_miss", noted)
    here = threading.current_thread().name
    assert asked.engine.explain_miss(PROMPTS[0]).cause is Cause.NEVER_SEEN
    run(asked, requests(PROMPTS[:1], GREEDY))
    assert asked.engine.explain_miss(PROMPTS[0]).found_tokens == 32
    events = asked.engine.run(requests(PROMPTS[1:2], SamplingParams(max_tokens=30)))
    next(events)
    assert asked.engine.explain_miss(PROMPTS[0]).found_tokens == 32
    with pytest.raises(TypeError):
        asked.engine.explain_miss(None)  # type: ignore[arg-type]
    events.close()
    asked.close()
    assert asked.engine.explain_miss(PROMPTS[0]).found_tokens == 32
    assert threads == [here, "ds_jax", "ds_jax", "ds_jax", here]


def test_a_closed_engine_takes_nothing() -> None:
    closed = replicas.replica()
    closed.close()
    with pytest.raises(RequestError, match="the engine is closed"):
        closed.generate(PROMPTS[:1], GREEDY)


def test_a_closed_engine_does_not_resume() -> None:
    closed = replicas.replica()
    closed.close()
    closed.engine.resume()
    assert refusal(closed) == "the engine is closed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_fails_tells_everybody_and_does_not_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = replicas.replica()

    def fails(*_: object) -> None:
        raise AssertionError("two owners of a page")

    monkeypatch.setattr(failed.loop.scheduler, "schedule", fails)
    (events,) = run(failed, requests(PROMPTS[:1], GREEDY))
    assert "two owners of a page" in str(events[-1].error)
    assert failed.engine.wait_until_drained()
    failed.engine.resume()
    assert "the engine has failed" in refusal(failed)


def refusal(pipeline: Pipeline) -> str:
    """Why the engine takes no request; does not wait for one that it takes."""

    async def main() -> str:
        try:
            pipeline.engine.submit(*requests(PROMPTS[:1], GREEDY))
        except RequestError as error:
            return str(error)
        return "none"

    return asyncio.run(main())


def test_out_of_memory_names_the_setting_to_lower() -> None:
    with pytest.raises(ConfigError, match=r"lower pages=1,099,511,627,776 first"):
        replicas.replica(cache={"pages": 2**40})
