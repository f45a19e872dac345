"""Configuration: what is read, what is refused and how the refusal reads."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import pathlib
from typing import Any

import pytest

from ds_jax import config, config_rules, primes, records
from ds_jax.errors import ConfigError, RequestError

ROOT = pathlib.Path(__file__).parents[1]
RELEASED = ROOT / "configs" / "deepseek_v41_flash.json"
RELEASED_SHA256 = "8be45ce0476004a3f529fd896115a4a2e800a129ad2d3ec05b16050f52e21879"

# A model with every layer kind, Engram, DSpark, vision and quantisation, small enough to read.
SMALL: dict[str, Any] = {
    "architectures": ["DeepseekV41ForCausalLM"],
    "model_type": "deepseek_v41",
    "dtype": "bfloat16",
    "image_token_id": 383,
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [32, 32],
        "scale_fmt": "ue8m0",
        "expert_dtype": "fp4",
    },
    "text_config": {
        "model_type": "deepseek_v41_text",
        "vocab_size": 384,
        "hidden_size": 64,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "head_dim": 64,
        "qk_rope_head_dim": 16,
        "q_lora_rank": 32,
        "o_lora_rank": 32,
        "o_groups": 2,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": 16,
        },
        "sliding_window": 8,
        "compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 0],
        "kv_source_layer_ids": [2, 4, 5],
        "index_source_layer_ids": [2, 4, 5, 7],
        "index_n_heads": 4,
        "index_head_dim": 32,
        "index_topk": 7,
        "candidate_source_layer_id": 5,
        "candidate_topk_blocks": 3,
        "candidate_block_size": 4,
        "engram_layer_ids": [1, 3],
        "engram_num_embeddings": [434, 606],
        "engram_max_ngram_size": 4,
        "engram_vocab_size": 61,
        "engram_n_heads": 2,
        "engram_head_dim": 32,
        "engram_compressed_vocab_size": 312,
        "num_nextn_predict_layers": 1,
        "dspark_block_size": 5,
        "dspark_noise_token_id": 3,
        "dspark_target_layer_ids": [1, 2],
        "dspark_markov_rank": 16,
        "dspark_n_routed_experts": 4,
        "dspark_num_experts_per_tok": 2,
    },
    "vision_config": {
        "model_type": "deepseek_v41_vision",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "max_image_tokens": 24,
        "min_pixels": 3136,
        "max_wh_ratio": None,
    },
}

DELETE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """SMALL with one value replaced or deleted; `path` is dotted."""
    table = copy.deepcopy(SMALL)
    *parents, key = path.split(".")
    inner = table
    for parent in parents:
        inner = inner[parent]
    if value is DELETE:
        del inner[key]
    else:
        inner[key] = value
    return table


def load_text(tmp_path: pathlib.Path, text: str, name: str = "config.json"):
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return config.load(file)


def test_released_config_is_written_back_byte_for_byte():
    text = config.dump(*config.load(RELEASED))
    assert RELEASED.read_bytes() == text.encode()
    assert len(text) == 3311
    assert hashlib.sha256(text.encode()).hexdigest() == RELEASED_SHA256


def test_released_layers_have_the_published_roles():
    model = config.load_model(RELEASED)
    kinds = [model.kind(layer) for layer in range(model.num_hidden_layers)]
    full = [i for i, kind in enumerate(kinds) if kind is config.LayerKind.FULL]
    assert full == [2, 8, 14, 20]
    assert [i for i, k in enumerate(kinds) if k is config.LayerKind.REINDEX] == [24, 28, 32, 36]
    assert [i for i, k in enumerate(kinds) if k is config.LayerKind.WINDOW] == [0, 1]
    assert (model.kv_source(39), model.index_source(39)) == (20, 36)


def test_every_golden_config_loads_and_round_trips(golden: pathlib.Path, tmp_path: pathlib.Path):
    ours = [*(ROOT / "configs").glob("*.*"), *(ROOT / "ds_jax" / "assets").rglob("config.json")]
    files = [*golden.rglob("config.json"), *ours]
    assert ours and len(files) > len(ours)
    for file in files:
        loaded = config.load(file)
        assert load_text(tmp_path, config.dump(*loaded)) == loaded, file


def test_small_config_round_trips(tmp_path: pathlib.Path):
    model, vision = load_text(tmp_path, json.dumps(SMALL))
    assert load_text(tmp_path, config.dump(model, vision), "again.json") == (model, vision)
    assert config.load(tmp_path) == (model, vision)
    assert config.load_model(SMALL) == model


def test_optional_keys_have_the_documented_defaults():
    model = config.load_model(SMALL)
    assert model.hc_shifted and model.use_fp4_sparse_kv and model.dspark_target_attn_input
    assert model.index_k_source_layer_ids is None
    assert model.gate_temp == 1.0
    text = changed("text_config.gate_temp", 0.5)
    assert '"gate_temp": 0.5' in config.dump(config.load_model(text))
    assert "gate_temp" not in config.dump(model)


def test_toml_means_the_same_as_json(tmp_path: pathlib.Path):
    def line(key: str, value: Any) -> str:
        return f"{key} = {json.dumps(value)}\n"

    def table(name: str, content: dict[str, Any]) -> str:
        flat = {k: v for k, v in content.items() if not isinstance(v, dict) and v is not None}
        nested = {k: v for k, v in content.items() if isinstance(v, dict)}
        lines = "".join(line(k, v) for k, v in flat.items())
        return f"[{name}]\n{lines}" + "".join(table(f"{name}.{k}", v) for k, v in nested.items())

    text = {**SMALL["text_config"], "image_token_id": 383}
    toml = table("model", text) + table("vision", SMALL["vision_config"])
    toml += table("quantization", SMALL["quantization_config"])
    assert load_text(tmp_path, toml, "small.toml") == load_text(tmp_path, json.dumps(SMALL))


def test_engram_pad_id_is_a_second_name():
    assert config.load_model(changed("text_config.engram_pad_id", 7)).engram_pad_token_id == 7
    both = changed("text_config.engram_pad_id", 7)
    both["text_config"]["engram_pad_token_id"] = 8
    with pytest.raises(ConfigError, match=r"engram_pad_id=7 but engram_pad_token_id=8"):
        config.load_model(both)


def test_token_ids_may_stand_in_either_table_but_not_disagree():
    assert config.load_model(changed("text_config.bos_token_id", 5)).bos_token_id == 5
    both = changed("text_config.bos_token_id", 5)
    both["bos_token_id"] = 6
    with pytest.raises(ConfigError, match=r"bos_token_id=6 but text_config\.bos_token_id=5"):
        config.load_model(both)


def test_no_candidate_source_is_minus_one_or_null():
    for value in (-1, None):
        model = config.load_model(changed("text_config.candidate_source_layer_id", value))
        assert model.candidate_source_layer_id is None
        assert '"candidate_source_layer_id": -1' in config.dump(model)


def test_a_window_only_model_needs_no_index_keys():
    table = changed("text_config.compress_ratios", [0] * 9)
    table["text_config"] |= {"kv_source_layer_ids": [], "index_source_layer_ids": []}
    table["text_config"] |= {"candidate_source_layer_id": -1, "index_topk": 0}
    model = config.load_model(table)
    assert {model.kind(layer) for layer in range(8)} == {config.LayerKind.WINDOW}


TEXT = "text_config."
REFUSED = [
    # unknown, missing, wrongly typed
    ("rope_theta", 1.0, r"config: unknown key 'rope_theta'"),
    (TEXT + "hiden_size", 64, r"unknown key 'hiden_size' \(did you mean 'hidden_size'\?\)"),
    (TEXT + "rope_scaling.mscale", 1.0, r"text_config\.rope_scaling: unknown key 'mscale'"),
    ("vision_config.depth", 3, r"vision_config: unknown key 'depth'"),
    ("quantization_config.fmt", "e4m3", r"text_config\.quantization: unknown key 'fmt'"),
    (TEXT + "vocab_size", DELETE, r"text_config: missing vocab_size"),
    ("text_config", DELETE, r"text_config: missing"),
    ("text_config", 3, r"text_config"),
    ("vision_config", 3, r"vision_config=3: must be a table"),
    (TEXT + "hidden_size", "64", r"hidden_size='64': must be a whole number"),
    (TEXT + "hidden_size", 64.0, r"hidden_size=64\.0: must be a whole number"),
    (TEXT + "hidden_size", True, r"hidden_size=True: must be a whole number"),
    (TEXT + "rope_theta", "big", r"rope_theta='big': must be a number"),
    (TEXT + "compress_ratios", 2, r"compress_ratios=2: must be a list"),
    (TEXT + "compress_ratios", [0, "2"], r"compress_ratios\[1\]='2': must be a whole number"),
    (TEXT + "rope_scaling", 4, r"rope_scaling=4: must be a table"),
    (TEXT + "hc_shifted", 1, r"hc_shifted=1: must be true or false"),
    ("quantization_config.weight_block_size", [32], r"weight_block_size=\[32\]: must have 2"),
    # keys with one implemented value
    ("architectures", ["LlamaForCausalLM"], r"config\.architectures=.*DeepseekV41ForCausalLM"),
    ("model_type", "deepseek_v4", r"config\.model_type='deepseek_v4'"),
    ("dtype", "float16", r"config\.dtype='float16'.*'bfloat16' or 'float32'"),
    ("torch_dtype", "float16", r"config\.torch_dtype='float16'"),
    ("transformers_version", 5, r"transformers_version=5: must be a string"),
    ("tie_word_embeddings", True, r"config\.tie_word_embeddings=True"),
    (TEXT + "model_type", "x", r"text_config\.model_type='x'"),
    (TEXT + "num_key_value_heads", 4, r"num_key_value_heads=4: .* has 1"),
    (TEXT + "hidden_act", "gelu", r"hidden_act='gelu': .* 'silu'"),
    (TEXT + "attention_bias", True, r"attention_bias=True"),
    (TEXT + "attention_bias", 0, r"attention_bias=0"),
    (TEXT + "attention_dropout", 0.1, r"attention_dropout=0\.1"),
    (TEXT + "use_cache", False, r"use_cache=False"),
    (TEXT + "scoring_func", "softmax", r"scoring_func='softmax': .* 'sqrtsoftplus'"),
    (TEXT + "topk_method", "greedy", r"topk_method='greedy'"),
    (TEXT + "norm_topk_prob", False, r"norm_topk_prob=False"),
    (TEXT + "initializer_range", -1, r"initializer_range=-1: must be a number between"),
    (TEXT + "hc_shifted", False, r"hc_shifted=False: only True is implemented"),
    (TEXT + "use_fp4_sparse_kv", False, r"use_fp4_sparse_kv=False: only True"),
    (TEXT + "dspark_target_attn_input", False, r"dspark_target_attn_input=False: only True"),
    (TEXT + "n_shared_experts", 0, r"n_shared_experts=0: must be above 0"),
    ("vision_config.model_type", "siglip", r"vision_config\.model_type='siglip'"),
    ("quantization_config.quant_method", "gptq", r"quant_method='gptq': only 'fp8'"),
    ("quantization_config.activation_scheme", "static", r"activation_scheme='static'"),
    ("quantization_config.weight_block_size", [128, 128], r"weight_block_size=\[128, 128\]: only"),
    ("quantization_config.scale_fmt", "float", r"scale_fmt='float'"),
    ("quantization_config.expert_dtype", "fp8", r"expert_dtype='fp8'"),
    # sizes
    (TEXT + "hidden_size", 0, r"hidden_size=0: must be above 0"),
    (TEXT + "rms_norm_eps", -1e-6, r"rms_norm_eps=-1e-06: must be above 0"),
    (TEXT + "num_experts_per_tok", 9, r"num_experts_per_tok=9: .* n_routed_experts=8"),
    (TEXT + "o_groups", 3, r"o_groups=3: must divide num_attention_heads=4"),
    (TEXT + "qk_rope_head_dim", 15, r"qk_rope_head_dim=15: must be even"),
    (TEXT + "qk_rope_head_dim", 66, r"qk_rope_head_dim=66: .* at most head_dim=64"),
    (TEXT + "qk_rope_head_dim", 34, r"qk_rope_head_dim=34: .* index_head_dim=32"),
    (TEXT + "rope_scaling.rope_type", "linear", r"rope_type='linear': only 'yarn'"),
    (TEXT + "rope_scaling.factor", 0.5, r"rope_scaling\.factor=0\.5: must be at least 1"),
    (TEXT + "rope_scaling.beta_fast", 1, r"beta_fast=1\.0: must be above beta_slow"),
    ("image_token_id", 384, r"image_token_id=384: must be from 0 to vocab_size - 1 = 383"),
    ("eos_token_id", -1, r"eos_token_id=-1"),
    (TEXT + "dspark_noise_token_id", 400, r"dspark_noise_token_id=400"),
    (TEXT + "engram_pad_token_id", 400, r"engram_pad_token_id=400"),
    # compression and sharing
    (TEXT + "compress_ratios", [0] * 8, r"compress_ratios=.*= 8 \+ 1 entries, has 8"),
    (TEXT + "compress_ratios", [0, 0, 2, 2, 2, 4, 4, 4, 0], r"only hold 0, 1 and 2"),
    (TEXT + "compress_ratios", [0, 0, 2, 2, 2, 1, 1, 1, 1], r"must end with 1 zeros"),
    (TEXT + "num_nextn_predict_layers", -1, r"num_nextn_predict_layers=-1"),
    (TEXT + "kv_source_layer_ids", [5, 2, 4], r"kv_source_layer_ids=.*ascending"),
    (TEXT + "kv_source_layer_ids", [2, 4, 5, 8], r"layer 8 must be from 0 to 7"),
    (TEXT + "kv_source_layer_ids", [1, 2, 4, 5], r"layer 1 has compress_ratio 0"),
    (TEXT + "kv_source_layer_ids", [4, 5], r"must start with the first compressed layer, 2"),
    (TEXT + "kv_source_layer_ids", [2, 4], r"layer 5 has ratio 1 but reads rows of layer 4"),
    (TEXT + "index_source_layer_ids", [4, 5, 7], r"index_source_layer_ids=.*first compressed"),
    (TEXT + "index_source_layer_ids", [2, 5, 7], r"every kv_source_layer_ids entry; \[4\] missing"),
    (TEXT + "index_k_source_layer_ids", [2], r"index_k_source_layer_ids=\[2\]: must equal"),
    (TEXT + "index_topk", 0, r"index_topk=0: must be above 0"),
    (TEXT + "candidate_source_layer_id", 6, r"candidate_source_layer_id=6: must be one of"),
    (TEXT + "candidate_source_layer_id", 2, r"candidate_source_layer_id=2: must not lie before"),
    (TEXT + "candidate_topk_blocks", 2, r"candidate_topk_blocks=2: .*= 5 must reach index_topk=7"),
    # Engram
    (TEXT + "engram_layer_ids", [3, 1], r"engram_layer_ids=\[3, 1\]: must be ascending"),
    (TEXT + "engram_layer_ids", [1, 9], r"engram_layer_ids=\[1, 9\]: layer 9"),
    (TEXT + "engram_num_embeddings", [434], r"engram_num_embeddings=\[434\]: must have 2 entries"),
    (TEXT + "engram_num_embeddings", [434, 605], r"must be \[434, 606\]"),
    (TEXT + "engram_max_ngram_size", 1, r"engram_max_ngram_size=1: must be at least 2"),
    (TEXT + "engram_vocab_size", 1 << 24, r"engram_vocab_size=16777216: must be from 2"),
    (TEXT + "engram_vocab_size", (1 << 24) - 9, r"engram_vocab_size=16777207: leads to the prime"),
    (TEXT + "engram_compressed_vocab_size", 385, r"engram_compressed_vocab_size=385"),
    # DSpark
    (TEXT + "dspark_target_layer_ids", [], r"dspark_target_layer_ids=\[\]: must name"),
    (TEXT + "dspark_target_layer_ids", [8], r"dspark_target_layer_ids=\[8\]: layer 8"),
    (TEXT + "dspark_num_experts_per_tok", 5, r"dspark_num_experts_per_tok=5"),
    # quantised sizes
    (TEXT + "moe_intermediate_size", 48, r"moe_intermediate_size=48: must be a multiple of 32"),
    (TEXT + "engram_head_dim", 16, r"engram_head_dim=16: must be a multiple of 32"),
    (TEXT + "index_n_heads", 0, r"index_n_heads=0"),
    # vision
    ("vision_config.hidden_size", 40, r"vision_config\.hidden_size=40: must be a multiple of"),
    ("vision_config.max_image_tokens", 3, r"max_image_tokens=3: must be at least 4"),
    ("vision_config.max_wh_ratio", 0, r"max_wh_ratio=0\.0: must be above 0"),
    ("image_token_id", DELETE, r"image_token_id is missing"),
]


@pytest.mark.parametrize(("path", "value", "message"), REFUSED)
def test_refuses(path: str, value: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        config.load_model(changed(path, value))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", r"a\.json: not valid JSON"),
        ("a.json", "[1]", r"a\.json: must hold one JSON object"),
        ("a.json", '{"dtype": NaN}', r"a\.json: NaN is not a number"),
        ("a.json", '{"dtype": 1, "dtype": 2}', r"a\.json: dtype: given twice"),
        ("a.toml", "[model", r"a\.toml: not valid TOML"),
        ("a.toml", "[engine]\n", r"a\.toml: TOML tables: unknown key 'engine'"),
    ],
)
def test_refuses_files(tmp_path: pathlib.Path, name: str, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_text(tmp_path, text, name)


def test_a_missing_file_is_named(tmp_path: pathlib.Path):
    with pytest.raises(ConfigError, match=r"nowhere\.json: cannot be read"):
        config.load(tmp_path / "nowhere.json")


def test_a_model_cannot_be_built_inconsistent():
    with pytest.raises(ConfigError, match="o_groups=3"):
        dataclasses.replace(config.load_model(SMALL), o_groups=3)


def test_released_engram_primes():
    walked = primes.engram_primes(config.load_model(RELEASED))
    assert [[len(order) for order in layer] for layer in walked] == [[8, 8, 8], [8, 8, 8]]
    assert walked[0][0][:3] == (16000057, 16000079, 16000081)
    assert walked[1][2][-1] == 16000889
    assert [sum(map(sum, layer)) for layer in walked] == [384006168, 384016682]


def test_primes_start_strictly_above():
    assert primes.primes_from(1, 6) == [2, 3, 5, 7, 11, 13]
    assert primes.primes_from(7, 2) == [11, 13]
    assert primes.primes_from(4090, 3) == [4091, 4093, 4099]


def test_numerics_presets():
    assert config.numerics_preset("released") == config.Numerics("bfloat16", True, True)
    assert config.numerics_preset("float32") == config.Numerics("float32", False, True)
    with pytest.raises(ConfigError, match=r"numerics='fp16': must be one of released, float32"):
        config.numerics_preset("fp16")
    with pytest.raises(ConfigError, match="arithmetic='float16'"):
        config.Numerics(arithmetic="float16")
    with pytest.raises(ConfigError, match="storage='float16'"):
        config.Numerics(storage="float16")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_sequences": 0}, "max_sequences=0: must be above 0"),
        ({"weights": "int8"}, "weights='int8': must be one of 'auto', 'quantized', 'dequantized'"),
        ({"chunk_tokens": ()}, r"chunk_tokens=\[\]: must be ascending"),
        ({"chunk_tokens": (64, 8)}, r"chunk_tokens=\[64, 8\]: must be ascending"),
    ],
)
def test_engine_refuses(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        config.Engine(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "zip"}, "format='zip': must be one of 'packed', 'dequantized'"),
        ({"page_tokens": 127}, "page_tokens=127: must be even"),
        ({"max_backtrack": -1}, "max_backtrack=-1: must not be negative"),
    ],
)
def test_cache_refuses(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        config.Cache(**changes)


def test_a_packed_cache_needs_rows_in_blocks():
    table = changed("quantization_config", DELETE)
    table["text_config"] |= {"head_dim": 40, "qk_rope_head_dim": 8, "index_head_dim": 24}
    model = config.load_model(table)
    config_rules.check_cache_fits(config.Cache(format="dequantized"), model)
    with pytest.raises(ConfigError, match="head_dim=40: a packed cache needs a multiple of 32"):
        config_rules.check_cache_fits(config.Cache(format="packed"), model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "max_tokens=0: must be a whole number from 1"),
        ({"max_tokens": 2.0}, "max_tokens=2.0"),
        ({"temperature": -1}, r"temperature=-1: must be 0 \(greedy\) or above"),
        ({"temperature": float("nan")}, "temperature=nan: must be a finite number"),
        ({"temperature": "1"}, "temperature='1': must be a finite number"),
        ({"top_p": 0}, "top_p=0: must be above 0"),
        ({"top_p": 1.5}, "top_p=1.5: must be above 0 and at most 1"),
        ({"top_k": 0}, "top_k=0: must be a whole number from 1 or -1"),
        ({"seq_seed": 2**64}, "seq_seed=18446744073709551616"),
        ({"stop_token_ids": (1, -3)}, "stop_token_ids=-3"),
        ({"ignore_eos": 1}, "ignore_eos=1: must be true or false"),
    ],
)
def test_sampling_params_refuse(changes: dict[str, Any], message: str):
    with pytest.raises(RequestError, match=message) as caught:
        records.SamplingParams(**changes)
    assert caught.value.param == next(iter(changes))
    assert caught.value.status == 400


def test_a_request_needs_a_prompt():
    with pytest.raises(RequestError, match="prompt_token_ids"):
        records.GenerateRequest("a", ())
    with pytest.raises(RequestError, match="prompt_token_ids=-1"):
        records.GenerateRequest("a", (1, -1))
    assert records.Usage(3, 4).total_tokens == 7
