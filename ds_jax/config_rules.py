"""Which combinations of configuration values exist.

Decides whether a configuration is consistent. Never reads files, never changes a value.
In: a config dataclass. Out: nothing, or a `ConfigError` with key, value and what is allowed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ds_jax import primes
from ds_jax.errors import ConfigError

if TYPE_CHECKING:
    from ds_jax import config

BLOCK = 32  # values that share one scale, in weights and activations


def check_model(model: config.Model) -> None:
    """Checks the text model; raises ConfigError on the first inconsistency."""
    _check_sizes(model)
    _check_token_ids(model)
    _check_compression(model)
    _check_candidates(model)
    _check_engram(model)
    _check_dspark(model)
    if model.quantization is not None:
        _check_quantized_sizes(model)


def check_rope_scaling(scaling: config.RopeScaling) -> None:
    """Checks the YaRN parameters."""
    one_of(scaling, "rope_type", ("yarn",))
    positive(scaling, "factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
    if scaling.factor < 1:
        fail("rope_scaling.factor", scaling.factor, "must be at least 1")
    if scaling.beta_fast <= scaling.beta_slow:
        fail("beta_fast", scaling.beta_fast, f"must be above beta_slow={scaling.beta_slow}")


def check_quantization(quantization: config.Quantization) -> None:
    """Checks that the checkpoint's quantisation is the implemented one."""
    one_of(quantization, "quant_method", ("fp8",))
    one_of(quantization, "activation_scheme", ("dynamic",))
    one_of(quantization, "weight_block_size", ((BLOCK, BLOCK),))
    one_of(quantization, "scale_fmt", ("ue8m0",))
    one_of(quantization, "expert_dtype", ("fp4",))


def check_vision(vision: config.Vision) -> None:
    """Checks the vision tower."""
    positive(vision, "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    positive(vision, "patch_size", "downsample_ratio", "max_image_tokens", "min_pixels")
    positive(vision, "rope_theta", "rms_norm_eps")
    if vision.max_wh_ratio is not None:
        positive(vision, "max_wh_ratio")
    heads = vision.num_attention_heads
    if vision.hidden_size % (4 * heads):
        allowed = f"must be a multiple of 4 * num_attention_heads = {4 * heads} (2-D rotation)"
        fail("vision_config.hidden_size", vision.hidden_size, allowed)
    if vision.max_image_tokens < 4:
        fail(
            "max_image_tokens",
            vision.max_image_tokens,
            "must be at least 4: start, cell, row end, end",
        )


def check_engine(engine: config.Engine) -> None:
    """Checks the shapes of the steps."""
    positive(engine, "max_sequences", "max_context")
    one_of(engine, "weights", ("auto", "quantized", "dequantized"))
    chunks = engine.chunk_tokens
    if not chunks or chunks[0] < 1 or any(a >= b for a, b in itertools.pairwise(chunks)):
        fail("chunk_tokens", chunks, "must be ascending chunk lengths, at least one, each above 0")
    positive(engine, "canonical_rows")
    _check_drafts(engine)
    if engine.step_tokens is not None:
        positive(engine, "step_tokens")


def _check_drafts(engine: config.Engine) -> None:
    if engine.nextn < 0:
        fail("nextn", engine.nextn, "must not be negative; 0 makes no drafts")
    if engine.varlen_verify and not engine.nextn:
        fail("varlen_verify", True, "needs drafts; give nextn, such as 5")
    if engine.nextn and engine.canonical:
        fail("nextn", engine.nextn, "canonical mode verifies no drafts; use nextn=0 or leave it")
    temperatures = engine.confidence_temperatures
    if temperatures and len(temperatures) != engine.nextn:
        allowed = f"must be one for each of nextn={engine.nextn} drafts, has {len(temperatures)}"
        fail("confidence_temperatures", temperatures, allowed)
    if not all(math.isfinite(t) and t > 0 for t in temperatures):
        fail("confidence_temperatures", temperatures, "must be above 0")


def check_drafter(engine: config.Engine, model: config.Model) -> None:
    """Checks that the model has a drafter for so many drafts."""
    if not engine.nextn:
        return
    if not model.num_nextn_predict_layers:
        fail(
            "nextn",
            engine.nextn,
            "the checkpoint has no drafter (num_nextn_predict_layers=0); use nextn=0",
        )
    if engine.nextn > model.dspark_block_size:
        allowed = (
            f"the drafter was trained for blocks of dspark_block_size={model.dspark_block_size}; "
            "use at most that"
        )
        fail("nextn", engine.nextn, allowed)


def check_cache(cache: config.Cache) -> None:
    """Checks the layout of the cache."""
    one_of(cache, "format", ("packed", "dequantized"))
    if cache.page_tokens < 2 or cache.page_tokens % 2:
        fail(
            "page_tokens",
            cache.page_tokens,
            "must be even and above 0: a compressed row spans 2 tokens",
        )
    if cache.max_backtrack < 0:
        fail("max_backtrack", cache.max_backtrack, "must not be negative")
    one_of(cache, "replay", ("off", "mask", "compact"))
    if cache.pages is not None:
        positive(cache, "pages")
    for name in ("snapshots", "keep_tokens"):
        if (getattr(cache, name) or 0) < 0:
            fail(name, getattr(cache, name), "must not be negative")


def check_canonical(engine: config.Engine, cache: config.Cache) -> None:
    """Checks that no approximation makes tokens depend on where a hit ends."""
    if engine.canonical and (cache.replay != "off" or cache.bounded_replay):
        fail(
            "canonical",
            True,
            f"needs exact states, replay={cache.replay} and bounded_replay={cache.bounded_replay} "
            "give approximate ones; use replay=off without bounded_replay",
        )


def check_cache_fits(cache: config.Cache, model: config.Model) -> None:
    """Checks that rows of this model can be held in the chosen format."""
    if cache.format != "packed":
        return
    widths = {"head_dim": model.head_dim}
    if model.index_source_layer_ids:
        widths["index_head_dim"] = model.index_head_dim
    for name, width in widths.items():
        if width % BLOCK:
            fail(name, width, f"a packed cache needs a multiple of {BLOCK}; use format=dequantized")


def _check_sizes(model: config.Model) -> None:
    positive(model, "vocab_size", "hidden_size", "moe_intermediate_size", "num_hidden_layers")
    positive(model, "num_attention_heads", "head_dim", "qk_rope_head_dim", "q_lora_rank")
    positive(model, "o_lora_rank", "o_groups", "n_routed_experts", "num_experts_per_tok")
    positive(model, "sliding_window", "max_position_embeddings", "rope_theta")
    positive(model, "compress_rope_theta", "routed_scaling_factor", "swiglu_limit", "gate_temp")
    positive(model, "hc_mult", "hc_sinkhorn_iters", "hc_eps", "rms_norm_eps")
    positive(model, "n_shared_experts")
    for switch in ("hc_shifted", "use_fp4_sparse_kv", "dspark_target_attn_input"):
        one_of(model, switch, (True,))
    if model.num_experts_per_tok > model.n_routed_experts:
        allowed = f"must be at most n_routed_experts={model.n_routed_experts}"
        fail("num_experts_per_tok", model.num_experts_per_tok, allowed)
    if model.num_attention_heads % model.o_groups:
        allowed = f"must divide num_attention_heads={model.num_attention_heads}"
        fail("o_groups", model.o_groups, allowed)
    rope = model.qk_rope_head_dim
    if rope % 2 or rope > model.head_dim:
        fail("qk_rope_head_dim", rope, f"must be even and at most head_dim={model.head_dim}")


def _check_token_ids(model: config.Model) -> None:
    names = ["bos_token_id", "eos_token_id", "pad_token_id"]
    names += ["image_token_id"] if model.image_token_id is not None else []
    names += ["engram_pad_token_id"] if model.engram_layer_ids else []
    names += ["dspark_noise_token_id"] if model.num_nextn_predict_layers else []
    for name in names:
        _in_range(name, getattr(model, name), model.vocab_size, "vocab_size")


def _check_compression(model: config.Model) -> None:
    layers, drafts = model.num_hidden_layers, model.num_nextn_predict_layers
    if drafts < 0:
        fail("num_nextn_predict_layers", drafts, "must not be negative")
    ratios = model.compress_ratios
    if len(ratios) != layers + drafts:
        allowed = (
            f"must have num_hidden_layers + num_nextn_predict_layers = {layers} + {drafts} "
            f"entries, has {len(ratios)}"
        )
        fail("compress_ratios", ratios, allowed)
    if not set(ratios) <= {0, 1, 2}:
        fail("compress_ratios", ratios, "may only hold 0, 1 and 2")
    if any(ratios[layers:]):
        fail("compress_ratios", ratios, f"must end with {drafts} zeros, one per DSpark block")
    compressed = [layer for layer in range(layers) if ratios[layer]]
    for name in ("kv_source_layer_ids", "index_source_layer_ids"):
        sources = getattr(model, name)
        _check_layer_ids(name, sources, layers)
        for source in sources:
            if not ratios[source]:
                fail(
                    name,
                    sources,
                    f"layer {source} has compress_ratio 0 and owns no compressed rows",
                )
        if compressed and (not sources or sources[0] != compressed[0]):
            fail(name, sources, f"must start with the first compressed layer, {compressed[0]}")
    if compressed:
        _check_sharing(model, compressed)


def _check_sharing(model: config.Model, compressed: list[int]) -> None:
    positive(model, "index_n_heads", "index_head_dim", "index_topk")
    if model.qk_rope_head_dim > model.index_head_dim:
        allowed = f"must be at most index_head_dim={model.index_head_dim}"
        fail("qk_rope_head_dim", model.qk_rope_head_dim, allowed)
    missing = sorted(set(model.kv_source_layer_ids) - set(model.index_source_layer_ids))
    if missing:
        allowed = f"must contain every kv_source_layer_ids entry; {missing} missing"
        fail("index_source_layer_ids", model.index_source_layer_ids, allowed)
    for layer in compressed:
        source = model.kv_source(layer)
        if model.ratio(source) != model.ratio(layer):
            allowed = (
                f"layer {layer} has ratio {model.ratio(layer)} but reads rows of layer {source} "
                f"with ratio {model.ratio(source)}; make it a kv source or equal the ratios"
            )
            fail("kv_source_layer_ids", model.kv_source_layer_ids, allowed)
    keys = model.index_k_source_layer_ids
    if keys is not None and keys != model.kv_source_layer_ids:
        allowed = f"must equal kv_source_layer_ids={list(model.kv_source_layer_ids)} or be left out"
        fail("index_k_source_layer_ids", keys, allowed)


def _check_candidates(model: config.Model) -> None:
    source = model.candidate_source_layer_id
    if source is None:
        return
    if source not in model.index_source_layer_ids:
        allowed = (
            f"must be one of index_source_layer_ids={list(model.index_source_layer_ids)} or -1"
        )
        fail("candidate_source_layer_id", source, allowed)
    later = [s for s in model.kv_source_layer_ids if s > source]
    if later:
        allowed = (
            f"must not lie before the kv source {later[0]}: candidates name rows of one source"
        )
        fail("candidate_source_layer_id", source, allowed)
    positive(model, "candidate_topk_blocks", "candidate_block_size")
    pool = (model.candidate_topk_blocks - 1) * model.candidate_block_size + 1
    if pool < model.index_topk:
        allowed = (
            f"(candidate_topk_blocks - 1) * candidate_block_size + 1 = {pool} must reach "
            f"index_topk={model.index_topk}"
        )
        fail("candidate_topk_blocks", model.candidate_topk_blocks, allowed)


def _check_engram(model: config.Model) -> None:
    ids, rows = model.engram_layer_ids, model.engram_num_embeddings
    _check_layer_ids("engram_layer_ids", ids, model.num_hidden_layers)
    if len(rows) != len(ids):
        fail(
            "engram_num_embeddings", rows, f"must have {len(ids)} entries, one per engram_layer_ids"
        )
    if not ids:
        return
    positive(model, "engram_n_heads", "engram_head_dim", "engram_compressed_vocab_size")
    if model.engram_max_ngram_size < 2:
        fail("engram_max_ngram_size", model.engram_max_ngram_size, "must be at least 2")
    size = model.engram_vocab_size
    if not 2 <= size < primes.PRIME_LIMIT:
        fail("engram_vocab_size", size, f"must be from 2 to {primes.PRIME_LIMIT - 1}")
    if model.engram_compressed_vocab_size > model.vocab_size:
        allowed = f"must be at most vocab_size={model.vocab_size}"
        fail("engram_compressed_vocab_size", model.engram_compressed_vocab_size, allowed)
    walked = primes.engram_primes(model)
    if walked[-1][-1][-1] >= primes.PRIME_LIMIT:
        allowed = (
            f"leads to the prime {walked[-1][-1][-1]}; primes must be below {primes.PRIME_LIMIT}"
        )
        fail("engram_vocab_size", size, allowed)
    expected = tuple(sum(map(sum, layer)) for layer in walked)
    if rows != expected:
        allowed = (
            f"must be {list(expected)}: the sums of the primes above engram_vocab_size={size}, "
            f"{model.engram_n_heads} per n-gram order and layer"
        )
        fail("engram_num_embeddings", rows, allowed)


def _check_dspark(model: config.Model) -> None:
    _check_layer_ids(
        "dspark_target_layer_ids", model.dspark_target_layer_ids, model.num_hidden_layers
    )
    if not model.num_nextn_predict_layers:
        return
    if not model.dspark_target_layer_ids:
        fail("dspark_target_layer_ids", (), "must name at least one layer when DSpark blocks exist")
    positive(model, "dspark_block_size", "dspark_markov_rank", "dspark_n_routed_experts")
    positive(model, "dspark_num_experts_per_tok")
    if model.dspark_num_experts_per_tok > model.dspark_n_routed_experts:
        allowed = f"must be at most dspark_n_routed_experts={model.dspark_n_routed_experts}"
        fail("dspark_num_experts_per_tok", model.dspark_num_experts_per_tok, allowed)


def _check_quantized_sizes(model: config.Model) -> None:
    heads = model.num_attention_heads
    sizes = {
        "hidden_size": model.hidden_size,
        "moe_intermediate_size": model.moe_intermediate_size,
        "head_dim": model.head_dim,
        "q_lora_rank": model.q_lora_rank,
        "num_attention_heads * head_dim / o_groups": heads * model.head_dim // model.o_groups,
        "o_groups * o_lora_rank": model.o_groups * model.o_lora_rank,
    }
    if model.index_source_layer_ids:
        sizes["index_n_heads * index_head_dim"] = model.index_n_heads * model.index_head_dim
    if model.engram_layer_ids:
        sizes["engram_head_dim"] = model.engram_head_dim
    for name, size in sizes.items():
        if size % BLOCK:
            fail(name, size, f"must be a multiple of {BLOCK} in a quantised checkpoint")


def _check_layer_ids(name: str, ids: tuple[int, ...], layers: int) -> None:
    if any(a >= b for a, b in itertools.pairwise(ids)):
        fail(name, ids, "must be ascending without repetition")
    for layer in ids:
        if not 0 <= layer < layers:
            fail(name, ids, f"layer {layer} must be from 0 to {layers - 1}")


def _in_range(name: str, value: int, limit: int, limit_name: str) -> None:
    if not 0 <= value < limit:
        fail(name, value, f"must be from 0 to {limit_name} - 1 = {limit - 1}")


def positive(record: Any, *names: str) -> None:
    """Raises ConfigError unless every named field is a finite number above 0."""
    for name in names:
        value = getattr(record, name)
        if not (math.isfinite(value) and value > 0):
            fail(name, value, "must be above 0")


def one_of(record: Any, name: str, allowed: Collection[Any]) -> None:
    """Raises ConfigError unless the named field holds one of the implemented values."""
    value = getattr(record, name)
    if value not in allowed:
        shown = ", ".join(_shown(a) for a in allowed)
        fail(
            name,
            value,
            f"only {shown} is implemented" if len(allowed) == 1 else f"must be one of {shown}",
        )


def fail(key: str, value: Any, allowed: str) -> NoReturn:
    """Raises the ConfigError of one key."""
    raise ConfigError(f"{key}={_shown(value)}: {allowed}")


def _shown(value: object) -> str:
    """Lists are shown as they stand in the file."""
    return repr(list(cast("tuple[object, ...]", value)) if isinstance(value, tuple) else value)
