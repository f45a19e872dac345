"""Parsing takes time in proportion to the output, whatever it holds and however it is cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ds_jax.recipe.inference import InferenceChunk
from tests.recipe.parsing import START, processor

CALL = '<｜DSML｜calls>\n<｜DSML｜invoke name="f">\n'
VALUE = f'{CALL}<｜DSML｜parameter name="k" string="true">'
PARAMETER = '<｜DSML｜parameter name="k" string="false">v</｜DSML｜parameter>\n'
OUTPUTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "plain": ("", "word ", {}),
    "newlines": ("a", "\n", {}),
    "openings": ("", "<", {}),
    "newline and opening": ("", "\n<", {}),
    "half a marker": ("", "</think", {}),
    "backticks": ("", "`", {"parse_json_output": True, "thinking_initial_stage": None}),
    "a name": ('<｜DSML｜invoke name="', "n", {}),
    "a value": (VALUE, "</x", {}),
    "a value of quotes": (VALUE, '"', {}),
    "parameters": (CALL, PARAMETER, {}),
    "calls": ("", f"{VALUE}</｜DSML｜</｜DSML｜", {}),
    "a long stop string": ("", "ab", {"stop_sequences": ["ab" * 3000 + "c"]}),
}
GROWTH = 8
SIZES = pytest.mark.parametrize("length", [1_000, pytest.param(100_000, marks=pytest.mark.slow)])


def growth(work: Callable[[int], Any], size: int) -> float:
    """How many times longer `GROWTH` times the work takes; the quicker of two tries."""
    times: list[float] = []
    for count in (size, size * GROWTH):
        tries: list[float] = []
        for _ in range(2):
            start = time.process_time()
            work(count)
            tries.append(time.process_time() - start)
        times.append(min(tries))
    return times[1] / max(times[0], 1e-4)


@SIZES
@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("size", [None, 1], ids=["whole", "single characters"])
def test_text_takes_linear_time(name: str, size: int | None, length: int):
    head, body, options = OUTPUTS[name]

    def work(count: int) -> None:
        output = head + (body * (count // len(body) + 1))[:count]
        given = {"thinking_initial_stage": START} | options
        stream = processor(**given)
        step = size or len(output)
        for place in range(0, len(output), step):
            stream.push(InferenceChunk.text(output[place : place + step]))
        stream.finish()

    assert growth(work, length if size else 10 * length) < 4 * GROWTH


@SIZES
@pytest.mark.parametrize(
    "ids",
    [[64], [171], [9999], [171, 123, 121], [504], [198], [172, 253, 246, 222]],
    ids=["letters", "half characters", "unknown", "U+FFFD", "control", "newlines", "emoji"],
)
def test_ids_take_linear_time(ids: list[int], length: int):
    def work(count: int) -> None:
        stream = processor(with_tokenizer=True, thinking_initial_stage=START)
        for place in range(count):
            stream.push(InferenceChunk.tokens([ids[place % len(ids)]]))
        stream.close()

    assert growth(work, length) < 4 * GROWTH
