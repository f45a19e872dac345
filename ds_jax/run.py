"""Offline inference on a mesh, from the command line.

    python -m ds_jax.run --mesh=ep1 --prompt "The capital of France"

Decides the flags of prompts and sampling. Never computes: a flag becomes an argument of `Pipeline`
or of a request. In: flags. Out: text or
JSON lines on stdout, progress and statistics on stderr; exit code 2 and one line for a user's
mistake.
"""

from __future__ import annotations

from absl import flags

from ds_jax import command, model_flags, terminal
from ds_jax.errors import RequestError

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
_CHECK = flags.DEFINE_bool("check", False, "Print what the mesh needs and what does not fit.")
_OUTPUT = flags.DEFINE_enum("output", "text", ["text", "jsonl"], "What stdout gets.")


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

    options = model_flags.options()
    options["max_sequences"] = min(options["max_sequences"], len(prompts))
    pipeline = Pipeline.from_checkpoint(**options)
    clock.loaded()
    session = terminal.Session(
        pipeline, prompts, params, chat=_CHAT.value, thinking=_THINKING.value, clock=clock
    )
    session.run(_OUTPUT.value)


def _check() -> None:
    from ds_jax import config, config_rules
    from ds_jax.engine import check
    from ds_jax.sharding.mesh import MeshSpec

    source = terminal.config_file(model_flags.CHECKPOINT.value)
    model = config.load_model(source)
    engine = config.Engine(
        model_flags.MAX_SEQUENCES.value,
        model_flags.MAX_CONTEXT.value or min(4096, model.max_position_embeddings),
        weights=model_flags.WEIGHTS.value,
        canonical=model_flags.CANONICAL.value,
    )
    cache = config.Cache(**model_flags.cache())
    config_rules.check_canonical(engine, cache)
    print(check.report(model, MeshSpec.parse(model_flags.MESH.value), engine, cache))


if __name__ == "__main__":
    command.start("ds_jax", main)
