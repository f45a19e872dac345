"""Counters of a replica, and the cause of a cache miss, over all of its ranks.

Decides names. Never counts by itself. In: a scheduler. Out: plain numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ds_jax.engine.scheduler import Scheduler
from ds_jax.kvcache import explain
from ds_jax.records import ImageSpan


def read(scheduler: Scheduler) -> dict[str, int]:
    """Numbers now, and since the start (`_total`)."""
    pools = [rank.pool for rank in scheduler.ranks]
    prefixes = [rank.index.statistics for rank in scheduler.ranks]
    states = [rank.snapshots for rank in scheduler.ranks]
    return {
        "running": scheduler.num_running,
        "waiting": scheduler.num_waiting,
        "pages": sum(pool.num_pages for pool in pools),
        "pages_held": sum(pool.held for pool in pools),
        "pages_cached": sum(pool.evictable for pool in pools),
        "pages_pinned": sum(pool.pinned for pool in pools),
        "states_stored": sum(len(store) for store in states),
        "steps_total": scheduler.num_steps,
        "requests_total": scheduler.num_requests,
        "preemptions_total": scheduler.num_preemptions,
        "prefix_query_tokens_total": sum(p.query_tokens for p in prefixes),
        "prefix_hit_tokens_total": sum(p.hit_tokens for p in prefixes),
        "pages_evicted_total": sum(p.evicted_pages for p in prefixes),
        "states_evicted_total": sum(store.evictions for store in states),
    }


def explain_miss(
    scheduler: Scheduler,
    token_ids: Sequence[int],
    tenant: str = "",
    images: Sequence[ImageSpan] = (),
) -> explain.Miss:
    """Why a prompt is not in the cache, on the rank that knows most of it; for operators."""
    found = [rank.index.explain_miss(token_ids, tenant, images) for rank in scheduler.ranks]
    return max(found, key=lambda miss: (miss.found_tokens, miss.state_tokens))
