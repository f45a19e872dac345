"""Sizes of steps: every need has a program, and the warm-up list holds it."""

from __future__ import annotations

import pytest

from ds_jax import config
from ds_jax.engine.buckets import Buckets

ENGINE = config.Engine(max_sequences=6, max_context=1000, chunk_tokens=(16, 64, 512))
BUCKETS = Buckets.plan(ENGINE, config.Cache(page_tokens=128))


def test_sizes_grow_in_powers_up_to_the_most() -> None:
    assert BUCKETS.sequences == (1, 2, 4, 6)
    assert BUCKETS.pages == (1, 4, 8)
    assert BUCKETS.chunks == (16, 64, 512)


def test_short_contexts_end_the_chunks() -> None:
    small = config.Engine(max_sequences=1, max_context=40, chunk_tokens=(16, 64, 512))
    assert Buckets.plan(small, config.Cache()).chunks == (16, 40)


@pytest.mark.parametrize(("tokens", "group"), [(10, 6), (64, 6), (65, 1), (512, 1)])
def test_a_group_fills_the_longest_chunk(tokens: int, group: int) -> None:
    assert BUCKETS.group(tokens) == group


def test_warm_up_holds_every_program() -> None:
    keys = set(BUCKETS.keys())
    for context in (1, 128, 129, 600, 1000):
        for sequences in range(1, 7):
            assert BUCKETS.decode(sequences, context) in keys
        for tokens in (1, 16, 17, 500):
            if tokens > context:
                continue
            for sequences in range(1, BUCKETS.group(tokens) + 1):
                for fresh in (True, False):
                    assert BUCKETS.prefill(sequences, tokens, context, fresh=fresh) in keys


def test_a_fresh_chunk_needs_no_wider_table_than_itself() -> None:
    assert BUCKETS.prefill(1, 512, 1000, fresh=True).pages == 4
    assert BUCKETS.prefill(1, 16, 1000, fresh=True).pages == 1
