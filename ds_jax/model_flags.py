"""The flags that say which model runs, where and how: of every command that serves it.

Decides names, defaults and help. Never loads anything. In: flags. Out: arguments of
`Pipeline.from_checkpoint`, fields of `config.Cache`.
"""

from __future__ import annotations

from typing import Any

from absl import flags

CHECKPOINT = flags.DEFINE_string(
    "checkpoint", "tiny", "Folder in the published layout, or a config file with --check."
)
MESH = flags.DEFINE_string("mesh", "ep1", "Devices, such as ep8 or ep2,dp8.")
_NUMERICS = flags.DEFINE_enum("numerics", "released", ["released", "float32"], "Rounding policy.")
WEIGHTS = flags.DEFINE_enum(
    "weights", "auto", ["auto", "quantized", "dequantized"], "Weights in memory."
)
_PLATFORM = flags.DEFINE_string("platform", None, "cpu, cuda, tpu or the name of a PJRT plugin.")
MAX_CONTEXT = flags.DEFINE_integer(
    "max_context", None, "Positions of a sequence; default: the model's, at most 4096."
)
MAX_SEQUENCES = flags.DEFINE_integer("max_sequences", 8, "Sequences a device holds at once.")
_PROGRAM_CACHE = flags.DEFINE_string(
    "program_cache", "~/.cache/ds_jax/programs", "Folder of compiled programs; empty: none."
)
_PAGES = flags.DEFINE_integer(
    "pages", None, "Pages of 128 tokens a device; default: every sequence can have a whole context."
)
_PREFIX = flags.DEFINE_bool("prefix_cache", True, "Keep pages for later prompts that begin alike.")
_SNAPSHOTS = flags.DEFINE_integer(
    "snapshots", None, "Stored states from which such prompts go on; default: 3 a sequence."
)
_REPLAY = flags.DEFINE_enum(
    "replay", "off", ["off", "mask", "compact"], "Decoder rows of prompts that are left out."
)
_KEEP_TOKENS = flags.DEFINE_integer("keep_tokens", 0, "Decoder rows kept with --replay; 140.")
_BOUNDED_REPLAY = flags.DEFINE_bool(
    "bounded_replay", False, "Rebuild windows behind a cached prefix from one window of tokens."
)
_STEP_TOKENS = flags.DEFINE_integer(
    "step_tokens", None, "Tokens of a step; default: the longest chunk and every sequence's row."
)
_OVERLAP = flags.DEFINE_bool("overlap", True, "Plan and launch a step while another runs.")
NEXTN = flags.DEFINE_integer(
    "nextn", 0, "Drafts a sequence and step, verified exactly; 0: none.", lower_bound=0
)
_VARLEN_VERIFY = flags.DEFINE_bool(
    "varlen_verify", False, "Verify only the drafts that pay, chosen by their confidence."
)
CANONICAL = flags.DEFINE_bool(
    "canonical", False, "Tokens do not depend on neighbours, chunks or cached prefixes; slower."
)


def options() -> dict[str, Any]:
    """Keyword arguments of `Pipeline.from_checkpoint`, the path among them."""
    return {
        "path": CHECKPOINT.value,
        "mesh": MESH.value,
        "numerics": _NUMERICS.value,
        "weights": WEIGHTS.value,
        "platform": _PLATFORM.value,
        "program_cache": _PROGRAM_CACHE.value or None,
        "max_context": MAX_CONTEXT.value,
        "max_sequences": MAX_SEQUENCES.value,
        "canonical": CANONICAL.value,
        "nextn": NEXTN.value,
        "varlen_verify": _VARLEN_VERIFY.value,
        "engine": {"step_tokens": _STEP_TOKENS.value, "overlap": _OVERLAP.value},
        "cache": cache(),
    }


def cache() -> dict[str, Any]:
    """Fields of `config.Cache`."""
    return {
        "pages": _PAGES.value,
        "prefix": _PREFIX.value,
        "snapshots": _SNAPSHOTS.value,
        "replay": _REPLAY.value,
        "keep_tokens": _KEEP_TOKENS.value,
        "bounded_replay": _BOUNDED_REPLAY.value,
    }
