"""Operators of drafting and verification against recorded data."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config
from ds_jax.models import dspark
from ds_jax.models.context import Context
from ds_jax.sampling import sample
from ds_jax.speculative import calibration, confidence, draws, ragged, verify
from ds_jax.testing import tiny_model


@pytest.fixture(scope="module")
def units(golden: pathlib.Path) -> pathlib.Path:
    return golden / "dspark_units"


def _cases(path: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            case, _, field = name.partition("/")
            found.setdefault(case, {})[field or "value"] = arrays[name]
    return found


def _controls(rows: int, temperature: float, top_p: float = 1.0, top_k: int = -1) -> Any:
    return sample.Controls(
        temperature=jnp.full(rows, temperature, jnp.float32),
        top_p=jnp.full(rows, top_p, jnp.float32),
        top_k=jnp.full(rows, top_k, jnp.int32),
        seed=jnp.zeros((rows, 2), jnp.uint32),
        position=jnp.arange(rows, dtype=jnp.int32),
    )


def test_places_by_live_confidences_equal_recorded_ones(units: pathlib.Path) -> None:
    lengths = jax.jit(confidence.lengths)
    for name, case in _cases(units / "deepinfer_zos_redistribute.npz").items():
        remap, live = case["remap"], case["prev_confidence"]
        mine = np.where(remap[:, None] >= 0, live[np.maximum(remap, 0)], 0.0).astype(np.float32)
        allowed = jnp.full(len(remap), live.shape[1], jnp.int32)
        budget = jnp.int32(int(case["total_q"]) - len(remap))
        got = lengths(confidence.survivals(jnp.asarray(mine), allowed), budget)
        np.testing.assert_array_equal(np.asarray(got) + 1, case["seqlens_q"], err_msg=name)


def test_places_equal_recorded_ones_of_a_second_implementation(units: pathlib.Path) -> None:
    checked = 0
    for case in json.loads((units / "sched_topk.json").read_text())["cases"]:
        live = np.asarray(case["confidence"], np.float32)
        width = case["gamma"] + 1
        plain = case["min_verify_len"] == 1 and case["max_verify_len"] == width
        survival = np.cumprod(live, axis=1)
        ties = len(np.unique(survival)) < survival.size
        if not plain or ties or survival.min() < case["survival_eps"]:
            continue  # clamps, a floor and an order of equals that this scheduler does not have
        allowed = jnp.full(len(live), case["gamma"], jnp.int32)
        got = confidence.lengths(
            confidence.survivals(jnp.asarray(live), allowed), jnp.int32(case["budget"])
        )
        assert (np.asarray(got) + 1).tolist() == case["verify_lens"], case["name"]
        checked += 1
    assert checked > 50


def test_packed_rows_equal_recorded_ones(units: pathlib.Path) -> None:
    for name, case in _cases(units / "ragged_pack.npz").items():
        lens = jnp.asarray(case["verify_lens"] - 1, jnp.int32)
        got = ragged.pack(lens, jnp.ones(len(lens), bool), int(case["bucket"]))
        valid = case["valid"]
        np.testing.assert_array_equal(got.valid, valid, err_msg=name)
        np.testing.assert_array_equal(got.sequence[valid], case["req_id"][valid])
        np.testing.assert_array_equal(got.within, case["within"])
        anchored = np.concatenate([case["anchors"][:, None], case["draft_tokens"]], axis=1)
        ids = np.where(valid, anchored[got.sequence, got.within], 0)
        np.testing.assert_array_equal(ids, case["verify_ids"])
        where = np.where(valid, case["prefix_lens"][got.sequence] + got.within, 0)
        np.testing.assert_array_equal(where, case["positions"])


def test_laws_and_acceptance_equal_recorded_ones(units: pathlib.Path) -> None:
    for name, case in _cases(units / "deepinfer_verify.npz").items():
        count = len(case["is_verify"])
        setting = float(case["temperature"]), float(case["top_p"]), int(case["top_k"])
        log_p = np.asarray(
            draws.log_law(jnp.asarray(case["target_logits"]), _controls(count, *setting))
        )
        wanted = case["target_logprobs"]
        kept = wanted > -1e30
        np.testing.assert_array_equal(log_p > -np.inf, kept & np.isfinite(wanted), err_msg=name)
        here = kept & np.isfinite(wanted)
        np.testing.assert_allclose(log_p[here], wanted[here], atol=2e-5, rtol=2e-6)
        read = np.maximum(case["read_rows"], 0)
        draft, law = case["draft_tokens_pool"][read], case["draft_logprobs_pool"][read]
        at = np.maximum(draft, 0)[:, None]
        chance = verify.ratio(
            jnp.take_along_axis(jnp.asarray(log_p), at, 1)[:, 0],
            jnp.take_along_axis(jnp.asarray(law), at, 1)[:, 0],
        )
        passes = (case["u_accept"] < np.asarray(chance)) & (draft >= 0) & case["is_verify"]
        np.testing.assert_array_equal(passes, case["accept_raw"] & case["is_verify"])
        lens = jnp.asarray(case["seqlens_q"] - 1, jnp.int32)
        rows = ragged.pack(lens, jnp.ones(len(lens), bool), count)
        accepted = verify.prefix(jnp.asarray(passes), rows, int(lens.max()))
        np.testing.assert_array_equal(accepted, case["num_accepted"], err_msg=name)


def test_law_behind_drafts_equals_recorded_one(units: pathlib.Path) -> None:
    for name, case in _cases(units / "verify_deepspec.npz").items():
        if float(case["temperature"]) == 0 or int(case["eos"]) >= 0:
            continue  # it also ends sequences, which the scheduler does here
        p, q = jnp.asarray(case["target_probs"]), jnp.asarray(case["draft_probs"])
        ids, accepted = case["verify_ids"][1:], 0
        for k, token in enumerate(ids):
            chance = verify.ratio(jnp.log(p[k, token]), jnp.log(jnp.maximum(q[k, token], 1e-8)))
            if not case["coins"][k] < float(chance):
                break
            accepted += 1
        assert accepted == int(case["accepted"]), name
        if accepted < len(ids):
            law = np.asarray(verify.residual(p[accepted], q[accepted]))
        else:
            law = np.asarray(p[-1])
        if not case["stopped"]:
            np.testing.assert_allclose(law / law.sum(), case["next_token_law"], atol=2e-6)


def test_greedy_verdicts_equal_recorded_ones(units: pathlib.Path) -> None:
    with np.load(units / "verify_greedy.npz") as case:
        ids, best = case["candidates"], case["target_argmax"]
        count, width = ids.shape
        lens = jnp.asarray(case["verify_lens"] - 1, jnp.int32)
        rows = ragged.pack(lens, jnp.ones(count, bool), count * width)
        vocab = int(max(ids.max(), best.max())) + 1
        logits = jax.nn.one_hot(best[rows.sequence, rows.within], vocab, dtype=jnp.float32)
        got = verify.verify(
            logits,
            rows,
            _controls(count, 0.0),
            jnp.zeros(count, bool),
            jnp.asarray(ids[:, 1:], jnp.int32),
            jnp.zeros((count, width - 1, vocab), jnp.float32),
        )
        np.testing.assert_array_equal(got.accepted, case["capped_len"])
        np.testing.assert_array_equal(got.token, best[np.arange(count), case["capped_len"]])


def test_fitted_temperatures_and_errors_equal_recorded_ones(units: pathlib.Path) -> None:
    with np.load(units / "sts_fit.npz") as case:
        got = calibration.fit(case["logits"], case["prefix_mask"], case["grid"])
        np.testing.assert_allclose(got.temperatures, case["temperatures"], rtol=1e-12)
        np.testing.assert_allclose(got.error_before, case["ece_before"], atol=2e-6)
        np.testing.assert_allclose(got.error_after, case["ece_after"], atol=2e-6)
        logits, mask = case["logits"], case["prefix_mask"]
    recorded = json.loads((units / "sts_metrics.json").read_text())
    for case in recorded["ece_cases"]:
        got = calibration.error(case["probs"], case["targets"], case["num_bins"])
        assert abs(got - case["ece"]) < 2e-6
    survival = calibration.survivals(logits, np.ones(logits.shape[1]))
    for k, metric in enumerate(recorded["metrics_identity"]):
        assert abs(calibration.auc(survival[:, k], mask[:, k]) - metric["auc"]) < 1e-4


def test_distorted_confidences_are_repaired(units: pathlib.Path) -> None:
    with np.load(units / "sts_fit.npz") as case:
        logits, mask = case["logits"], case["prefix_mask"]
    calibrated = calibration.fit(logits, mask)
    distorted = calibration.fit(logits * np.array([3.0, 0.5, 2.0, 4.0, 0.4])[None, :], mask)
    assert distorted.error_before.mean() > 2 * distorted.error_after.mean()
    assert distorted.error_after.mean() < 1.2 * calibrated.error_after.mean()


def test_sequential_head_and_confidence_equal_recorded_ones(units: pathlib.Path) -> None:
    case = _cases(units / "markov_heads.npz")["vanilla"]
    w1, w2 = (case[f"param/markov_w{n}.weight"] for n in (1, 2))
    ctx = Context(tiny_model(), config.FLOAT32)
    params: Any = dspark.DSparkParams(
        *((), None, None, None, jnp.asarray(w1), jnp.asarray(w2)),
        confidence=jnp.asarray(case["conf/weight"]),
    )
    base, hidden = case["train/base_logits"], case["train/hidden"]
    previous = jnp.asarray(case["train/prev_token_ids"].reshape(-1), jnp.int32)
    got, _ = dspark.follow(
        ctx,
        params,
        jnp.asarray(base.reshape(-1, base.shape[-1])),
        jnp.asarray(hidden.reshape(-1, hidden.shape[-1])),
        previous,
    )
    np.testing.assert_allclose(got.reshape(base.shape), case["train/logits"], atol=2e-6)
    tokens = jnp.asarray(case["greedy/anchor"], jnp.int32)
    for k in range(base.shape[2]):
        logits, sure = dspark.follow(
            ctx, params, jnp.asarray(base[:, 0, k]), jnp.asarray(hidden[:, 0, k]), tokens
        )
        wanted = case["greedy/corrected_logits"][:, k]
        np.testing.assert_allclose(logits, wanted, atol=2e-6)
        # the released head has no bias, the recorded one does
        np.testing.assert_allclose(
            sure + case["conf/bias"], case["conf/logit"][:, k], atol=2e-5, err_msg=f"{k}"
        )
        tokens = sample.largest(logits)
        np.testing.assert_array_equal(tokens, case["greedy/tokens"][:, k])


def test_blocks_see_the_recorded_positions(units: pathlib.Path) -> None:
    for name, case in _cases(units / "draft_visibility.npz").items():
        model = tiny_model(sliding_window=int(name[1:]))
        size = int(case["gamma"])
        for number, length in enumerate(case["prefix_lens"].tolist()):
            places = jnp.arange(length + 1, dtype=jnp.int32)[None, :]
            anchors = jnp.full((1, size), length, jnp.int32)
            mask = np.asarray(dspark.window_mask(model, anchors, places))[0, 0]
            context = np.flatnonzero(mask)
            seen = [*context.tolist(), *range(length, length + size)]
            wanted = case["visible_positions"][number, 0]
            assert seen == sorted(wanted[wanted >= 0].tolist()), f"{name} {length}"
