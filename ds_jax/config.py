"""Configuration as frozen dataclasses; the one place where a config key gets its meaning.

Decides what a key may hold and which combinations exist. Never touches a device, never imports jax.
In: a `config.json` in the published layout, or our TOML. Out: frozen dataclasses.
"""

from __future__ import annotations

import dataclasses
import enum
import pathlib
from collections.abc import Mapping
from typing import Any

from ds_jax import config_rules, published_layout, strict_table
from ds_jax.errors import ConfigError


class LayerKind(enum.Enum):
    """Role of a layer in attention (one per layer, derived from the config)."""

    WINDOW = "window"  # sliding window only, no compressed rows
    FULL = "full"  # own compressor and index keys, own selection
    REINDEX = "reindex"  # own selection over another layer's keys and rows
    REUSE = "reuse"  # another layer's rows and another layer's selection


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """YaRN parameters of the layers with compressed rows."""

    factor: float
    beta_fast: float
    beta_slow: float
    original_max_position_embeddings: int
    rope_type: str = "yarn"

    def __post_init__(self):
        config_rules.check_rope_scaling(self)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Weights of the checkpoint: FP8 e4m3 per 32x32 block, experts MXFP4 per 32 inputs."""

    quant_method: str = "fp8"
    activation_scheme: str = "dynamic"
    weight_block_size: tuple[int, int] = (32, 32)
    scale_fmt: str = "ue8m0"
    expert_dtype: str = "fp4"

    def __post_init__(self):
        config_rules.check_quantization(self)


@dataclasses.dataclass(frozen=True)
class Model:
    """The text model. Field names are the published config keys.

    An inconsistent model cannot be built: ConfigError names the key.
    """

    vocab_size: int
    hidden_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    n_routed_experts: int
    num_experts_per_tok: int
    sliding_window: int
    compress_ratios: tuple[int, ...]  # one per layer, then one per DSpark block
    kv_source_layer_ids: tuple[int, ...] = ()
    index_source_layer_ids: tuple[int, ...] = ()
    index_n_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    candidate_source_layer_id: int | None = None
    candidate_topk_blocks: int = 0
    candidate_block_size: int = 0
    n_shared_experts: int = 1
    routed_scaling_factor: float = 1.0
    swiglu_limit: float = 10.0
    rms_norm_eps: float = 1e-20
    max_position_embeddings: int = 1048576
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_scaling: RopeScaling | None = None
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    engram_layer_ids: tuple[int, ...] = ()
    engram_num_embeddings: tuple[int, ...] = ()
    engram_max_ngram_size: int = 0
    engram_vocab_size: int = 0
    engram_n_heads: int = 0
    engram_head_dim: int = 0
    engram_pad_token_id: int = 2
    engram_compressed_vocab_size: int = 0
    num_nextn_predict_layers: int = 0
    dspark_block_size: int = 0
    dspark_noise_token_id: int = 0
    dspark_target_layer_ids: tuple[int, ...] = ()
    dspark_markov_rank: int = 0
    dspark_n_routed_experts: int = 0
    dspark_num_experts_per_tok: int = 0
    gate_temp: float = 1.0
    hc_shifted: bool = True  # a site collapses with the weights of the site before it
    use_fp4_sparse_kv: bool = True  # compressed rows are FP4, not FP8
    index_k_source_layer_ids: tuple[int, ...] | None = None  # None: kv_source_layer_ids
    dspark_target_attn_input: bool = True  # DSpark reads the streams in front of attention
    bos_token_id: int = 0
    eos_token_id: int = 1
    pad_token_id: int = 2
    image_token_id: int | None = None
    quantization: Quantization | None = None

    def __post_init__(self):
        config_rules.check_model(self)

    def ratio(self, layer: int) -> int:
        """Compression ratio of a layer: 0 (window only), 1 or 2 tokens per compressed row."""
        return self.compress_ratios[layer]

    def kind(self, layer: int) -> LayerKind:
        """Role of a layer, from the source lists."""
        if self.ratio(layer) == 0:
            return LayerKind.WINDOW
        if layer in self.kv_source_layer_ids:
            return LayerKind.FULL
        if layer in self.index_source_layer_ids:
            return LayerKind.REINDEX
        return LayerKind.REUSE

    def kv_source(self, layer: int) -> int:
        """The layer whose compressed rows `layer` reads."""
        return max(s for s in self.kv_source_layer_ids if s <= layer)

    def index_source(self, layer: int) -> int:
        """The layer whose selection `layer` uses."""
        return max(s for s in self.index_source_layer_ids if s <= layer)


@dataclasses.dataclass(frozen=True)
class Vision:
    """The vision tower and its aligner. Field names are the published config keys."""

    num_hidden_layers: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    patch_size: int = 14
    rope_theta: float = 10000.0
    downsample_ratio: int = 3
    max_image_tokens: int = 1024
    min_pixels: int = 295936
    max_wh_ratio: float | None = None
    rms_norm_eps: float = 1e-6

    def __post_init__(self):
        config_rules.check_vision(self)


@dataclasses.dataclass(frozen=True)
class Numerics:
    """Three independent switches; one code path reads them.

    Attributes:
      arithmetic: "bfloat16" rounds where the model rounds, "float32" never rounds.
      quantize_activations: FP8 per 32 in front of quantised linears, only where the checkpoint is
        quantised.
      quantize_cache: FP8 window rows, FP4 compressed rows and FP4 index queries and keys.
      storage: dtype that holds rounded values. "float32" holds bf16 values exactly and is the fast
        choice on CPU; "bfloat16" is the choice on accelerators. Read only with bfloat16 arithmetic.
    """

    arithmetic: str = "bfloat16"
    quantize_activations: bool = True
    quantize_cache: bool = True
    storage: str = "float32"

    def __post_init__(self):
        config_rules.one_of(self, "arithmetic", ("bfloat16", "float32"))
        config_rules.one_of(self, "storage", ("bfloat16", "float32"))


RELEASED = Numerics("bfloat16", True, True)
FLOAT32 = Numerics("float32", False, True)


def numerics_preset(name: str) -> Numerics:
    """Returns the preset "released" (bf16, quantisers as published) or "float32" (parity)."""
    presets = {"released": RELEASED, "float32": FLOAT32}
    if name not in presets:
        raise ConfigError(f"numerics={name!r}: must be one of {', '.join(presets)}")
    return presets[name]


@dataclasses.dataclass(frozen=True)
class Engine:
    """Shapes and choices of one replica's steps, fixed at start-up.

    Attributes:
      max_sequences: slots per data-parallel rank.
      max_context: positions a sequence may hold, prompt and output together.
      chunk_tokens: prefill chunk lengths (buckets), ascending; a chunk is padded to one of them.
      scan_layers: scan over repeating layers (compiles faster) or unroll them (for tracing).
      weights: "quantized" keeps FP8/FP4 in memory, "dequantized" expands them, "auto" lets the
        platform decide.
      step_tokens: tokens of a step and data-parallel rank, prefill and decode together; None: the
        longest chunk beside a decode row of every slot.
      overlap: plan and launch a step while the one before runs.
      canonical: compute every row by one program of `canonical_rows` rows, so that tokens do not
        depend on chunks, neighbours, cached prefixes or preemption, bit for bit.
      canonical_rows: rows of that program.
      nextn: drafts a sequence and step; 0: none are made.
      varlen_verify: verify only the drafts that pay, chosen by their confidence; else all.
      confidence_temperatures: divide the confidence's logit at each draft; empty: 1.
    """

    max_sequences: int = 1
    max_context: int = 4096
    chunk_tokens: tuple[int, ...] = (8, 64, 512)
    scan_layers: bool = True
    weights: str = "auto"
    step_tokens: int | None = None
    overlap: bool = True
    canonical: bool = False
    canonical_rows: int = 16
    nextn: int = 0
    varlen_verify: bool = False
    confidence_temperatures: tuple[float, ...] = ()

    def __post_init__(self):
        config_rules.check_engine(self)


@dataclasses.dataclass(frozen=True)
class Cache:
    """How the state of sequences is held.

    Attributes:
      format: "packed" holds FP8/FP4 bytes, "dequantized" holds the same values unpacked.
      page_tokens: tokens per page of compressed rows.
      max_backtrack: committed tokens a sequence may drop again; widens the window rings.
      pages: pages of a data-parallel rank; None: every slot can hold a whole context.
      prefix: keep pages for later sequences that begin alike.
      snapshots: states stored beside the pages, from which such sequences go on; None: 3 a slot.
      replay: "off" computes every row; with "mask" and "compact" the decoder side sees none but the
        last `keep_tokens` of a prompt (approximate; `kvcache.replay`). Both give the same tokens;
        "mask" computes the other rows and hides them, "compact" leaves them out: of each chunk, it
        computes at most `keep_tokens` decoder rows of a sequence.
      keep_tokens: see `replay`; 0 with "off".
      bounded_replay: where no state is stored, rebuild windows from one window of tokens
        (approximate) instead of as many as an exact rebuild takes.
    """

    format: str = "packed"
    page_tokens: int = 128
    max_backtrack: int = 0
    pages: int | None = None
    prefix: bool = True
    snapshots: int | None = None
    replay: str = "off"
    keep_tokens: int = 0
    bounded_replay: bool = False

    def __post_init__(self):
        config_rules.check_cache(self)


def load(path: str | pathlib.Path) -> tuple[Model, Vision | None]:
    """Reads a `config.json` in the published layout, a folder that holds one, or our TOML.

    Returns:
      The text model, and the vision tower if the file has one.

    Raises:
      ConfigError: unreadable file, unknown key, wrong type or inconsistent value; the key is named.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        path = path / "config.json"
    return _build(published_layout.read_file(path))


def load_model(source: str | pathlib.Path | Mapping[str, Any]) -> Model:
    """Like `load`, for the text model alone; also accepts an already parsed `config.json`."""
    if isinstance(source, Mapping):
        return _build(published_layout.split(source))[0]
    return load(source)[0]


def dump(model: Model, vision: Vision | None = None) -> str:
    """Returns the text of a `config.json` that `load` reads back, keys in the published order."""
    text = _fields(model, published_layout.OPTIONAL_TEXT)
    if vision is None:
        return published_layout.join(text, None)
    return published_layout.join(text, _fields(vision, published_layout.OPTIONAL_VISION))


def _build(sections: published_layout.Sections) -> tuple[Model, Vision | None]:
    model = Model(**strict_table.read(Model, sections.text, "text_config"))
    if sections.vision is None:
        return model, None
    if model.image_token_id is None:
        raise ConfigError(
            "vision_config is given but image_token_id is missing; add the placeholder's id"
        )
    return model, Vision(**strict_table.read(Vision, sections.vision, "vision_config"))


def _fields(record: Model | Vision, optional: tuple[str, ...]) -> dict[str, Any]:
    """Field values in order, without `optional` fields that hold their default."""
    defaults = {f.name: f.default for f in dataclasses.fields(record)}
    values = dataclasses.asdict(record)
    return {k: v for k, v in values.items() if k not in optional or v != defaults[k]}
