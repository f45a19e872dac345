"""The drafter against the recorded case: context rows, block pass, heads, in float32."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config
from ds_jax.checkpoint import loader
from ds_jax.models import deepseek_v41, dspark, memory
from ds_jax.models.context import Context
from ds_jax.testing import Recorded, largest_difference
from ds_jax.training import loss

LOGITS, HIDDEN, SITES = 1e-4, 1e-4, 5e-5


@pytest.fixture(scope="module")
def case(golden: pathlib.Path) -> Recorded:
    return Recorded.read(golden / "model" / "dspark")


@pytest.fixture(scope="module")
def model(case: Recorded) -> config.Model:
    return config.load_model(case.folder)


@pytest.fixture(scope="module")
def params(case: Recorded, model: config.Model) -> deepseek_v41.Params:
    return loader.load(case.folder, model, weights="dequantized", dtype=jnp.float32, drafter=True)


@functools.partial(jax.jit, static_argnums=0)
def _taps(ctx: Context, params: deepseek_v41.Params, ids: jax.Array) -> tuple[jax.Array, ...]:
    batch = loss.whole_rows(ctx.model, ids)
    _, out, _ = deepseek_v41.forward(ctx, memory.Access(None, True), params, None, batch)
    return out.taps


def _round(
    ctx: Context, params: deepseek_v41.Params, mixed: jax.Array, anchor: int, at: int
) -> dict[str, Any]:
    """One draft block behind the context rows 0 .. at - 1."""
    drafter = params.drafter
    assert drafter is not None
    rows, seen, x, base = _block(ctx, params, mixed, jnp.int32(anchor), at)
    tokens, logits, confidence = [anchor], [], []
    for k in range(ctx.model.dspark_block_size):
        line, sure = dspark.follow(
            ctx, drafter, base[k : k + 1], x[0, k : k + 1], jnp.asarray(tokens[-1:], jnp.int32)
        )
        logits.append(line[0])
        confidence.append(sure[0])
        tokens.append(int(line[0].argmax()))
    return {
        "ids": tokens,
        "rows": rows,
        "block_kv": seen["block_kv"],
        "draft_head_hidden": x[0],
        "draft_base_logits": base,
        "draft_logits": jnp.stack(logits),
        "draft_conf_logit": jnp.stack(confidence),
    }


@functools.partial(jax.jit, static_argnums=(0, 4))
def _block(ctx: Context, params: deepseek_v41.Params, mixed, anchor, at: int):
    model, drafter = ctx.model, params.drafter
    assert drafter is not None
    size = model.dspark_block_size
    places = jnp.arange(at, dtype=jnp.int32)[None, :]
    rows = dspark.context_rows(ctx, drafter, mixed, dspark.angles(model, places))
    positions = at + jnp.arange(size, dtype=jnp.int32)[None, :]
    ids = jnp.full((1, size), model.dspark_noise_token_id, jnp.int32).at[0, 0].set(anchor)
    anchors = jnp.full((1, size), at, jnp.int32)
    x, seen = dspark.forward(
        ctx,
        drafter,
        params.embed[ids].astype(ctx.dtype),
        dspark.angles(model, positions),
        rows,
        dspark.window_mask(model, anchors, places),
        jnp.ones((1, size, size), bool),
    )
    return rows, seen, x, dspark.base_logits(ctx, drafter, params.head, x[0])


def test_drafter_equals_the_recorded_rounds(
    case: Recorded, model: config.Model, params: deepseek_v41.Params
) -> None:
    ctx = Context(model, config.FLOAT32)
    assert params.drafter is not None
    for prompt in case.prompts:
        wanted = case.of(prompt["name"])
        taps = _taps(ctx, params, jnp.asarray([prompt["all_ids"]], jnp.int32))
        joined = np.concatenate([np.asarray(t[0]) for t in taps], axis=-1)
        assert largest_difference(joined, wanted["spark.main_hidden.call0"]) < HIDDEN
        mixed = dspark.context(ctx, params.drafter, taps)
        for number, recorded in enumerate(prompt["dspark"]["rounds"]):
            first, last = recorded["context_rows"]
            at = recorded["anchor_pos"]
            assert at == last, "the anchor follows its context"
            got = _round(ctx, params, mixed[:, :at], recorded["anchor_token"], at)
            call = f"call{number}"
            new = wanted[f"spark.main_x.{call}"]
            assert largest_difference(np.asarray(mixed[0, first:last]), new) < SITES
            for block in range(model.num_nextn_predict_layers):
                layer = model.num_hidden_layers + block
                for name, rows in (
                    ("ctx_kv", got["rows"][block][0, first:last]),
                    ("block_kv", got["block_kv"][block][0]),
                ):
                    value = wanted[f"spark.{name}.{layer}.{call}"]
                    assert (np.asarray(rows) != value).sum() <= 2, f"{name} of block {block}"
            for name, limit in (
                ("draft_head_hidden", HIDDEN),
                ("draft_base_logits", LOGITS),
                ("draft_logits", LOGITS),
                ("draft_conf_logit", LOGITS),
            ):
                difference = largest_difference(
                    np.asarray(got[name]), wanted[f"spark.{name}.{call}"]
                )
                assert difference < limit, f"{prompt['name']} {call} {name}"
            assert got["ids"] == recorded["ids"]
