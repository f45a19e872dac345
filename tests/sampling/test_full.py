"""Everything together: order, law, and what a draw depends on."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.sampling import full, penalties, sample
from tests.oracles import sampling as oracle

V, BIASED = 41, 4
NOBODY = 2**30
DRAWS = 20_000
PROMPT, OUTPUT = (3, 4, 5, 5), (5, 6, 6, 7)
SHAPE: dict[str, Any] = {
    "repetition": 1.3,
    "presence": 0.4,
    "frequency": 0.25,
    "bias": ((5, 1.5), (40, -2.0)),
}
FILTERS = {"temperature": 0.8, "top_p": 0.93, "top_k": 14, "min_p": 0.04}

run = jax.jit(full.sample_full)


@pytest.fixture(scope="module")
def logits() -> np.ndarray:
    return np.random.default_rng(1).normal(0, 2, V).astype(np.float32)


def controls_of(
    positions: np.ndarray,
    seed: int = 7,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = -1,
) -> sample.Controls:
    rows = len(positions)
    return sample.Controls(
        temperature=jnp.full(rows, temperature, jnp.float32),
        top_p=jnp.full(rows, top_p, jnp.float32),
        top_k=jnp.full(rows, top_k, jnp.int32),
        seed=jnp.full((rows, 2), seed, jnp.uint32),
        position=jnp.asarray(positions, jnp.int32),
    )


def shaping_of(
    rows: int,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    bias: tuple[tuple[int, float], ...] = (),
    min_p: float = 0.0,
    reported: bool = False,
) -> full.Shaping:
    def every(value: float) -> jax.Array:
        return jnp.full(rows, value, jnp.float32)

    missing = ((NOBODY, 0.0),) * (BIASED - len(bias))
    ids, values = zip(*(bias + missing), strict=True)
    return full.Shaping(
        slots=jnp.arange(rows),
        min_p=every(min_p),
        penalties=penalties.Penalties(every(repetition), every(presence), every(frequency)),
        counted=jnp.full(rows, (repetition, presence, frequency) != (1, 0, 0)),
        reported=jnp.full(rows, reported),
        bias_ids=jnp.broadcast_to(jnp.array(ids, jnp.int32), (rows, BIASED)),
        bias_values=jnp.broadcast_to(jnp.array(values, jnp.float32), (rows, BIASED)),
    )


def counts_of(rows: int) -> jax.Array:
    row = np.bincount(OUTPUT, minlength=V).astype(np.uint16)
    row[list(PROMPT)] |= penalties.IN_PROMPT
    return jnp.broadcast_to(jnp.asarray(row), (rows, V))


def join(*parts: Any) -> Any:
    return jax.tree.map(lambda *a: jnp.concatenate(a), *parts)


def draws(logits: np.ndarray, controls: sample.Controls, **asked: Any) -> np.ndarray:
    rows = len(controls.position)
    batch = jnp.broadcast_to(jnp.asarray(logits), (rows, V))
    return np.asarray(run(batch, counts_of(rows), controls, shaping_of(rows, **asked))[1])


@pytest.mark.parametrize("temperature", [0.0, 1.6])
def test_draws_follow_the_distribution_of_the_formulas(
    logits: np.ndarray, temperature: float
) -> None:
    """Chi-square over all kept tokens; greedy takes the most likely one of the changed logits."""
    filters = FILTERS | {"temperature": temperature}
    min_p = filters.pop("min_p")
    drawn = draws(logits, controls_of(np.arange(DRAWS), **filters), min_p=min_p, **SHAPE)
    if temperature == 0:
        assert set(drawn) == {int(oracle.shaped(logits, PROMPT, OUTPUT, **SHAPE).argmax())}
        return
    wanted = oracle.distribution(
        logits, **filters, min_p=min_p, prompt=PROMPT, output=OUTPUT, **SHAPE
    )
    counts = np.bincount(drawn, minlength=V)
    assert not counts[wanted == 0].any()
    kept = wanted > 0
    expected = wanted[kept] * DRAWS
    degrees = kept.sum() - 1
    assert degrees >= 5
    chi_square = ((counts[kept] - expected) ** 2 / expected).sum()
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("temperature", [0.0, 1.6])
def test_refused_tokens_leave_the_distribution_of_the_others(
    logits: np.ndarray, temperature: float
) -> None:
    """As if their logits were minus infinity: filters count the tokens that are left."""
    filters = FILTERS | {"temperature": temperature}
    min_p = filters.pop("min_p")
    kept = np.random.default_rng(3).random(V) < 0.5
    words = np.zeros(-(-V // 32) * 32, bool)
    words[:V] = kept
    row = np.packbits(words, bitorder="little").view(np.int32)
    shaping, rows = shaping_of(DRAWS, min_p=min_p), jnp.broadcast_to(row, (DRAWS, len(row)))
    batch = jnp.broadcast_to(jnp.asarray(logits), (DRAWS, V))
    controls = controls_of(np.arange(DRAWS), **filters)
    drawn = np.asarray(run(batch, counts_of(DRAWS), controls, shaping, rows)[1])
    masked = np.where(kept, logits, -np.inf)
    if temperature == 0:
        assert set(drawn) == {int(masked.argmax())}
        return
    wanted = oracle.distribution(masked, **filters, min_p=min_p, prompt=(), output=())
    counts = np.bincount(drawn, minlength=V)
    assert not counts[wanted == 0].any()
    some = wanted > 0
    chi_square = ((counts[some] - wanted[some] * DRAWS) ** 2 / (wanted[some] * DRAWS)).sum()
    degrees = some.sum() - 1
    assert degrees >= 2
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"bias": ((0, 50.0),), "repetition": 100.0}, 0),  # bias first: 50 / 100 is small
        ({"bias": ((0, 50.0),), "presence": 2.0}, 0),
        ({"bias": ((6, 4.0),), "frequency": 2.0}, 1),  # 4 - 2 * 2 is not above 1
        ({"bias": ((6, 5.1),), "frequency": 2.0}, 6),
        (
            {"bias": ((5, 3.0),), "repetition": 2.0, "frequency": 1.0},
            1,
        ),  # 3 / 2 - 1, not (3 - 1) / 2
    ],
)
def test_bias_comes_before_repetition_before_frequency(asked: dict[str, Any], shown: int) -> None:
    logits = np.zeros(V, np.float32)
    logits[1] = 0.7
    (token,) = draws(logits, controls_of(np.array([4]), temperature=0.0), **asked)
    assert token == shown
    assert token == oracle.shaped(logits, PROMPT, OUTPUT, **asked).argmax()


def test_temperature_comes_before_the_filters() -> None:
    """At temperature 4 the second token has 0.44 of all, at 1 less than the 0.2 of min-p."""
    logits = np.full(V, -100.0, np.float32)
    logits[[2, 9]] = 2.0, 0.0
    positions = np.arange(400)
    warm = draws(logits, controls_of(positions, temperature=4.0), min_p=0.2)
    cold = draws(logits, controls_of(positions), min_p=0.2)
    assert set(warm) == {2, 9} and set(cold) == {2}


def test_a_row_that_asks_for_nothing_has_the_draws_of_the_plain_sampler(
    logits: np.ndarray,
) -> None:
    controls = controls_of(np.arange(200), temperature=0.9, top_p=0.9, top_k=20)
    batch = jnp.broadcast_to(jnp.asarray(logits), (200, V))
    np.testing.assert_array_equal(draws(logits, controls), sample.sample(batch, controls))


def test_a_draw_is_the_same_at_every_batch_size_and_place() -> None:
    rows = 16
    rng = np.random.default_rng(5)
    batch = jnp.asarray(rng.normal(0, 2, (rows, V)), jnp.float32)
    settings = [
        {"repetition": 1.2},
        {"min_p": 0.1, "frequency": 0.3},
        {"bias": ((3, 4.0),)},
        {},
    ]
    shaping = join(*(shaping_of(1, **settings[n % 4], reported=n % 2 == 1) for n in range(rows)))
    shaping = dataclasses.replace(shaping, slots=jnp.arange(rows))
    controls = join(*(controls_of(np.array([n]), n, 0.8, 0.95, 10) for n in range(rows)))
    counts = counts_of(rows)
    _, wanted, report = run(batch, counts, controls, shaping)
    for size in (1, 2, 8, 16):
        order = rng.permutation(rows)
        for start in range(0, rows, size):
            part = order[start : start + size]
            mine = jax.tree.map(lambda a, part=part: a[part], (batch, controls, shaping))
            _, tokens, said = run(mine[0], counts, mine[1], mine[2])
            np.testing.assert_array_equal(tokens, wanted[part])
            asked = part % 2 == 1
            np.testing.assert_array_equal(said[asked], report[part][asked])


def test_drawn_tokens_are_counted_for_the_next_draw() -> None:
    """With a high frequency penalty a flat distribution is walked through without repeats."""
    logits, seen = jnp.zeros((1, V)), []
    counts = jnp.zeros((1, V), jnp.uint16)
    shaping = shaping_of(1, frequency=2.0)
    for position in range(V):
        controls = controls_of(np.array([position]), temperature=0.01)
        counts, tokens, _ = run(logits, counts, controls, shaping)
        seen.append(int(tokens[0]))
    assert sorted(seen) == list(range(V))


def test_a_report_is_of_the_logits_before_anything_changed_them(logits: np.ndarray) -> None:
    controls = controls_of(np.array([4]), temperature=0.3)
    asked = shaping_of(1, **SHAPE, reported=True)
    _, tokens, report = run(jnp.asarray(logits)[None], counts_of(1), controls, asked)
    got = np.asarray(report).view(np.float32)[0, 0]
    np.testing.assert_allclose(got, oracle.logprobs(logits)[int(tokens[0])], atol=1e-5)


def test_padding_rows_count_nothing(logits: np.ndarray) -> None:
    shaping = dataclasses.replace(shaping_of(1, presence=1.0), slots=jnp.array([NOBODY]))
    counts = counts_of(3)
    got, _, _ = run(jnp.asarray(logits)[None], counts, controls_of(np.array([1])), shaping)
    np.testing.assert_array_equal(got, counts)
