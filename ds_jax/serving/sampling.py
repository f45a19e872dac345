"""From a converted request to what the engine samples.

Decides how the recipe's options, the further fields and the grammar become `SamplingParams`. Never
reads a body, never compiles a grammar. In: `ConversationRequest`, `Extras`. Out: `SamplingParams`.
"""

from __future__ import annotations

from ds_jax.grammar_request import GrammarRequest
from ds_jax.recipe.request import ConversationRequest
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import SamplingParams
from ds_jax.serving.extras import Extras
from ds_jax.serving.problems import Problem
from ds_jax.structured import answers


def of(
    request: ConversationRequest,
    extras: Extras,
    tokenizer: Tokenizer,
    prompt_tokens: int,
    max_context: int,
) -> SamplingParams:
    """How an answer is sampled.

    Raises: ConversionError: too long. RequestError, Problem: a value makes no sense.
    """
    options = request.inference_options
    seed = options.seed if options.seed is not None else extras.seed
    return SamplingParams(
        max_tokens=request.resolve_max_tokens(prompt_tokens, max_context),
        temperature=1.0 if options.temperature is None else options.temperature,
        top_p=1.0 if options.top_p is None else options.top_p or 1e-6,
        top_k=extras.top_k,
        min_p=extras.min_p,
        repetition_penalty=extras.repetition_penalty,
        presence_penalty=extras.presence_penalty,
        frequency_penalty=extras.frequency_penalty,
        logit_bias=extras.logit_bias,
        top_logprobs=(options.top_logprobs or 0) if options.logprobs else None,
        seq_seed=seed,
        ignore_eos=extras.ignore_eos,
        grammar=_grammar(request, extras, tokenizer),
    )


def _grammar(
    request: ConversationRequest, extras: Extras, tokenizer: Tokenizer
) -> GrammarRequest | None:
    stage = request.parsing_options.thinking_initial_stage
    thinking = stage is not None and stage.starts_in_reasoning()
    constraint = request.inference_options.output_constraint
    if extras.ebnf is not None:
        if constraint is not None:
            raise Problem(
                400,
                "ebnf: an answer follows one grammar; leave out response_format and tools",
                param="ebnf",
            )
        trigger: tuple[int, ...] = ()
        if thinking:
            trigger = (tokenizer.control_id(request.parsing_options.special_tokens.thinking_end),)
        return GrammarRequest("ebnf", extras.ebnf, trigger_token_ids=trigger)
    if constraint is None:
        return None
    return answers.grammar(constraint.kind, constraint.schema, tokenizer, thinking=thinking)
