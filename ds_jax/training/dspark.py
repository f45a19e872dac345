"""Training of the drafter: the target stays as it is, its hidden states are what is learned from.

Decides initial values, what a step sees, optimiser and order. Never changes the target, never
defines a loss or anchors. In: a checkpoint without or with a drafter, packed rows. Out: drafter
parameters, a log, states in a folder.

Features of a row are computed once, by the checkpoint's own weights and numerics, and kept: entry
streams of the tapped layers and the last normalised hidden vector, from which the target's
distribution follows.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ds_jax import config
from ds_jax.checkpoint import quantize
from ds_jax.models import deepseek_v41, dspark, engram, layer, memory, norm
from ds_jax.models.context import Context
from ds_jax.sharding import params as declared
from ds_jax.training import dspark_blocks, dspark_loss, loss, rows, train

LOG = "dspark_log.jsonl"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides a run besides data and config."""

    steps: int
    batch_rows: int = 4
    anchors: int = 24  # blocks a row and step
    peak_rate: float = 2e-3
    warmup: int = 30
    cooldown: float = 0.6
    weight_decay: float = 0.01
    bias_rate: float = 2e-3
    seed: int = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DrafterState:
    """What a checkpoint of a run holds."""

    params: dspark.DSparkParams
    optimizer: optax.OptState
    step: jax.Array


def optimizer(recipe: Recipe) -> optax.GradientTransformation:
    """AdamW at rate 1: the step scales the update."""
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(1.0, b1=0.9, b2=0.98, weight_decay=recipe.weight_decay),
    )


def initial(
    model: config.Model, target: deepseek_v41.Params, recipe: Recipe
) -> dspark.DSparkParams:
    """Blocks start as the target's last layers, the context as the mean of the taps.

    The Markov head starts small and the confidence at one half. Block n is a copy of layer
    L - blocks + n without compressed rows; experts beyond the target's number are new.
    """
    fresh = declared.initialize(dspark.spec(model), recipe.seed)
    first = model.num_hidden_layers - len(fresh.blocks)

    def block(new: dspark.BlockParams, old: layer.LayerParams) -> dspark.BlockParams:
        def copied(mine: jax.Array, theirs: jax.Array) -> jax.Array:
            count = min(mine.shape[0], theirs.shape[0])
            return mine.at[:count].set(theirs[:count].astype(mine.dtype))

        return jax.tree.map(
            copied,
            new,
            dspark.BlockParams(
                old.attn, old.attn_norm, old.ffn_norm, old.hc_attn, old.hc_ffn, old.ffn
            ),
        )

    # nothing may be shared with the target: a step is donated its state
    taps = len(model.dspark_target_layer_ids)
    eye = jnp.eye(model.hidden_size, dtype=jnp.float32) / taps
    return dataclasses.replace(
        fresh,
        blocks=tuple(
            block(new, old) for new, old in zip(fresh.blocks, target.layers[first:], strict=True)
        ),
        main_proj=jnp.concatenate([eye] * taps, axis=1),
        norm=jnp.array(target.norm, jnp.float32, copy=True),
        markov_embed=fresh.markov_embed * 0.2,
        markov_head=fresh.markov_head * 0.2,
        confidence=fresh.confidence * 0.0,
    )


class Features:
    """Hidden states of the target for rows, computed when first asked for. Mutates itself."""

    def __init__(
        self,
        ctx: Context,
        params: deepseek_v41.Params,
        tables: engram.HashTables | None,
        tokens: np.ndarray,
    ):
        model, (count, length) = ctx.model, tokens.shape
        taps = len(model.dspark_target_layer_ids)
        self.tokens = tokens
        self._known = np.zeros(count, bool)
        kind = jnp.bfloat16 if ctx.rounds else jnp.float32
        shape = (count, length - 1, model.hidden_size)
        self._taps = np.zeros((taps, *shape), kind)
        self._hidden = np.zeros(shape, kind)
        self._run = functools.partial(_features, ctx, params, tables)

    def of(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(taps [taps B S D], normalised last hidden [B S D]) of some rows."""
        if not self._known[chosen].all():
            taps, hidden = self._run(self.tokens[chosen][:, :-1].astype(np.int32))
            self._taps[:, chosen] = np.asarray(taps)
            self._hidden[chosen] = np.asarray(hidden)
            self._known[chosen] = True
        return self._taps[:, chosen], self._hidden[chosen]


@functools.partial(jax.jit, static_argnums=0)
def _features(ctx: Context, params, tables, ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    batch = loss.whole_rows(ctx.model, ids)
    _, out, _ = deepseek_v41.forward(ctx, memory.Access(None, True), params, tables, batch)
    kind = jnp.bfloat16 if ctx.rounds else jnp.float32
    hidden = norm.rms_norm(ctx, out.hidden, params.norm)
    return jnp.stack(out.taps).astype(kind), hidden.astype(kind)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Examples:
    """What one step sees."""

    tokens: jax.Array  # [B S+1] int32
    taps: jax.Array  # [taps B S D]
    hidden: jax.Array  # [B S D]
    anchors: jax.Array  # [B A]
    labels: jax.Array  # [B A K]
    counted: jax.Array  # [B A K]


def examples(
    features: Features,
    weights: np.ndarray,
    chosen: np.ndarray,
    recipe: Recipe,
    size: int,
    draw: int,
) -> Examples:
    """Blocks of some rows; a function of (seed, draw)."""
    tokens, mask = features.tokens[chosen].astype(np.int32), weights[chosen]
    random = np.random.default_rng([recipe.seed, 7, draw]).random((len(chosen), mask.shape[1] - 1))
    blocks = dspark_blocks.choose(mask, random, recipe.anchors, size)
    taps, hidden = features.of(chosen)
    return Examples(
        *(tokens, taps, hidden, blocks.anchors.astype(np.int32)),  # type: ignore[arg-type]
        *(blocks.labels.astype(np.int32), blocks.counted),  # type: ignore[arg-type]
    )


def predict(
    ctx: Context,
    drafter: dspark.DSparkParams,
    embed: jax.Array,
    head: jax.Array,
    given: Examples,
) -> tuple[jax.Array, jax.Array, jax.Array, list[jax.Array]]:
    """Teacher-forced logits [B A K V] of drafter and target, confidence logits, expert loads."""
    model = ctx.model
    b, a, size = given.labels.shape
    s, d = given.hidden.shape[1:]
    places = jnp.broadcast_to(jnp.arange(s, dtype=jnp.int32)[None, :], (b, s))
    taps = [tap.astype(ctx.dtype) for tap in given.taps]
    mixed = dspark.context(ctx, drafter, taps)
    contexts = dspark.context_rows(ctx, drafter, mixed, dspark.angles(model, places))
    steps = jnp.arange(size, dtype=jnp.int32)
    positions = (given.anchors[:, :, None] + steps[None, None, :]).reshape(b, a * size)
    anchors = jnp.repeat(given.anchors, size, axis=1)
    at = jnp.minimum(given.anchors[:, :, None] + steps[None, None, :], s - 1)
    rows_of = jnp.arange(b)[:, None, None]
    previous = given.tokens[rows_of, at]
    ids = jnp.where((steps == 0)[None, None, :], previous, model.dspark_noise_token_id)
    block_of = jnp.arange(a * size) // size
    own = jnp.broadcast_to((block_of[:, None] == block_of[None, :])[None], (b, a * size, a * size))
    x, seen = dspark.forward(
        ctx,
        drafter,
        embed[ids.reshape(b, a * size)].astype(ctx.dtype),
        dspark.angles(model, positions),
        contexts,
        dspark.window_mask(model, anchors, places),
        own,
    )
    flat = x.reshape(b * a * size, d)
    base = dspark.base_logits(ctx, drafter, head, flat)
    logits, confidence = dspark.follow(ctx, drafter, base, flat, previous.reshape(-1))
    hidden = given.hidden[rows_of, at].reshape(b * a * size, d).astype(ctx.dtype)
    target = ctx.linear_f32(hidden, head)
    shape = (b, a, size)
    return (
        logits.reshape(*shape, -1),
        target.reshape(*shape, -1),
        confidence.reshape(shape),
        seen["loads"],
    )


def make_step(
    model: config.Model, numerics: config.Numerics, recipe: Recipe, target: deepseek_v41.Params
) -> Callable[..., tuple[DrafterState, dspark_loss.Measures]]:
    """One compiled update; the state is donated. Weights are quantised as they are stored."""
    ctx = Context(model, numerics, moe_path="capacity")
    spec = dspark.spec(model)
    rule = optimizer(recipe)
    embed, head = target.embed, target.head

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: DrafterState, given: Examples, rate: jax.Array):
        def objective(params):
            stored = quantize.fake_quantize(spec, params, quantized=model.quantization is not None)
            draft, wanted, confidence, loads = predict(ctx, stored, embed, head, given)
            labels = given.tokens[jnp.arange(len(given.tokens))[:, None, None], given.labels]
            value, measures = dspark_loss.loss(draft, wanted, confidence, labels, given.counted)
            return value, (measures, loads)

        grads, (measures, loads) = jax.grad(objective, has_aux=True)(state.params)
        held: Any = state.params  # optax knows no dataclasses
        updates, after = rule.update(grads, state.optimizer, held)
        params: Any = optax.apply_updates(held, jax.tree.map(lambda u: u * rate, updates))
        params = dataclasses.replace(params, blocks=_balance(params.blocks, loads, recipe))
        return DrafterState(params, after, state.step + 1), measures

    return step


def _balance(blocks, loads: list[jax.Array], recipe: Recipe):
    """Raises the selection bias of experts with too few tokens; no gradient."""
    out = []
    for block, load in zip(blocks, loads, strict=True):
        bias = block.ffn.bias + recipe.bias_rate * jnp.sign(1.0 - load)
        bias = bias - jnp.mean(bias)
        out.append(
            dataclasses.replace(block, ffn=dataclasses.replace(block.ffn, bias=bias, bias_vl=bias))
        )
    return tuple(out)


def train_drafter(
    model: config.Model,
    numerics: config.Numerics,
    recipe: Recipe,
    target: deepseek_v41.Params,
    tables: engram.HashTables | None,
    data: rows.Rows,
    state: DrafterState,
    out: pathlib.Path,
    save: Callable[[DrafterState, int], None],
    save_every: int = 200,
) -> DrafterState:
    """Trains until `recipe.steps`, one JSON line a step, states by `save`."""
    ctx = Context(model, numerics)
    features = Features(ctx, target, tables, data.tokens)
    step = make_step(model, numerics, recipe, target)
    schedule = train.Recipe(
        recipe.steps, peak_rate=recipe.peak_rate, warmup=recipe.warmup, cooldown=recipe.cooldown
    )
    size, per_epoch = model.dspark_block_size, len(data.tokens) // recipe.batch_rows
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    with (out / LOG).open("a") as file:
        for number in range(int(state.step), recipe.steps):
            epoch, place = divmod(number, per_epoch)
            order = np.random.default_rng([recipe.seed, epoch]).permutation(len(data.tokens))
            chosen = order[place * recipe.batch_rows : (place + 1) * recipe.batch_rows]
            given = examples(features, data.weights, chosen, recipe, size, number)
            state, seen = step(state, given, np.float32(train.rate(schedule, number)))
            file.write(json.dumps(line(number, seen, time.monotonic() - started)) + "\n")
            file.flush()
            if (number + 1) % save_every == 0 or number + 1 == recipe.steps:
                save(state, number + 1)
    return state


def line(number: int, seen: dspark_loss.Measures, elapsed_s: float) -> dict[str, Any]:
    """The log line of a step."""
    blocks = max(float(seen.blocks), 1.0)
    return {
        "step": number,
        "cross_entropy": round(float(seen.cross_entropy), 4),
        "l1": round(float(seen.l1), 4),
        "confidence": round(float(seen.confidence), 4),
        "accept": [round(v / blocks, 3) for v in np.asarray(seen.accept).sum((0, 1)).tolist()],
        "length": round(float(seen.accepted_length) / blocks, 3),
        "elapsed_s": round(elapsed_s, 1),
    }
