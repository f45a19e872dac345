"""Offline inference on a mesh, from the command line.

    python -m ds_jax.run --mesh=ep1 --prompt "The capital of France"

Decides the flags. Never computes: a flag becomes an argument of `Pipeline`. In: flags. Out: text or
JSON lines on stdout, progress and statistics on stderr; exit code 2 and one line for a user's
mistake.
"""

from __future__ import annotations

from typing import Any

from absl import flags

from ds_jax import command, terminal
from ds_jax.errors import RequestError

_CHECKPOINT = flags.DEFINE_string(
    "checkpoint", "tiny", "Folder in the published layout, or a config file with --check."
)
_MESH = flags.DEFINE_string("mesh", "ep1", "Devices, such as ep8 or ep2,dp8.")
_PROMPT = flags.DEFINE_multi_string("prompt", [], "A prompt; may be repeated.")
_PROMPTS_FILE = flags.DEFINE_string(
    "prompts_file", None, 'JSON lines: "text", {"prompt": "text"} or {"token_ids": [1, 2]}.'
)
_CHAT = flags.DEFINE_bool("chat", False, "Render each prompt as a user's turn.")
_THINKING = flags.DEFINE_bool(
    "thinking", False, "With --chat: let the model reason first; its text then shows </think>."
)
_MAX_TOKENS = flags.DEFINE_integer("max_tokens", 128, "Tokens to generate at most.")
_TEMPERATURE = flags.DEFINE_float("temperature", 1.0, "0 takes the most likely token.")
_TOP_P = flags.DEFINE_float("top_p", 1.0, "Keep the most likely tokens up to this probability.")
_TOP_K = flags.DEFINE_integer("top_k", -1, "Keep this many most likely tokens; -1 keeps all.")
_MIN_P = flags.DEFINE_float(
    "min_p", 0.0, "Keep tokens at least this share as probable as the most likely one."
)
_REPETITION = flags.DEFINE_float(
    "repetition_penalty", 1.0, "Divides the logits of tokens in prompt or output; 1: nothing."
)
_PRESENCE = flags.DEFINE_float(
    "presence_penalty", 0.0, "Subtracted from the logits of tokens in the output."
)
_FREQUENCY = flags.DEFINE_float(
    "frequency_penalty", 0.0, "The same for every time the token is in the output."
)
_BIAS = flags.DEFINE_list("logit_bias", [], "id:value,...: added to the logits of these ids.")
_TOP_LOGPROBS = flags.DEFINE_integer(
    "top_logprobs", None, "Report log probabilities, with so many likely tokens; needs jsonl."
)
_PROMPT_LOGPROBS = flags.DEFINE_integer(
    "prompt_logprobs", None, "The same for the tokens of prompts."
)
_IGNORE_EOS = flags.DEFINE_bool("ignore_eos", False, "Go on past the model's end token.")
_JSON_SCHEMA = flags.DEFINE_string(
    "json_schema", None, "File with a JSON Schema that every output follows."
)
_REGEX = flags.DEFINE_string("regex", None, "Regular expression that every output matches.")
_EBNF = flags.DEFINE_string(
    "ebnf", None, "File with a grammar in GBNF; every output is its rule root."
)
_SEQ_SEED = flags.DEFINE_integer("seq_seed", None, "Seed of every sequence; default: drawn.")
_NUMERICS = flags.DEFINE_enum("numerics", "released", ["released", "float32"], "Rounding policy.")
_WEIGHTS = flags.DEFINE_enum(
    "weights", "auto", ["auto", "quantized", "dequantized"], "Weights in memory."
)
_PLATFORM = flags.DEFINE_string("platform", None, "cpu, cuda, tpu or the name of a PJRT plugin.")
_CHECK = flags.DEFINE_bool("check", False, "Print what the mesh needs and what does not fit.")
_OUTPUT = flags.DEFINE_enum("output", "text", ["text", "jsonl"], "What stdout gets.")
_MAX_CONTEXT = flags.DEFINE_integer(
    "max_context", None, "Positions of a sequence; default: the model's, at most 4096."
)
_MAX_SEQUENCES = flags.DEFINE_integer("max_sequences", 8, "Sequences a device holds at once.")
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
_NEXTN = flags.DEFINE_integer(
    "nextn", 0, "Drafts a sequence and step, verified exactly; 0: none.", lower_bound=0
)
_VARLEN_VERIFY = flags.DEFINE_bool(
    "varlen_verify", False, "Verify only the drafts that pay, chosen by their confidence."
)
_CANONICAL = flags.DEFINE_bool(
    "canonical", False, "Tokens do not depend on neighbours, chunks or cached prefixes; slower."
)


def main(arguments: list[str]) -> None:
    """Runs what the flags say."""
    if arguments:
        raise RequestError(f"unexpected argument {arguments[0]!r}; put prompts behind --prompt")
    _check() if _CHECK.value else _generate()


def _generate() -> None:
    from ds_jax.records import SamplingParams

    if _THINKING.value and not _CHAT.value:
        raise RequestError("--thinking needs --chat; plain prompts hold their own reasoning marks")
    for flag in (_TOP_LOGPROBS, _PROMPT_LOGPROBS):
        if flag.value is not None and _OUTPUT.value != "jsonl":
            raise RequestError(f"--{flag.name} needs --output=jsonl; text has no place for them")
    clock = terminal.Clock()
    prompts = terminal.prompts(_PROMPT.value, _PROMPTS_FILE.value)
    params = SamplingParams(
        max_tokens=_MAX_TOKENS.value,
        temperature=_TEMPERATURE.value,
        top_p=_TOP_P.value,
        top_k=_TOP_K.value,
        min_p=_MIN_P.value,
        repetition_penalty=_REPETITION.value,
        presence_penalty=_PRESENCE.value,
        frequency_penalty=_FREQUENCY.value,
        logit_bias=terminal.biases(_BIAS.value),
        top_logprobs=_TOP_LOGPROBS.value,
        prompt_logprobs=_PROMPT_LOGPROBS.value,
        ignore_eos=_IGNORE_EOS.value,
        seq_seed=_SEQ_SEED.value,
        grammar=terminal.grammar(_JSON_SCHEMA.value, _REGEX.value, _EBNF.value),
    )
    from ds_jax.pipeline import Pipeline  # jax is loaded only when it is needed

    pipeline = Pipeline.from_checkpoint(
        _CHECKPOINT.value,
        mesh=_MESH.value,
        numerics=_NUMERICS.value,
        weights=_WEIGHTS.value,
        platform=_PLATFORM.value,
        program_cache=_PROGRAM_CACHE.value or None,
        max_context=_MAX_CONTEXT.value,
        max_sequences=min(_MAX_SEQUENCES.value, len(prompts)),
        canonical=_CANONICAL.value,
        nextn=_NEXTN.value,
        varlen_verify=_VARLEN_VERIFY.value,
        engine={"step_tokens": _STEP_TOKENS.value, "overlap": _OVERLAP.value},
        cache=_cache(),
    )
    clock.loaded()
    session = terminal.Session(
        pipeline, prompts, params, chat=_CHAT.value, thinking=_THINKING.value, clock=clock
    )
    session.run(_OUTPUT.value)


def _cache() -> dict[str, Any]:
    """Fields of `config.Cache`."""
    return {
        "pages": _PAGES.value,
        "prefix": _PREFIX.value,
        "snapshots": _SNAPSHOTS.value,
        "replay": _REPLAY.value,
        "keep_tokens": _KEEP_TOKENS.value,
        "bounded_replay": _BOUNDED_REPLAY.value,
    }


def _check() -> None:
    from ds_jax import config, config_rules
    from ds_jax.engine import check
    from ds_jax.sharding.mesh import MeshSpec

    source = terminal.config_file(_CHECKPOINT.value)
    model = config.load_model(source)
    context = _MAX_CONTEXT.value or min(4096, model.max_position_embeddings)
    engine = config.Engine(
        _MAX_SEQUENCES.value, context, weights=_WEIGHTS.value, canonical=_CANONICAL.value
    )
    cache = config.Cache(**_cache())
    config_rules.check_canonical(engine, cache)
    print(check.report(model, MeshSpec.parse(_MESH.value), engine, cache))


if __name__ == "__main__":
    command.start("ds_jax", main)
