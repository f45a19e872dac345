"""One forward pass with every named intermediate, for tests and notebooks.

Decides names and shapes of what is shown. Never uses a cache, never samples. In: a runner and token
ids.
Out: NumPy arrays by name.

| name | shape |
|---|---|
| embeds, final_collapsed | [T D] |
| logits | [T V] |
| hidden | [L T M D], streams after each layer |
| pre_mix, hc_attn_post | [L T M] |
| hc_attn_comb | [L T M M], source stream, destination stream |
| attn_out, ffn_out | [L T D] |
| window_kv | [L T H], after the cache quantiser |
| compressed_kv.l, index_k.l | [C H], [C J], of key-value source l, after their quantisers |
| index_scores.l, index_mask.l | [T C], -inf where not visible; the rows chosen |
| candidates.l | [T C], rows inside the candidate blocks of l |
| router_scores, router_indices, router_weights | [L T E], [L T A] ascending, [L T A] |
| engram_hash | [T layers columns], table rows |
| engram_gate.l | [T M] |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from ds_jax import config
from ds_jax.engine.runner import Runner
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, layer, memory

PER_TOKEN = (  # of every layer, first axis is the token
    "hidden",
    "pre_mix",
    "hc_attn_post",
    "hc_attn_comb",
    "attn_out",
    "ffn_out",
    "window_kv",
    "router_scores",
    "router_indices",
    "router_weights",
)
PER_ROW = ("compressed_kv", "index_k")  # of some layers, [C width]
PAIRS = ("index_scores", "index_mask", "candidates")  # of some layers, [T C]


def trace(runner: Runner, token_ids: Sequence[int]) -> dict[str, np.ndarray]:
    """Named intermediates of a sequence, computed by every device of the mesh together."""
    length = _length(runner, len(token_ids))
    ids = np.zeros((1, length), np.int32)
    ids[0, : len(token_ids)] = token_ids
    found = program(runner, length)(
        runner.params, runner.tables, ids, np.array([len(token_ids)], np.int32)
    )
    return named(runner.context.model, jax.device_get(found), len(token_ids))


def program(runner: Runner, length: int) -> Callable[..., dict[str, Any]]:
    """The jitted traced forward pass for sequences padded to `length`."""
    ctx, back = runner.context, runner.back

    def run(params, tables, ids: jax.Array, lens: jax.Array) -> dict[str, Any]:
        params = deepseek_v41.unstack_layers(params)
        zeros = jnp.zeros(1, jnp.int32)
        batch = caches.Batch(
            ids, jnp.zeros((1, back), jnp.int32), zeros, lens, zeros, zeros[:, None]
        )
        access = memory.Access(None, fresh=True)
        _, out, seen = deepseek_v41.forward(ctx, access, params, tables, batch)
        seen["logits"] = deepseek_v41.logits(ctx, params, out.hidden[0])[None]
        return seen

    return runner.kept(("trace", length), lambda: jax.jit(_on_mesh(runner, run)))


def named(model: config.Model, seen: dict[str, Any], tokens: int) -> dict[str, np.ndarray]:
    """The trace of a forward pass of one sequence under public names, padding cut off."""
    layers: list[dict[str, np.ndarray]] = seen["layers"]
    out = {name: seen[name][0, :tokens] for name in ("embeds", "final_collapsed", "logits")}
    for name in PER_TOKEN:
        out[name] = np.stack([one[name][0, :tokens] for one in layers])
    for number, one in enumerate(layers):
        rows = tokens // max(layer.role(model, number).ratio, 1)
        for name in PER_ROW:
            if name in one:
                out[f"{name}.{number}"] = one[name][0, :rows]
        for name in PAIRS:
            if name in one:
                out[f"{name}.{number}"] = one[name][0, :tokens, :rows]
        if "engram_gate" in one:
            out[f"engram_gate.{number}"] = one["engram_gate"][0, :tokens]
    if seen["engram_hash"] is not None:
        out["engram_hash"] = np.swapaxes(seen["engram_hash"][:, 0, :tokens], 0, 1)
    return out


def _on_mesh(runner: Runner, run: Callable[..., Any]) -> Callable[..., Any]:
    """Every device runs the same sequence; experts and Engram rows come from all of them."""
    if runner.ranks == 1:
        return run
    return jax.shard_map(
        run,
        mesh=runner.mesh,
        in_specs=(runner.specs, P(), P(), P()),
        out_specs=P(),
        check_vma=False,
    )


def _length(runner: Runner, tokens: int) -> int:
    """Padded length: a power of four from 64, so that few programs serve all lengths."""
    length = 64
    while length < tokens:
        length *= 4
    return min(length, max(runner.engine.max_context, tokens))
