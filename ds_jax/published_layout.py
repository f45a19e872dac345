"""The published `config.json` (tables, constant keys, key order) and our TOML spelling of it.

Decides where a key stands in a file and which keys must hold the one implemented value.
Never builds a config dataclass, never checks consistency.
In: a file or a parsed table. Out: one flat table per dataclass (`Sections`), and back to text.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import tomllib
from collections.abc import Mapping
from typing import Any, cast

from ds_jax import strict_table
from ds_jax.errors import ConfigError

_NESTED = ("text_config", "vision_config", "quantization_config")
_TOML_TABLES = {
    "model": "text_config",
    "vision": "vision_config",
    "quantization": "quantization_config",
}
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "image_token_id")

# Keys that describe the architecture, with the values that are implemented; the first is written.
_TOP_CONSTANTS: dict[str, tuple[Any, ...]] = {
    "architectures": (["DeepseekV41ForCausalLM"],),
    "model_type": ("deepseek_v41",),
    "dtype": ("bfloat16", "float32"),
    "torch_dtype": ("bfloat16", "float32"),
    "tie_word_embeddings": (False,),
}
_TEXT_CONSTANTS: dict[str, tuple[Any, ...]] = {
    "model_type": ("deepseek_v41_text",),
    "num_key_value_heads": (1,),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_dropout": (0.0,),
    "use_cache": (True,),
    "tie_word_embeddings": (False,),
    "scoring_func": ("sqrtsoftplus",),
    "topk_method": ("noaux_tc",),
    "norm_topk_prob": (True,),
    "dtype": ("bfloat16", "float32"),
    "torch_dtype": ("bfloat16", "float32"),
}
_VISION_CONSTANTS: dict[str, tuple[Any, ...]] = {"model_type": ("deepseek_v41_vision",)}

# Keys without meaning for inference, with the value written back.
_TRANSFORMERS_VERSION = "5.6.0"
_INITIALIZER_RANGE = 0.02

# Keys the published file lacks; written only where they differ from their default.
OPTIONAL_TEXT = (
    *("gate_temp", "hc_shifted", "use_fp4_sparse_kv", "index_k_source_layer_ids"),
    "dspark_target_attn_input",
)
OPTIONAL_VISION = ("rms_norm_eps",)

_TEXT_ORDER = (
    *("model_type", "vocab_size", "hidden_size", "moe_intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "qk_rope_head_dim", "q_lora_rank"),
    *("o_lora_rank", "o_groups", "hidden_act", "swiglu_limit", "rms_norm_eps", "attention_bias"),
    *("attention_dropout", "initializer_range", "use_cache", "tie_word_embeddings"),
    *("max_position_embeddings", "rope_theta", "rope_scaling", "n_routed_experts"),
    *("n_shared_experts", "num_experts_per_tok", "scoring_func", "topk_method", "norm_topk_prob"),
    *("routed_scaling_factor", "sliding_window", "compress_ratios", "compress_rope_theta"),
    *("kv_source_layer_ids", "index_source_layer_ids", "index_n_heads", "index_head_dim"),
    *("index_topk", "candidate_source_layer_id", "candidate_topk_blocks", "candidate_block_size"),
    *("hc_mult", "hc_sinkhorn_iters", "hc_eps", "engram_layer_ids", "engram_num_embeddings"),
    *("engram_max_ngram_size", "engram_vocab_size", "engram_n_heads", "engram_head_dim"),
    *("engram_pad_token_id", "engram_compressed_vocab_size", "num_nextn_predict_layers"),
    *("dspark_block_size", "dspark_noise_token_id", "dspark_target_layer_ids"),
    *("dspark_markov_rank", "dspark_n_routed_experts", "dspark_num_experts_per_tok"),
)
_ROPE_ORDER = ("rope_type", "factor", "beta_fast", "beta_slow", "original_max_position_embeddings")
_WHOLE = frozenset(("rope_theta", "compress_rope_theta", "factor", "beta_fast", "beta_slow"))


@dataclasses.dataclass(frozen=True)
class Sections:
    """Tables of one file, keys as in the dataclasses of `config`."""

    text: dict[str, Any]
    vision: dict[str, Any] | None


def read_file(path: pathlib.Path) -> Sections:
    """Parses a `.toml` or JSON file; raises ConfigError if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: cannot be read ({error}); give a config.json or a .toml file"
        ) from error
    try:
        if path.suffix == ".toml":
            return split(_from_toml(tomllib.loads(text)))
        table = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except ValueError as error:
        raise ConfigError(
            f"{path}: not valid {path.suffix[1:].upper() or 'JSON'}: {error}"
        ) from error
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: must hold one JSON object")
    try:
        return split(cast("dict[str, Any]", table))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def split(table: Mapping[str, Any]) -> Sections:
    """Splits a parsed `config.json` into one table per dataclass and checks its constant keys."""
    known = (*_TOP_CONSTANTS, "transformers_version", *_TOKEN_IDS, *_NESTED)
    strict_table.reject_unknown(table, known, "config")
    if not isinstance(table.get("text_config"), Mapping):
        raise ConfigError(
            "text_config: missing; the published layout nests the text model's keys there"
        )
    _check_constants(table, _TOP_CONSTANTS, "config")
    if not isinstance(table.get("transformers_version", ""), str):
        raise ConfigError(
            f"transformers_version={table['transformers_version']!r}: must be a string"
        )
    text = _drop_constants(table["text_config"], _TEXT_CONSTANTS, "text_config")
    _pop_initializer_range(text)
    for name in _TOKEN_IDS:
        if name in table:
            if text.get(name, table[name]) != table[name]:
                raise ConfigError(
                    f"{name}={table[name]!r} but text_config.{name}={text[name]!r}; keep one"
                )
            text[name] = table[name]
    _rename_pad(text)
    if text.get("candidate_source_layer_id") == -1:
        text["candidate_source_layer_id"] = None
    if table.get("quantization_config") is not None:
        text["quantization"] = table["quantization_config"]
    vision = table.get("vision_config")
    if vision is not None:
        vision = _drop_constants(vision, _VISION_CONSTANTS, "vision_config")
    return Sections(text, vision)


def join(text: Mapping[str, Any], vision: Mapping[str, Any] | None) -> str:
    """Writes the tables back as the published `config.json`, byte for byte as published."""
    fields = dict(text)
    top: dict[str, Any] = {
        "architectures": _TOP_CONSTANTS["architectures"][0],
        "model_type": _TOP_CONSTANTS["model_type"][0],
        "dtype": _TOP_CONSTANTS["dtype"][0],
        "transformers_version": _TRANSFORMERS_VERSION,
    }
    top |= {name: fields.pop(name) for name in _TOKEN_IDS if fields.get(name) is not None}
    fields.pop("image_token_id", None)
    quantization = fields.pop("quantization")
    if quantization is not None:
        top["quantization_config"] = quantization
    if fields["candidate_source_layer_id"] is None:
        fields["candidate_source_layer_id"] = -1
    if fields["rope_scaling"] is not None:
        fields["rope_scaling"] = _whole({key: fields["rope_scaling"][key] for key in _ROPE_ORDER})
    fields |= {key: values[0] for key, values in _TEXT_CONSTANTS.items() if key in _TEXT_ORDER}
    fields["initializer_range"] = _INITIALIZER_RANGE
    extra = [key for key in fields if key not in _TEXT_ORDER]
    top["text_config"] = _whole(
        {key: fields[key] for key in (*_TEXT_ORDER, *extra) if key in fields}
    )
    if vision is not None:
        constants = {key: values[0] for key, values in _VISION_CONSTANTS.items()}
        top["vision_config"] = _whole({**constants, **vision})
    return json.dumps(top, indent=2) + "\n"


def _from_toml(table: Mapping[str, Any]) -> dict[str, Any]:
    strict_table.reject_unknown(table, _TOML_TABLES, "TOML tables")
    return {_TOML_TABLES[name]: content for name, content in table.items()}


def _drop_constants(
    table: Any, constants: Mapping[str, tuple[Any, ...]], where: str
) -> dict[str, Any]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where}={table!r}: must be a table of keys")
    table = cast("Mapping[str, Any]", table)
    _check_constants(table, constants, where)
    return {key: value for key, value in table.items() if key not in constants}


def _check_constants(
    table: Mapping[str, Any], constants: Mapping[str, tuple[Any, ...]], where: str
) -> None:
    for key, allowed in constants.items():
        if key not in table:
            continue
        value = table[key]
        if not any(value == a and isinstance(value, bool) == isinstance(a, bool) for a in allowed):
            shown = " or ".join(repr(a) for a in allowed)
            raise ConfigError(f"{where}.{key}={value!r}: the implemented model has {shown}")


def _pop_initializer_range(text: dict[str, Any]) -> None:
    value = text.pop("initializer_range", _INITIALIZER_RANGE)
    if type(value) not in (int, float) or not 0 < value < 1:
        raise ConfigError(
            f"text_config.initializer_range={value!r}: must be a number between 0 and 1"
        )


def _rename_pad(text: dict[str, Any]) -> None:
    """Some writers call `engram_pad_token_id` `engram_pad_id`."""
    if "engram_pad_id" not in text:
        return
    value = text.pop("engram_pad_id")
    if text.setdefault("engram_pad_token_id", value) != value:
        given = text["engram_pad_token_id"]
        raise ConfigError(
            f"engram_pad_id={value!r} but engram_pad_token_id={given!r}; keep one of them"
        )


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    """Writes the numbers that are published without a decimal point that way."""
    return {
        key: int(value) if key in _WHOLE and float(value).is_integer() else value
        for key, value in table.items()
    }


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        twice = sorted({key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1})
        raise ConfigError(f"{', '.join(twice)}: given twice; keep one")
    return table


def _no_constant(name: str) -> Any:
    raise ConfigError(f"{name} is not a number a configuration may hold")
