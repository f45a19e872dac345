"""Operations as FP8 would do them: how model FLOPs utilisation is counted.

Decides what a multiply-add weighs: 1 in FP4, 2 in FP8, 4 in BF16, 8 in float32; FP4 weights meet
FP8 activations and count as FP8. The machine's peak counts as twice its 16-bit peak. Only the
target model counts: no drafts, padding, norms, activations; the router scores all experts. Never
measures. In: a config and positions. Out: weighted operations.

Weights count as the released checkpoint stores them, whatever holds them here, so figures of
different machines and memory formats can be compared. Source: DeepInfer's estimator.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from ds_jax import config
from ds_jax.benchmark import cost
from ds_jax.kvcache.replay import Rule

FP4, FP8, BF16, FLOAT32 = 1.0, 2.0, 4.0, 8.0
PEAK = 2.0  # operations of the peak for one of 16 bits
_STORED = {"fp4": FP8, "fp8": FP8, "rows": FP8, "bf16": BF16, "f32": FLOAT32}


def decode_flops(model: config.Model, batch: int, position: int) -> float:
    """One token of each of `batch` sequences at a position; the head for all of them."""
    positions = np.full(batch, position)
    return float(_tokens(model, positions).sum() + batch * _head(model))


def prefill_flops(model: config.Model, tokens: int, chunk: int, rule: Rule | None = None) -> float:
    """A prompt of so many tokens from nothing; the head for one row a chunk.

    Args:
      rule: where the decoder side leaves rows out ("compact"), it counts the others alone.
    """
    kept = rule.first_kept(tokens) if rule is not None and rule.mode == "compact" else 0
    first = rule.encoder_layers if rule is not None else model.num_hidden_layers
    every = _tokens(model, np.arange(tokens))
    left_out = _tokens(model, np.arange(kept), first) - _sources(model, first)
    return float(every.sum() - left_out.sum() + -(-tokens // chunk) * _head(model))


def _tokens(
    model: config.Model, positions: Int[np.ndarray, " T"], first: int = 0
) -> Float[np.ndarray, " T"]:
    """Operations of tokens in the layers from `first` on, without the head: float64 [T]."""
    linears = 0.0
    for name, spec in cost.matrices(model):
        if name != "head" and cost.layer_of(name) >= first:
            linears += _linear(model, name, spec)
    total = np.full(len(positions), linears)
    for layer in range(first, model.num_hidden_layers):
        ratio = model.ratio(layer)
        rows = (positions + 1) // ratio if ratio else np.zeros_like(positions)
        pairs = np.minimum(positions + 1, model.sliding_window)
        pairs = pairs + np.minimum(rows, model.index_topk)
        total += BF16 * model.num_attention_heads * 2 * model.head_dim * pairs
        if layer in model.index_source_layer_ids:
            scored = cost.scored_rows(model, layer, rows)
            total += FP4 * model.index_n_heads * model.index_head_dim * scored
    return total


def _sources(model: config.Model, first: int) -> float:
    """Compressed rows and index keys of layer `first`: never left out."""
    parts = (f"layers.{first}.compressor.", f"layers.{first}.indexer.wk")
    return sum(_linear(model, n, s) for n, s in cost.matrices(model) if n.startswith(parts))


def _head(model: config.Model) -> float:
    return sum(_linear(model, n, s) for n, s in cost.matrices(model) if n == "head")


def _linear(model: config.Model, name: str, spec: cost.ParamSpec) -> float:
    """Operations of one matrix for one token."""
    stored = spec.storage if model.quantization or not spec.quantizable else "bf16"
    return _STORED[stored] * math.prod(spec.shape) * cost.share(model, name, spec)
