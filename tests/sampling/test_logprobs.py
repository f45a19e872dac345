"""Reports: log softmax, order and ties of the most likely tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.sampling import logprobs
from tests.oracles import sampling as oracle

TOP = logprobs.TOP


def parts(words: jax.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log probability of the token, ids, their log probabilities."""
    held = np.asarray(words)
    floats = held.view(np.float32)
    return floats[..., 0], held[..., 1 : 1 + TOP], floats[..., 1 + TOP :]


def test_report_is_the_log_softmax_at_the_token_and_at_the_most_likely_ones() -> None:
    logits = np.random.default_rng(0).normal(0, 5, (3, 200)).astype(np.float32)
    tokens = [0, 77, 199]
    mine, ids, top = parts(logprobs.report(jnp.asarray(logits), jnp.array(tokens)))
    for row in range(3):
        wanted = oracle.logprobs(logits[row])
        assert ids[row].tolist() == oracle.top(logits[row], TOP)
        np.testing.assert_allclose(top[row], wanted[ids[row]], atol=2e-5)
        np.testing.assert_allclose(mine[row], wanted[tokens[row]], atol=2e-5)
        assert (np.diff(top[row]) <= 0).all()


def test_equal_tokens_stand_in_order_of_their_ids() -> None:
    logits = np.zeros((1, 64), np.float32)
    logits[0, [50, 9, 33]] = 2.0
    _, ids, _ = parts(logprobs.report(jnp.asarray(logits), jnp.array([0])))
    assert ids[0, :6].tolist() == [9, 33, 50, 0, 1, 2]


def test_a_small_vocabulary_fills_up_with_nobody() -> None:
    _, ids, top = parts(logprobs.report(jnp.zeros((1, 5)), jnp.array([2])))
    assert ids[0].tolist() == [0, 1, 2, 3, 4] + [-1] * 15
    assert (top[0, 5:] == -np.inf).all()


def test_refused_tokens_have_no_probability() -> None:
    logits = jnp.full((1, 64), -jnp.inf).at[0, 3].set(1.0)
    mine, ids, top = parts(logprobs.report(logits, jnp.array([4])))
    assert mine[0] == -np.inf and ids[0, 0] == 3 and top[0, 0] == 0


@pytest.mark.parametrize("rows", [1, logprobs.BLOCK, logprobs.BLOCK + 1])
def test_many_rows_give_the_reports_of_single_ones(rows: int) -> None:
    rng = np.random.default_rng(rows)
    hidden = jnp.asarray(rng.normal(size=(rows, 8)), jnp.float32)
    head = jnp.asarray(rng.normal(size=(8, 40)), jnp.float32)
    tokens = jnp.asarray(rng.integers(0, 40, rows), jnp.int32)
    mine, ids, top = parts(logprobs.report_rows(lambda h: h @ head, hidden, tokens))
    wanted = parts(logprobs.report(hidden @ head, tokens))
    np.testing.assert_array_equal(ids, wanted[1])
    np.testing.assert_allclose(mine, wanted[0], atol=1e-5)
    np.testing.assert_allclose(top, wanted[2], atol=1e-5)
