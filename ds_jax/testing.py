"""Small models with every part of the architecture, for tests and notebooks.

Decides sizes that compile fast. Never trains. In: changed config values, seeds. Out: configs,
random parameters, pipelines, comparison helpers.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np

from ds_jax import config
from ds_jax.models import deepseek_v41
from ds_jax.pipeline import Pipeline
from ds_jax.sharding import params

CHUNKS = (16, 64)


def tiny_model(**changes: Any) -> config.Model:
    """Five layers, one of each kind: window, full with Engram, reuse, candidate source, reindex.

    A window of 8, 4 chosen rows and 2 candidate blocks of 4, so that every limit bites within 20
    tokens.
    """
    values: dict[str, Any] = {
        "vocab_size": 96,
        "hidden_size": 64,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "head_dim": 32,
        "qk_rope_head_dim": 16,
        "q_lora_rank": 32,
        "o_lora_rank": 32,
        "o_groups": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 8,
        "compress_ratios": (0, 2, 2, 1, 1),
        "kv_source_layer_ids": (1, 3),
        "index_source_layer_ids": (1, 3, 4),
        "index_n_heads": 2,
        "index_head_dim": 32,
        "index_topk": 4,
        "candidate_source_layer_id": 3,
        "candidate_topk_blocks": 2,
        "candidate_block_size": 4,
        "routed_scaling_factor": 1.5,
        "max_position_embeddings": 256,
        "hc_sinkhorn_iters": 4,
        "engram_layer_ids": (1,),
        "engram_num_embeddings": (434,),
        "engram_max_ngram_size": 4,
        "engram_vocab_size": 61,
        "engram_n_heads": 2,
        "engram_head_dim": 32,
        "engram_compressed_vocab_size": 96,
    }
    return config.Model(**values | changes)


def drafting_model(**changes: Any) -> config.Model:
    """`tiny_model` with a drafter of two blocks for up to 5 drafts."""
    base = tiny_model()
    values: dict[str, Any] = {
        "compress_ratios": (*base.compress_ratios, 0, 0),
        "num_nextn_predict_layers": 2,
        "dspark_block_size": 5,
        "dspark_noise_token_id": 95,
        "dspark_target_layer_ids": (2, 3, 4),
        "dspark_markov_rank": 8,
        "dspark_n_routed_experts": 4,
        "dspark_num_experts_per_tok": 2,
    }
    return tiny_model(**values | changes)


def smallest_drafting_model(**changes: Any) -> config.Model:
    """One window layer and one drafter block: everything that is compiled, compiled soon."""
    values: dict[str, Any] = {
        "num_hidden_layers": 1,
        "compress_ratios": (0, 0),
        "kv_source_layer_ids": (),
        "index_source_layer_ids": (),
        "candidate_source_layer_id": None,
        "engram_layer_ids": (),
        "engram_num_embeddings": (),
        "num_nextn_predict_layers": 1,
        "dspark_target_layer_ids": (0,),
    }
    return drafting_model(**values | changes)


def tiny_params(model: config.Model, seed: int = 0) -> deepseek_v41.Params:
    """Random float32 parameters, values exact in bfloat16."""
    drafter = model.num_nextn_predict_layers > 0
    return params.initialize(deepseek_v41.spec(model, drafter=drafter), seed)


def tiny_pipeline(model: config.Model | None = None, seed: int = 0, **options: Any) -> Pipeline:
    """A float32 pipeline over random parameters; prompts are token ids."""
    model = model or tiny_model()
    options = {
        "numerics": "float32",
        "max_sequences": 4,
        "max_context": 64,
        "chunk_tokens": CHUNKS,
        "page_tokens": 16,
        "token_map": np.arange(model.vocab_size, dtype=np.int32),
    } | options
    return Pipeline(model, tiny_params(model, seed), **options)


def prompt(length: int, seed: int = 0, vocab: int = 96) -> list[int]:
    """Random token ids after a begin token; ids 1 and 2 (end, padding) do not occur."""
    ids = np.random.default_rng(seed).integers(3, vocab, length - 1)
    return [0, *map(int, ids)]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One recorded case: a checkpoint folder, its text prompts and what they must give."""

    folder: pathlib.Path
    prompts: tuple[dict[str, Any], ...]
    expected: dict[str, np.ndarray]

    @classmethod
    def read(cls, folder: pathlib.Path) -> Recorded:
        """Reads inputs.json and expected.npz; prompts with images are left out."""
        inputs = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
        with np.load(folder / "expected.npz") as arrays:
            expected = {name: arrays[name] for name in arrays.files}
        texts = tuple(p for p in inputs["prompts"] if not p["images"])
        return cls(folder, texts, expected)

    def of(self, name: str) -> dict[str, np.ndarray]:
        """Expected arrays of one prompt, such as p0."""
        start = f"{name}."
        return {k[len(start) :]: v for k, v in self.expected.items() if k.startswith(start)}


def largest_difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Largest absolute difference; infinite where shapes, infinities or NaNs differ."""
    if got.shape != wanted.shape:
        return np.inf
    finite = np.isfinite(wanted)
    if not (np.isfinite(got) == finite).all():
        return np.inf
    got, wanted = got[finite].astype(np.float64), wanted[finite].astype(np.float64)
    return float(np.abs(got - wanted).max(initial=0.0))
