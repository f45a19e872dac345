"""Small replicas and requests for tests of the loop."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ds_jax import Pipeline, SamplingParams
from ds_jax.records import GenerateRequest, TokenEvent
from ds_jax.testing import tiny_model, tiny_pipeline

_NAMES = itertools.count()
SAMPLED = SamplingParams(max_tokens=6, temperature=0.9, top_p=0.9, seq_seed=7, ignore_eos=True)
GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


def replica(**options: Any) -> Pipeline:
    """Two layers, ratios 2 and 1, Engram in the first; pages of 16 tokens."""
    model = tiny_model(
        num_hidden_layers=2,
        compress_ratios=(2, 1),
        kv_source_layer_ids=(0, 1),
        index_source_layer_ids=(0, 1),
        candidate_source_layer_id=None,
        engram_layer_ids=(0,),
    )
    sizes = {"max_context": 64, "page_tokens": 16, "chunk_tokens": (24,), "max_sequences": 4}
    return tiny_pipeline(model, **sizes | options)


def one_layer(**options: Any) -> Pipeline:
    """A window layer alone: few sizes, short compilations."""
    model = tiny_model(
        num_hidden_layers=1,
        compress_ratios=(0,),
        kv_source_layer_ids=(),
        index_source_layer_ids=(),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )
    return tiny_pipeline(model, token_map=None, chunk_tokens=(16,), **options)


def requests(
    prompts: Sequence[Sequence[int]], params: SamplingParams, **fields: Any
) -> list[GenerateRequest]:
    return [GenerateRequest(f"t{next(_NAMES)}", tuple(p), params, **fields) for p in prompts]


def run(pipeline: Pipeline, asked: Sequence[GenerateRequest]) -> list[list[TokenEvent]]:
    """Events of each request, with what must hold of any."""
    found: dict[str, list[TokenEvent]] = {r.request_id: [] for r in asked}
    for event in pipeline.engine.run(asked):
        found[event.request_id].append(event)
    for events in found.values():
        assert [e.finish_reason is not None for e in events] == [False] * (len(events) - 1) + [True]
    return list(found.values())


def tokens(events: Sequence[TokenEvent]) -> list[int]:
    return [e.token_id for e in events if e.token_id is not None]
