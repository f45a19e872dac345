"""Losses and anchors of the drafter against recorded data."""

from __future__ import annotations

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax.training import dspark_blocks, dspark_loss


@pytest.fixture(scope="module")
def units(golden: pathlib.Path) -> pathlib.Path:
    return golden / "dspark_units"


def _cases(path: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            case, _, field = name.partition("/")
            if not field:  # a constant of all cases
                continue
            found.setdefault(case, {})[field] = arrays[name]
    return found


def test_losses_and_gradients_equal_recorded_ones(units: pathlib.Path) -> None:
    for name, case in _cases(units / "train_loss.npz").items():
        labels = jnp.asarray(case["target_ids"], jnp.int32)
        counted = jnp.asarray(case["eval_mask"])
        decay = float(case["loss_decay_gamma"])

        def objective(draft, confidence, case=case, labels=labels, counted=counted, decay=decay):
            target = jnp.asarray(case["target_logits"])
            return dspark_loss.loss(draft, target, confidence, labels, counted, decay)

        run = jax.value_and_grad(objective, argnums=(0, 1), has_aux=True)
        (value, seen), (by_draft, by_confidence) = run(
            jnp.asarray(case["draft_logits"]), jnp.asarray(case["conf_logits"])
        )
        np.testing.assert_allclose(value, case["loss"], rtol=2e-6)
        for got, term in ((seen.cross_entropy, "ce"), (seen.l1, "l1")):
            wanted = case[f"{term}_loss_num"] / (case[f"{term}_loss_den"] + 1e-6)
            np.testing.assert_allclose(got, wanted, rtol=2e-6)
        np.testing.assert_allclose(by_draft, case["grad_draft_logits"], atol=2e-7, err_msg=name)
        np.testing.assert_allclose(by_confidence, case["grad_conf_logits"], atol=2e-7)
        wanted = np.where(case["eval_mask"], case["accept_rate"], 0)
        np.testing.assert_allclose(seen.accept, wanted, atol=1e-6)
        np.testing.assert_allclose(seen.accepted_length, case["tau_prob_sum"], rtol=1e-6)
        assert int(seen.blocks) == int(case["tau_blocks"])


def test_anchors_and_labels_equal_recorded_ones(units: pathlib.Path) -> None:
    for name, case in _cases(units / "train_anchors.npz").items():
        count, size = case["eval_mask"].shape[1:]
        got = dspark_blocks.choose(case["loss_mask"], case["rand"], count, size)
        np.testing.assert_array_equal(got.keep, case["keep"], err_msg=name)
        np.testing.assert_array_equal(got.anchors, case["anchors"], err_msg=name)
        np.testing.assert_array_equal(got.counted, case["eval_mask"], err_msg=name)
        np.testing.assert_array_equal(got.labels, case["safe_label_indices"], err_msg=name)
