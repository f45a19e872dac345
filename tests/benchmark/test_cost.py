"""Operations and bytes against numbers worked out by hand, and against the declarations."""

from __future__ import annotations

import math

import pytest

from ds_jax import config, testing
from ds_jax.benchmark import cost, equivalent
from ds_jax.kvcache.replay import Rule

D, V, Q, H, N = 64, 96, 32, 32, 4  # hidden, vocabulary, query rank, head width, heads


def model() -> config.Model:
    """Window-only, full at ratio 2, reuse."""
    return testing.tiny_model(
        num_hidden_layers=3,
        compress_ratios=(0, 2, 2),
        kv_source_layer_ids=(1,),
        index_source_layer_ids=(1,),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )


def test_linears_are_the_matrices_a_token_meets():
    attention = Q * D + N * H * Q + H * D + 2 * 32 * (N * H // 2) + D * 2 * 32
    experts = 8 * D + (2 + 1) * 3 * 32 * D  # router, 2 routed and 1 shared
    hyper = 2 * (2 + 4) * 4 * 4 * D
    source = 2 * H * D + 2 * 32 * Q + 2 * D + 32 * H / 2  # compressor, indexer, its key
    expected = 2 * (3 * (attention + experts + hyper) + source)
    assert cost.flops_per_token(model(), 0)["linears"] == expected


def test_head_counts_only_where_logits_are_wanted():
    assert cost.flops_per_token(model(), 5)["head"] == 2 * V * D
    assert cost.flops_per_token(model(), 5, logits=False)["head"] == 0
    whole = cost.prefill_flops(model(), 10, all_logits=True)
    last = cost.prefill_flops(model(), 10, all_logits=False)
    assert whole - last == pytest.approx(9 * 2 * V * D)


@pytest.mark.parametrize(
    ("position", "window", "chosen", "scored"),
    [(0, 1, 0, 0), (4, 5, 2, 2), (7, 8, 4, 4), (30, 8, 4, 15)],
)
def test_attention_is_bounded_by_window_and_choice(position, window, chosen, scored):
    flops = cost.flops_per_token(model(), position)
    assert flops["attention"] == 4 * N * H * (3 * window + 2 * chosen)
    assert flops["indexer"] == 2 * 2 * 32 * scored


def test_engram_reads_rows_and_multiplies_only_its_projection():
    with_memory = testing.tiny_model()
    without = testing.tiny_model(engram_layer_ids=(), engram_num_embeddings=())
    flops = [cost.flops_per_token(m, 9)["linears"] for m in (with_memory, without)]
    width = 3 * 2 * 32
    assert flops[0] - flops[1] == 2 * 5 * D * width
    read = [
        cost.bytes_per_decode_step(m, config.FLOAT32, 3, 9)["weights"]
        for m in (with_memory, without)
    ]
    assert read[0] - read[1] == 4 * (5 * D * width + 2 * 4 * D + 3 * width)


def test_a_large_batch_reads_every_weight_but_the_embedding():
    m = model()
    every = sum(math.prod(spec.shape) for _, spec in cost._leaves(m))
    read = cost.bytes_per_decode_step(m, config.FLOAT32, 400, 0)["weights"]
    assert read == pytest.approx(4 * (every - V * D + 400 * D), rel=1e-6)
    one = cost.bytes_per_decode_step(m, config.FLOAT32, 1, 0)["weights"]
    idle = 3 * 6 * 3 * 32 * D  # six of eight experts in three layers
    assert one == pytest.approx(4 * (every - V * D + D - idle))


def test_cache_bytes_grow_until_window_and_choice_are_full():
    m = model()
    kept = [cost.bytes_per_decode_step(m, config.FLOAT32, 1, at)["cache"] for at in (0, 30, 31)]
    assert kept[0] == 3 * 2 * H  # quantised rows are held as two bytes a value
    assert kept[1] == 3 * 8 * 2 * H + 2 * 4 * 2 * H + 15 * 2 * 32
    assert kept[2] == kept[1] + 2 * 32
    twice = cost.bytes_per_decode_step(m, config.FLOAT32, 2, 31)["cache"]
    assert twice == 2 * kept[2]


def test_the_comparison_shape_needs_what_was_worked_out():
    m = config.load_model("configs/bench_21m.json")
    prefill = cost.prefill_flops(m, 512, all_logits=True) / 512
    assert 1.5e7 < prefill < 3e7
    assert 2e7 < cost.bytes_per_decode_step(m, config.FLOAT32, 1, 528)["weights"] < 8.6e7


PUBLISHED = {4096: 35.7e9, 131072: 38.7e9, 1048576: 57.5e9}  # decode of one token


@pytest.mark.parametrize("context", PUBLISHED)
def test_the_released_model_needs_the_published_operations(context):
    m = config.load_model("configs/deepseek_v41_flash.json")
    assert sum(cost.flops_per_token(m, context - 1).values()) == pytest.approx(
        PUBLISHED[context], rel=2e-3
    )


def quantized() -> config.Model:
    return testing.tiny_model(quantization=config.Quantization())


def test_a_multiply_add_weighs_what_its_operands_store():
    m = model()
    plain = cost.flops_per_token(m, 9)
    hyper = 3 * 2 * (2 + 4) * 4 * 4 * D
    bf16 = plain["linears"] / 2 - hyper + V * D
    pairs = plain["attention"] * 2 + plain["indexer"] / 2
    assert equivalent.decode_flops(m, 1, 9) == pytest.approx(4 * bf16 + 8 * hyper + pairs)
    assert equivalent.decode_flops(m, 3, 9) == pytest.approx(3 * equivalent.decode_flops(m, 1, 9))
    fewer = equivalent.decode_flops(testing.tiny_model(), 1, 9)
    assert equivalent.decode_flops(quantized(), 1, 9) < fewer


def test_prefill_is_the_sum_of_its_tokens_with_a_head_a_chunk():
    m = quantized()
    head = 4 * V * D
    tokens = sum(equivalent.decode_flops(m, 1, at) - head for at in range(40))
    assert equivalent.prefill_flops(m, 40, 16) == pytest.approx(tokens + 3 * head)


def test_rows_that_the_decoder_side_leaves_out_cost_its_source_alone():
    m = quantized()
    ratios = m.compress_ratios[: m.num_hidden_layers]
    exact = equivalent.prefill_flops(m, 60, 64, Rule(8, ratios))
    assert exact == equivalent.prefill_flops(m, 60, 64)
    compact = Rule(8, ratios, mode="compact", keep_tokens=10)
    masked = Rule(8, ratios, mode="mask", keep_tokens=10)
    assert equivalent.prefill_flops(m, 60, 64, masked) == exact
    assert equivalent.prefill_flops(m, 60, 64, compact) < 0.75 * exact
    assert equivalent.prefill_flops(m, 10, 64, compact) == equivalent.prefill_flops(m, 10, 64)
