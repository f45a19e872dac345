"""Sampling words: what is packed comes out again; what a replica cannot do is refused."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.engine import controls
from ds_jax.errors import RequestError
from ds_jax.records import MAX_LOGIT_BIAS, SamplingParams
from ds_jax.sampling import logprobs, penalties

SEED = 0xFEDC_BA98_7654_3210


def test_plain_words_come_out_as_they_went_in() -> None:
    params = [SamplingParams(temperature=0.7, top_p=0.9, top_k=5), SamplingParams()]
    words = controls.pack(params, [SEED, 1])
    got = controls.unpack(jnp.asarray(words), jnp.array([4, 9]))
    np.testing.assert_allclose(got.temperature, [0.7, 1.0], rtol=1e-6)
    np.testing.assert_allclose(got.top_p, [0.9, 1.0], rtol=1e-6)
    assert got.top_k.tolist() == [5, -1]
    assert got.seed.tolist() == [[SEED >> 32, SEED & 0xFFFFFFFF], [0, 1]]
    assert got.position.tolist() == [4, 9]


@pytest.mark.parametrize(
    ("given", "packed"), [(0.0, 0.0), (9e-6, 0.0), (1e-5, 1e-5), (1e300, controls.LARGEST)]
)
def test_temperatures_that_float32_cannot_serve_are_moved(given: float, packed: float) -> None:
    words = controls.pack([SamplingParams(temperature=given)], [0])
    assert words[0, controls.TEMPERATURE].view(np.float32) == np.float32(packed)


def test_a_top_k_beyond_any_vocabulary_is_packed() -> None:
    assert controls.pack([SamplingParams(top_k=2**40)], [0])[0, 4] == 2**31 - 1


def test_full_words_come_out_as_they_went_in() -> None:
    asked = SamplingParams(
        temperature=0.5,
        min_p=0.25,
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.75,
        logit_bias=((7, -3.5), (2, 100)),
        top_logprobs=0,
    )
    words = controls.pack_full([asked, SamplingParams()], [SEED, 3], [5, 6], [40, 41], [2, 0], 4)
    plain, shaping = controls.unpack_full(jnp.asarray(words))
    assert plain.seed[2].tolist() == [SEED >> 32, SEED & 0xFFFFFFFF]
    assert (float(plain.temperature[2]), int(plain.position[2])) == (0.5, 40)
    assert shaping.slots.tolist() == [6, controls.NOWHERE, 5, controls.NOWHERE]
    got = (shaping.min_p, *(getattr(shaping.penalties, n) for n in ("repetition", "presence")))
    assert [float(a[2]) for a in got] == [0.25, 1.5, -0.5]
    assert float(shaping.penalties.frequency[2]) == 0.75
    assert shaping.counted.tolist() == shaping.reported.tolist() == [False, False, True, False]
    assert shaping.bias_ids[2, :3].tolist() == [7, 2, controls.NOWHERE]
    assert shaping.bias_values[2, :2].tolist() == [-3.5, 100.0]
    for row in (0, 1, 3):
        assert float(shaping.penalties.repetition[row]) == 1.0
        assert (np.asarray(shaping.bias_ids[row]) == controls.NOWHERE).all()


def test_the_largest_bias_fits_into_the_words() -> None:
    bias = tuple((n, n / 10) for n in range(MAX_LOGIT_BIAS))
    words = controls.pack_full([SamplingParams(logit_bias=bias)], [0], [0], [0], [0], 1)
    assert words.shape == (1, controls.FULL_WORDS)
    _, shaping = controls.unpack_full(jnp.asarray(words))
    np.testing.assert_allclose(shaping.bias_values[0], [v for _, v in bias], rtol=1e-6)


def test_a_count_row_tells_prompt_and_output_apart() -> None:
    row = controls.count_row([3, 3, 5, 5, 5, 7], 3, 9)
    assert row.dtype == np.uint16
    assert row[3] == penalties.IN_PROMPT
    assert row[5] == penalties.IN_PROMPT | 2
    assert row[7] == 1
    assert not row[[0, 1, 2, 4, 6, 8]].any()


def test_a_count_row_stops_at_the_most_it_can_hold() -> None:
    row = controls.count_row([1, *[4] * (penalties.MOST + 9)], 1, 5)
    assert row[4] == penalties.MOST


def test_token_logprob_reads_as_many_as_asked_and_exist() -> None:
    report = logprobs.report(jnp.array([[0.0, 2.0, 1.0]]), jnp.array([2]))
    words = np.asarray(report)[0]
    total = np.log(np.exp([0.0, 2.0, 1.0]).sum())
    none, two, many = (controls.token_logprob(words, n) for n in (0, 2, 20))
    assert none.logprob == pytest.approx(1 - total, abs=1e-6) and none.top == ()
    assert [token for token, _ in two.top] == [1, 2]
    assert [token for token, _ in many.top] == [1, 2, 0]
    assert many.top[0][1] == pytest.approx(2 - total, abs=1e-6)


def test_a_bias_on_a_token_that_does_not_exist_is_refused() -> None:
    params = SamplingParams(logit_bias=((4, 1.0), (96, 1.0)))
    controls.check(params, 97)
    with pytest.raises(RequestError, match=r"logit_bias=96: ids go from 0 to 95") as caught:
        controls.check(params, 96)
    assert caught.value.param == "logit_bias"


def test_prompt_logprobs_are_refused_where_rows_of_prompts_are_skipped() -> None:
    params = SamplingParams(prompt_logprobs=3)
    controls.check(params, 96)
    with pytest.raises(RequestError, match=r"prompt_logprobs=3: this replica skips rows"):
        controls.check(params, 96, skips_rows=True)
