"""Floating-point operations and bytes that a model's mathematics needs.

Decides what counts: products of matrices, rows that must be read. Never counts what an
implementation adds (masked scores, copies, padding) or element-wise work, so a fraction of peak is
never flattered.
In: a config. Out: operations (one multiply-add is 2) and bytes.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from ds_jax import config
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41
from ds_jax.models.context import Context
from ds_jax.sharding.params import ParamSpec

_LOOKED_UP = ("embed", "table")  # one row a token, no product
_ELEMENT_WISE = ("q_weight", "k_weight")  # the Engram gate's norms


def flops_per_token(model: config.Model, position: int, *, logits: bool = True) -> dict[str, float]:
    """Operations for one token at a position of its sequence.

    Args:
      position: from 0; decides how many rows attention and the indexer meet.
      logits: count the head.

    Returns: operations under "linears" (every weight matrix but the head, A of E experts), "head",
      "attention" (scores and values of window and chosen rows) and "indexer" (scores of all rows,
      or of the candidates' whole blocks).
    """
    linears, head = 0.0, 0.0
    for name, spec in matrices(model):
        flops = 2.0 * math.prod(spec.shape) * share(model, name, spec)
        if name == "head":
            head = flops
        else:
            linears += flops
    attended, indexed = 0, 0
    for layer in range(model.num_hidden_layers):
        ratio = model.ratio(layer)
        rows = (position + 1) // ratio if ratio else 0
        attended += min(position + 1, model.sliding_window) + min(rows, model.index_topk)
        if layer in model.index_source_layer_ids:
            indexed += scored_rows(model, layer, rows)
    return {
        "linears": linears,
        "head": head if logits else 0.0,
        "attention": 4.0 * model.num_attention_heads * model.head_dim * attended,
        "indexer": 2.0 * model.index_n_heads * model.index_head_dim * indexed,
    }


def prefill_flops(model: config.Model, tokens: int, *, all_logits: bool) -> float:
    """Operations of a prompt of so many tokens; the head for all of them or for the last."""
    return sum(
        sum(flops_per_token(model, at, logits=all_logits or at == tokens - 1).values())
        for at in range(tokens)
    )


def bytes_per_decode_step(
    model: config.Model,
    numerics: config.Numerics,
    batch: int,
    position: int,
    weight_bytes: float = 4,
) -> dict[str, float]:
    """Bytes that one token of each of `batch` sequences must read.

    Args:
      numerics: decides the width of cached rows (held unpacked).
      position: position of the tokens, the same in every sequence.
      weight_bytes: of one weight in memory.

    Returns: bytes under "weights" (all dense ones, the experts that `batch` tokens visit if routing
      is even, looked-up rows) and "cache" (window, index keys and chosen rows of each sequence).
    """
    values = 0.0
    for name, spec in _leaves(model):
        last = name.rsplit(".", 1)[-1]
        size = math.prod(spec.shape)
        if last == "embed":
            values += batch * spec.shape[1]
        elif last == "table":
            columns = (model.engram_max_ngram_size - 1) * model.engram_n_heads
            values += batch * columns * spec.shape[1]
        elif spec.stacked:
            missed = (1 - model.num_experts_per_tok / spec.shape[0]) ** batch
            values += size * (1 - missed)
        else:
            values += size
    ctx = Context(model, numerics)
    width = {kind: _row_bytes(ctx, kind) for kind in ("window", "row", "key")}
    held = 0.0
    for layer in range(model.num_hidden_layers):
        ratio = model.ratio(layer)
        rows = (position + 1) // ratio if ratio else 0
        held += min(position + 1, model.sliding_window) * width["window"]
        held += min(rows, model.index_topk) * width["row"]
        if layer in model.index_source_layer_ids:
            held += scored_rows(model, layer, rows) * width["key"]
    return {"weights": values * weight_bytes, "cache": batch * held}


def scored_rows(model: config.Model, layer: int, rows: Any) -> Any:
    """Index keys that a query of a layer scores, of so many rows: a number or an array of them.

    Behind the source of candidates these are whole blocks of candidates.
    """
    source, block = model.candidate_source_layer_id, model.candidate_block_size
    if source is None or layer <= source:
        return rows
    return np.minimum(-(-rows // block), model.candidate_topk_blocks) * block


def matrices(model: config.Model) -> list[tuple[str, ParamSpec]]:
    """Paths and declarations of everything that tokens are multiplied with."""
    found = []
    for name, spec in _leaves(model):
        last = name.rsplit(".", 1)[-1]
        if len(spec.shape) > 1 and last not in _LOOKED_UP and last not in _ELEMENT_WISE:
            found.append((name, spec))
    return found


def share(model: config.Model, name: str, spec: ParamSpec) -> float:
    """Share of a matrix that one token meets: A of E experts, one index key a compressed row."""
    if spec.stacked:
        return model.num_experts_per_tok / spec.shape[0]
    return 1 / model.ratio(layer_of(name)) if name.endswith(".wk") else 1.0


def layer_of(name: str) -> int:
    """Layer number in a path such as layers.3.indexer.wk; -1 outside the layers."""
    parts = name.split(".")
    return int(parts[1]) if parts[0] == "layers" else -1


def _row_bytes(ctx: Context, kind: str) -> int:
    codec = caches.codec(ctx, kind, packed=False)
    return codec.words * codec.dtype.itemsize


def _leaves(model: config.Model) -> list[tuple[str, ParamSpec]]:
    tree: Any = deepseek_v41.spec(model)
    return [
        (jax.tree_util.keystr(path, simple=True, separator="."), spec)
        for path, spec in jax.tree_util.tree_leaves_with_path(tree)
    ]
