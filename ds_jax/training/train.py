"""Training of the text model: AdamW, warm-up then decay, quantisation-aware from a chosen step on.

Decides the optimiser and the schedule. Never builds data, never defines a loss.
In: rows, a config, a recipe. Out: parameters, checkpoints and a log.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib

from ds_jax import config
from ds_jax.checkpoint import quantize
from ds_jax.models import deepseek_v41, engram
from ds_jax.models.context import Context
from ds_jax.sharding import params as declared
from ds_jax.training import loss


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides a run besides data and config."""

    steps: int
    batch_rows: int = 16
    peak_rate: float = 4e-3
    warmup: int = 40
    cooldown: float = 0.4  # share of the steps over which the rate falls to zero
    weight_decay: float = 0.05
    bias_rate: float = 5e-3  # step of the router's selection bias
    dense_selection: int = (
        0  # steps during which every visible row is attended (the indexer only learns)
    )
    seed: int = 0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """What a checkpoint of a run holds."""

    params: deepseek_v41.Params
    optimizer: optax.OptState
    step: jax.Array


def rate(recipe: Recipe, step: int) -> float:
    """Learning rate of a step: linear warm-up, constant, linear fall to zero.

    Computed on the host and passed in, so that a run can be lengthened without compiling again.
    """
    fall = max(1.0, recipe.steps * recipe.cooldown)
    return recipe.peak_rate * min(1.0, (step + 1) / recipe.warmup, (recipe.steps - step) / fall)


def optimizer(model: config.Model, recipe: Recipe) -> optax.GradientTransformation:
    """Muon for the linear layers, AdamW for the rest, at rate 1 (the step scales the update).

    Linear layers are the parameters a quantised checkpoint stores in FP8 or FP4 blocks; embedding,
    head, router, Engram rows, hyper-connections and norms are AdamW's. Muon's updates are scaled to
    the size of AdamW's (`consistent_rms`), so that one rate serves both.
    """
    axes = optax.contrib.MuonDimensionNumbers(reduction_axis=-1, output_axis=-2)
    linear = jax.tree.map(
        lambda spec: axes if spec.storage in ("fp8", "fp4") else None, deepseek_v41.spec(model)
    )
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.contrib.muon(
            1.0,
            weight_decay=recipe.weight_decay,
            adam_b1=0.9,
            adam_b2=0.98,
            consistent_rms=0.2,
            muon_weight_dimension_numbers=linear,
        ),
    )


def init(model: config.Model, recipe: Recipe) -> TrainState:
    """Random parameters; the embedding starts small, the head smaller."""
    params = declared.initialize(deepseek_v41.spec(model), recipe.seed)
    params = dataclasses.replace(params, head=params.head * 0.5)
    return TrainState(params, optimizer(model, recipe).init(params), jnp.zeros((), jnp.int32))


def make_step(
    model: config.Model, numerics: config.Numerics, recipe: Recipe, tables: engram.HashTables | None
) -> Callable[..., tuple[TrainState, loss.Measures]]:
    """One compiled update; the state is donated. Weights are quantised as the checkpoint stores
    them.
    """
    ctx = Context(model, numerics, moe_path="capacity")
    spec = deepseek_v41.spec(model)
    update_rule = optimizer(model, recipe)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: TrainState, tokens: jax.Array, weights: jax.Array, rate: jax.Array):
        def objective(params):
            stored = quantize.fake_quantize(spec, params, quantized=model.quantization is not None)
            return loss.text_loss(
                ctx, stored, tables, tokens.astype(jnp.int32), weights.astype(jnp.float32)
            )

        (_, measures), grads = jax.value_and_grad(objective, has_aux=True)(state.params)
        held: Any = state.params  # optax knows no dataclasses
        updates, rule = update_rule.update(grads, state.optimizer, held)
        updates = jax.tree.map(lambda u: u * rate, updates)
        params: Any = optax.apply_updates(held, updates)
        return TrainState(
            _balance(params, measures.loads, recipe.bias_rate), rule, state.step + 1
        ), measures

    return step


def _balance(params: deepseek_v41.Params, loads: jax.Array, rate: float) -> deepseek_v41.Params:
    """Raise the selection bias of experts with too few tokens, lower that of the others; no
    gradient.
    """
    layers = []
    for p, load in zip(params.layers, loads, strict=True):
        bias = p.ffn.bias + rate * jnp.sign(1.0 - load)
        bias = bias - jnp.mean(bias)
        layers.append(
            dataclasses.replace(p, ffn=dataclasses.replace(p.ffn, bias=bias, bias_vl=bias))
        )
    return dataclasses.replace(params, layers=tuple(layers))


def batches(
    tokens: np.ndarray, weights: np.ndarray, rows: int, seed: int, first: int
) -> Iterator[tuple]:
    """Endless batches: every epoch a new order, a pure function of (seed, step)."""
    per_epoch = len(tokens) // rows
    step = first
    while True:
        epoch, place = divmod(step, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(tokens))
        for i in range(place, per_epoch):
            chosen = order[i * rows : (i + 1) * rows]
            yield tokens[chosen], weights[chosen]
            step += 1


def run(
    model: config.Model,
    numerics: config.Numerics,
    recipe: Recipe,
    tables: engram.HashTables | None,
    data: Iterator[tuple],
    state: TrainState,
    log: pathlib.Path,
    save: Callable[[TrainState, int], None],
    save_every: int = 100,
) -> TrainState:
    """Train until `recipe.steps`, writing one JSON line a step to `log` and checkpoints by
    `save`.
    """
    wide = dataclasses.replace(model, index_topk=1 << 20, candidate_topk_blocks=1 << 20)
    steps = {
        True: make_step(wide, numerics, recipe, tables),
        False: make_step(model, numerics, recipe, tables),
    }
    started = time.monotonic()
    with log.open("a") as file:
        for number in range(int(state.step), recipe.steps):
            tokens, weights = next(data)
            state, measures = steps[number < recipe.dense_selection](
                state, tokens, weights, np.float32(rate(recipe, number))
            )
            line = {
                "step": number,
                "loss": round(float(measures.loss), 4),
                "indexer": round(float(measures.indexer), 4),
                "max_load": round(float(measures.loads.max()), 2),
                "elapsed_s": round(time.monotonic() - started, 1),
            }
            file.write(json.dumps(line) + "\n")
            file.flush()
            if (number + 1) % save_every == 0:
                save(state, number + 1)
    return state
