"""The law of the output is the target's: by enumeration, and by samples of the device's functions.

The schedule is the real one. One that looks at the values of drafts it decides about fails both.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.sampling import sample
from ds_jax.speculative import confidence, draft, draws, ragged, verify

VOCAB, DRAFTS, SEQUENCES = 2, 3, 2
Prefix = tuple[int, ...]


class Tables:
    """Random laws of target and drafter for every prefix, and confidences; float64."""

    def __init__(self, seed: int):
        random = np.random.default_rng(seed)
        prefixes = [p for n in range(DRAFTS + 1) for p in itertools.product(range(VOCAB), repeat=n)]

        def law() -> dict[Prefix, np.ndarray]:
            return {p: random.dirichlet(np.ones(VOCAB)) for p in prefixes}

        self.p = [law() for _ in range(SEQUENCES)]
        self.q = [law() for _ in range(SEQUENCES)]
        self.sure = [{p: random.random() for p in prefixes} for _ in range(SEQUENCES)]


Schedule = Callable[[Tables, tuple[Prefix, ...], int], np.ndarray]


def real(tables: Tables, drafts: tuple[Prefix, ...], budget: int) -> np.ndarray:
    """Confidence k reads the drafts in front of k."""
    sure = [[tables.sure[r][x[:k]] for k in range(DRAFTS)] for r, x in enumerate(drafts)]
    return _places(np.array(sure), budget)


def anticipating(tables: Tables, drafts: tuple[Prefix, ...], budget: int) -> np.ndarray:
    """Confidence k reads draft k: the probability it was drawn with."""
    sure = [[tables.q[r][x[:k]][x[k]] for k in range(DRAFTS)] for r, x in enumerate(drafts)]
    return _places(np.array(sure), budget)


def current_budget(tables: Tables, drafts: tuple[Prefix, ...], budget: int) -> np.ndarray:
    """Real places, but the budget follows from the confidences of these very drafts."""
    sure = [[tables.sure[r][x[:k]] for k in range(DRAFTS)] for r, x in enumerate(drafts)]
    return _places(np.array(sure), int(budget * np.cumprod(sure, axis=1).sum()))


@functools.partial(jax.jit)
def _lengths(sure: jax.Array, budget: jax.Array) -> jax.Array:
    allowed = jnp.full(sure.shape[0], sure.shape[1], jnp.int32)
    return confidence.lengths(confidence.survivals(sure, allowed), budget)


def _places(sure: np.ndarray, budget: int) -> np.ndarray:
    with jax.enable_x64(False):
        return np.asarray(_lengths(jnp.asarray(sure, jnp.float32), jnp.int32(budget)))


def _emitted(tables: Tables, r: int, x: Prefix, length: int) -> np.ndarray:
    """Law of the next DRAFTS + 1 tokens of one sequence, given its drafts and how many count."""
    out = np.zeros((VOCAB,) * (DRAFTS + 1))
    alive = 1.0
    for k in range(length + 1):
        p = tables.p[r][x[:k]]
        if k == length:
            _complete(tables, r, x[:k], alive * p, out)
            break
        q = tables.q[r][x[:k]]
        token = x[k]
        accept = float(verify.ratio(jnp.log(p[token]), jnp.log(q[token])))
        left = np.asarray(verify.residual(jnp.asarray(p), jnp.asarray(q)))
        _complete(tables, r, x[:k], alive * (1 - accept) * left / left.sum(), out)
        alive *= accept
    return out


def _complete(tables: Tables, r: int, prefix: Prefix, law: np.ndarray, out: np.ndarray) -> None:
    """Adds the law of a token behind a prefix, all later tokens drawn from the target."""
    for token, mass in enumerate(law):
        line = (*prefix, token)
        if len(line) == DRAFTS + 1:
            out[line] += mass
        else:
            _complete(tables, r, line, mass * tables.p[r][line], out)


def _deviation(schedule: Schedule, seed: int, budget: int) -> float:
    """Largest difference of the joint law of both sequences from the target's."""
    tables = Tables(seed)
    shape = (VOCAB,) * (DRAFTS + 1)
    got = np.zeros((*shape, *shape))
    lines = list(itertools.product(range(VOCAB), repeat=DRAFTS))
    known = functools.cache(lambda r, x, n: _emitted(tables, r, x, n))
    for drafts in itertools.product(lines, repeat=SEQUENCES):
        chance = 1.0
        for r, x in enumerate(drafts):
            chance *= np.prod([tables.q[r][x[:k]][x[k]] for k in range(DRAFTS)])
        lens = schedule(tables, drafts, budget)
        parts = [known(r, x, int(lens[r])) for r, x in enumerate(drafts)]
        got += chance * np.multiply.outer(*parts)
    wanted = []
    for r in range(SEQUENCES):
        law = np.zeros(shape)
        _complete(tables, r, (), tables.p[r][()], law)
        wanted.append(law)
    return float(np.abs(got - np.multiply.outer(*wanted)).max())


@pytest.fixture
def double() -> object:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("budget", [0, 2, 3, 6])
def test_law_is_the_targets_by_enumeration(double: object, budget: int) -> None:
    assert max(_deviation(real, seed, budget) for seed in range(2)) < 1e-12


def test_anticipating_schedules_change_the_law(double: object) -> None:
    assert max(_deviation(anticipating, seed, 2) for seed in range(3)) > 1e-3
    assert max(_deviation(current_budget, seed, 1) for seed in range(3)) > 1e-4


# Samples ------------------------------------------------------------------------------------------

V, K, R, PAIRS = 6, 3, 2, 60_000
SETTING = {"temperature": 0.8, "top_p": 0.9, "top_k": 4}


def _laws(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits of target [V V] and drafts [K V V] behind a token, confidences [K V]."""
    random = np.random.default_rng(seed)
    p = random.normal(size=(V, V)).astype(np.float32) * 1.5
    q = (p[None] + random.normal(size=(K, V, V)) * 1.2).astype(np.float32)
    return p, q, random.random((K, V)).astype(np.float32)


def _controls(seed: jax.Array, position: jax.Array) -> sample.Controls:
    def all_of(value: float, kind=jnp.float32) -> jax.Array:
        return jnp.full(len(position), value, kind)

    return sample.Controls(
        temperature=all_of(SETTING["temperature"]),
        top_p=all_of(SETTING["top_p"]),
        top_k=all_of(SETTING["top_k"], jnp.int32),
        seed=seed,
        position=position,
    )


def _two_tokens(anticipates: bool, tables: tuple[jax.Array, ...], number: jax.Array) -> jax.Array:
    """The next two tokens of R sequences [R 2]: one step of drafts, then plain decoding."""
    p, q, sure = tables
    seed = jnp.stack([jnp.full(R, number, jnp.uint32), jnp.arange(R, dtype=jnp.uint32)], axis=1)
    how = _controls(seed, jnp.full(R, 10, jnp.int32))
    anchors = previous = jnp.arange(R, dtype=jnp.int32)
    coupled = jnp.zeros(R, bool)
    tokens, laws, rates = [], [], []
    for k in range(K):
        rate = sure[k, previous]
        token, law = draft.choose(q[k, previous], how, coupled, k + 1)
        if anticipates:
            rate = jnp.exp(law[jnp.arange(R), token])
        tokens, laws, rates = [*tokens, token], [*laws, law], [*rates, rate]
        previous = token
    drafted = jnp.stack(tokens, 1)
    allowed = jnp.array([K, K - 1], jnp.int32)
    survival = confidence.survivals(jnp.stack(rates, 1), allowed)
    lens = confidence.lengths(survival, jnp.int32(2) + (number % 3).astype(jnp.int32))
    rows = ragged.pack(lens, jnp.ones(R, bool), R * (K + 1))
    line = jnp.concatenate([anchors[:, None], drafted], axis=1)
    logits = p[line[rows.sequence, rows.within]]
    got = verify.verify(logits, rows, how, coupled, drafted, jnp.stack(laws, 1))
    first = jnp.where(got.accepted > 0, drafted[:, 0], got.token)
    second = jnp.where(got.accepted > 1, drafted[:, 1], got.token)
    later = _controls(seed, jnp.full(R, 12, jnp.int32))
    drawn = sample.sample(p[first], later)
    return jnp.stack([first, jnp.where(got.accepted > 0, second, drawn)], 1)


def _chi_square(anticipates: bool) -> float:
    """Statistic of (first, second) of sequence 0, over its degrees of freedom."""
    tables = _laws(1)
    run = jax.jit(
        lambda numbers: jax.lax.map(
            functools.partial(_two_tokens, anticipates, tuple(map(jnp.asarray, tables))),
            numbers,
            batch_size=4096,
        )
    )
    got = np.asarray(run(jnp.arange(PAIRS, dtype=jnp.uint32)))
    how = _controls(jnp.zeros((V, 2), jnp.uint32), jnp.zeros(V, jnp.int32))
    law = np.exp(np.asarray(draws.log_law(jnp.asarray(tables[0]), how), np.float64))
    statistic, freedom = 0.0, 0
    for r in range(R):
        count = np.zeros((V, V))
        np.add.at(count, (got[:, r, 0], got[:, r, 1]), 1)
        wanted = law[r][:, None] * law * PAIRS
        possible = wanted > 0
        assert count[~possible].sum() == 0, "a token that is filtered out"
        statistic += ((count - wanted)[possible] ** 2 / wanted[possible]).sum()
        freedom += possible.sum() - 1
    return float(statistic / freedom)


def test_samples_with_filters_and_ragged_lengths_follow_the_target() -> None:
    """120,000 samples; above 1.9 for these degrees of freedom is rarer than 1 in 1,000."""
    assert _chi_square(anticipates=False) < 1.9


def test_samples_of_an_anticipating_schedule_do_not() -> None:
    assert _chi_square(anticipates=True) > 5
