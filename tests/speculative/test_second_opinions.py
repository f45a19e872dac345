"""Budgets, verdicts and rollback against what other engines recorded."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config
from ds_jax.models import cache as caches
from ds_jax.models import dspark, memory
from ds_jax.models.context import Context
from ds_jax.sampling import sample
from ds_jax.speculative import draws, plan, ragged, verify
from ds_jax.testing import tiny_model


@pytest.fixture(scope="module")
def units(golden: pathlib.Path) -> pathlib.Path:
    return golden / "dspark_units"


def _arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def _curve(time_ms: Callable[[int], float], most: int) -> plan.Planner:
    """A planner for steps of any number of rows."""
    return plan.Planner(plan.Curve.of({n: time_ms(n) for n in range(1, most + 1)}))


def _floor(points: Sequence[int], values: Sequence[float]) -> Callable[[int], float]:
    return lambda rows: 1.0 / values[int(np.searchsorted(points, rows, side="right")) - 1]


def test_budgets_equal_those_of_a_planner_by_steps_a_second(units: pathlib.Path) -> None:
    recorded = json.loads((units / "sched_budget.json").read_text())
    checked = 0
    for case in recorded["cases"]:
        table, survival = recorded["tables"][case["table"]], np.asarray(case["survival"])
        if case["table_kind"] != "sps" or survival.min() < case["survival_eps"]:
            continue  # a curve of two variables; drafts that hardly survive left out
        points, values = table["sample_batch_tokens"], table["sample_steps_per_sec"]
        most = min(table["max_batch_tokens"], survival.size + len(survival))
        planner = _curve(_floor(points, values), most)
        budget = planner.budget(survival.astype(np.float32))
        assert budget == case["budget"], case["name"]
        tokens = len(survival) + np.sort(survival.reshape(-1))[::-1][:budget].sum()
        speed = tokens / planner.curve.time_ms(len(survival) + budget)
        np.testing.assert_allclose(speed, case["predicted_theta"], rtol=1e-5)
        checked += 1
    assert checked >= 80


def test_lengths_equal_those_of_the_paper_with_all_budgets_searched(units: pathlib.Path) -> None:
    recorded = json.loads((units / "algorithm1_and_lossless.json").read_text())
    checked = 0
    for case in recorded["algorithm1_cases"]:
        a, b, c = (case["coef"].get(k) for k in "abc")
        if None in (a, b, c):
            continue  # a staircase told in words
        survival = np.cumprod(np.asarray(case["confidence"], np.float32), axis=1)
        planner = _curve(
            lambda n, a=a, b=b, c=c: a + b * n + c * n * n, survival.size + len(survival)
        )
        budget = planner.budget(survival)
        assert plan.places(survival, budget).tolist() == case["global_path"]["lengths"]
        checked += 1
    assert checked >= 12


def test_sizes_are_rounded_up_as_elsewhere(units: pathlib.Path) -> None:
    for case in json.loads((units / "sched_tiers.json").read_text())["round_up_grid"]:
        curve = plan.Curve.of({rows: 1.0 for rows in case["grid"]})
        assert curve.size(case["total"]) == case["out"]


def test_places_equal_those_of_an_adaptive_verifier(units: pathlib.Path) -> None:
    for case in json.loads((units / "vllm_adaptive.json").read_text())["assign"]:
        survival = np.cumprod(np.asarray(case["confidence"], np.float32), axis=1)
        room = np.asarray(case["capacity"])[:, None] > np.arange(survival.shape[1])[None, :]
        got = plan.places(np.where(room, survival, -1.0), case["budget"])
        assert got.tolist() == case["admitted"]


def test_verdicts_equal_those_of_a_batched_rejection_sampler(units: pathlib.Path) -> None:
    arrays = _arrays(units / "verify_batched.npz")
    for name in ("sampled", "sampled_cut", "onehot", "onehot_cut"):
        case = {k.split("/")[1]: v for k, v in arrays.items() if k.split("/")[0] == name}
        ids, vocab = case["candidates"], case["target_logits"].shape[-1]
        r, width = ids.shape
        heat = np.maximum(case["temperatures"], 1e-6)[:, None, None]
        p = jax.nn.softmax(jnp.asarray(case["target_logits"] / heat, jnp.float32))
        if case["one_hot_draft"]:
            q = jax.nn.one_hot(ids[:, 1:], vocab, dtype=jnp.float32)
        else:
            q = jax.nn.softmax(jnp.asarray(case["draft_logits"] / heat, jnp.float32))
        lens = case["verify_lens"] - 1 if len(case["verify_lens"]) else np.full(r, width - 1)
        rows = ragged.pack(jnp.asarray(lens, jnp.int32), jnp.ones(r, bool), r * width)
        at = ids[:, 1:, None]
        mine = jnp.take_along_axis(p[:, :-1], at, 2)[..., 0]
        chance = verify.ratio(jnp.log(mine), jnp.log(jnp.take_along_axis(q, at, 2)[..., 0]))
        passes = case["coins"] < np.asarray(chance)
        packed = passes[rows.sequence, jnp.minimum(rows.within, width - 2)]
        accepted = np.asarray(verify.prefix(packed, rows, width - 1))
        np.testing.assert_array_equal(accepted, case["correct_len"], err_msg=name)


@pytest.mark.parametrize("name", ["temp_only", "top_p", "top_k"])
def test_laws_of_the_target_equal_recorded_ones(units: pathlib.Path, name: str) -> None:
    arrays = _arrays(units / "verify_target_probs.npz")
    case = {k.split("/")[1]: v for k, v in arrays.items() if k.startswith(f"{name}/")}
    r, width, vocab = case["logits"].shape

    def each(values: np.ndarray, dtype: Any) -> jax.Array:
        return jnp.repeat(jnp.asarray(values, dtype), width)

    vocabulary = np.where(case["top_ks"] >= vocab, -1, case["top_ks"])
    how = sample.Controls(
        temperature=each(case["temperatures"], jnp.float32),
        top_p=each(case["top_ps"], jnp.float32),
        top_k=each(vocabulary, jnp.int32),
        seed=jnp.zeros((r * width, 2), jnp.uint32),
        position=jnp.zeros(r * width, jnp.int32),
    )
    law = jnp.exp(draws.log_law(jnp.asarray(case["logits"].reshape(-1, vocab)), how))
    np.testing.assert_allclose(law.reshape(r, width, vocab), case["probs"], atol=2e-6)


def test_confidence_and_taps_equal_recorded_ones(units: pathlib.Path) -> None:
    case = _arrays(units / "deepinfer_draft_meta.npz")
    hidden, embed = jnp.asarray(case["conf/hidden"]), jnp.asarray(case["conf/markov_emb"])
    ctx = Context(tiny_model(), config.numerics_preset("float32"))
    drafter = dspark.DSparkParams(
        blocks=(),
        main_proj=jnp.zeros((1, 1)),
        main_norm=jnp.zeros(1),
        norm=jnp.zeros(1),
        markov_embed=embed,
        markov_head=jnp.zeros((3, embed.shape[1])),
        confidence=jnp.asarray(case["conf/weight"]).T,
    )
    previous = jnp.arange(len(hidden), dtype=jnp.int32)
    _, logit = dspark.follow(ctx, drafter, jnp.zeros((len(hidden), 3)), hidden, previous)
    for heat in (1.0, 0.85, 2.0):
        got = jax.nn.sigmoid(logit / heat)
        np.testing.assert_allclose(got, case[f"conf/T{heat}"], atol=2e-3)  # hidden was bf16 there


def test_blocks_stand_and_see_as_recorded(units: pathlib.Path) -> None:
    arrays = _arrays(units / "deepinfer_draft_meta.npz")
    for number in range(3):
        case = {k.split("/")[1]: v for k, v in arrays.items() if k.startswith(f"meta{number}/")}
        window, gamma, ring = (int(case[k]) for k in ("window", "gamma", "ring"))
        model = tiny_model(sliding_window=window)
        kept = case["first_row"] >= 0
        rows = np.maximum(case["first_row"], 0) + case["num_accepted"]
        anchor = case["positions"][rows] + 1
        where = anchor[:, None] + np.arange(gamma)[None, :]
        wanted = case["draft_positions"].reshape(-1, gamma)
        np.testing.assert_array_equal(where[kept], wanted[kept])
        held = caches.ring_positions(jnp.asarray(anchor - 1, jnp.int32), ring)
        sees = dspark.window_mask(model, jnp.asarray(anchor[:, None], jnp.int32), held)
        listed = case["kv_index"].reshape(len(kept), gamma, -1)[:, 0]
        context = (listed >= 0).sum(-1) - gamma  # its own block is listed behind it
        np.testing.assert_array_equal(np.asarray(sees.sum((1, 2)))[kept], context[kept])


def test_compressed_rows_outlive_rejections_as_recorded(units: pathlib.Path) -> None:
    case = _arrays(units / "compressor_rollback.npz")
    ratio, ring = int(case["ratio"]), int(case["ring"])
    slots, at = jnp.asarray(case["state_slots"], jnp.int32), case["start"].astype(np.int32)
    tail = jax.lax.bitcast_convert_type(jnp.asarray(case["initial_state"]), jnp.uint32)
    cache = caches.Cache(jnp.zeros((0, 0, 0, 0), jnp.uint16), (), (), (tail,))
    layout = caches.Layout(len(tail), 0, backtrack=ring - ratio + 1, drafts=5)
    assert layout.tail_rows(ratio) == ring
    final: list[dict[int, np.ndarray]] = [{} for _ in at]
    for number in range(6):
        lens = case[f"step{number}/lens"].astype(np.int32)
        most, first = int(lens.max()), np.cumsum(lens) - lens
        row = np.minimum(first[:, None] + np.arange(most)[None, :], lens.sum() - 1)
        parts = np.stack([case[f"step{number}/{n}"][row] for n in ("score", "latent")], axis=2)
        batch = caches.Batch(
            token_ids=jnp.zeros((len(at), most), jnp.int32),
            lookback_ids=jnp.zeros((len(at), 0), jnp.int32),
            start=jnp.asarray(at),
            lens=jnp.asarray(lens),
            slots=slots,
            page_table=jnp.zeros((len(at), 0), jnp.int32),
        )
        access = memory.Access(layout, fresh=False)
        cache, found = memory.groups(access, cache, 0, ratio, jnp.asarray(parts), batch)
        weight = jax.nn.softmax(found.parts[:, :, :, 0], axis=2)
        latents = np.asarray(jnp.sum(weight * found.parts[:, :, :, 1], axis=2))
        for r, group in np.argwhere(np.asarray(found.closed)):
            final[r][int(found.numbers[r, group])] = latents[r, group]
        at = at + case[f"step{number}/committed"].astype(np.int32)
        assert cache is not None and cache.tails[0] is not None
        held = np.asarray(jax.lax.bitcast_convert_type(cache.tails[0], jnp.float32))
        wanted = case[f"step{number}/state_after"]
        for r, slot in enumerate(case["state_slots"]):
            here = [(int(at[r]) - 1) % ring]  # what the next step pools from
            np.testing.assert_allclose(held[slot, here], wanted[slot, here], atol=1e-6)
    for r, rows in enumerate(final):
        blocks = case[f"final{r}/block_ids"]
        got = np.stack([rows[int(n)] for n in blocks])
        np.testing.assert_allclose(got, case[f"final{r}/latents"], atol=4e-3, rtol=4e-3)
