"""How the sampling of a row travels to the device, as int32 words.

Decides which words there are and which requests need more than the plain ones. Never samples.
In: `SamplingParams` and seeds on the host. Out: words; on the device `sample.Controls` from them.

| plain words | meaning |
|---|---|
| 0-1 | seed (high, low) |
| 2-3 | temperature, top-p (float32 bits) |
| 4 | top-k |

| full words | meaning |
|---|---|
| 0-4 | the plain words |
| 5-7 | slot, position of the token to draw, flags |
| 8-11 | min-p, repetition, presence and frequency penalty (float32 bits) |
| N | ids of the logit bias |
| N | its values (float32 bits) |
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int

from ds_jax.errors import RequestError
from ds_jax.records import MAX_LOGIT_BIAS, SamplingParams, TokenLogprob
from ds_jax.sampling import full, logprobs, penalties, sample

WORDS = 5
TEMPERATURE = 2  # its word
_BIAS = WORDS + 7  # where the bias starts
FULL_WORDS = _BIAS + 2 * MAX_LOGIT_BIAS
COUNTED, REPORTED = 1, 2  # flags
NOWHERE = 2**30  # a slot, handle or token id that no array has
GREEDY_BELOW = 1e-5  # a lower temperature is greedy: logits over it would not be finite
LARGEST = 1e9  # a higher temperature is this one: draws are uniform either way


def check(
    params: SamplingParams,
    vocab_size: int,
    *,
    skips_rows: bool = False,
    has_grammars: bool = False,
) -> None:
    """Raises RequestError for what `SamplingParams` cannot know: it depends on the replica.

    Args:
      skips_rows: the decoder side does not run all rows of a prompt.
      has_grammars: there is a tokenizer, by which grammars are compiled.
    """
    if params.grammar is not None:
        if not has_grammars:
            raise RequestError(
                f"grammar={params.grammar.kind!r}: a grammar needs the model's tokenizer, and this "
                "replica has none",
                param="grammar",
            )
        bound = params.grammar.bound_token_id
        for token in (*params.grammar.trigger_token_ids, bound or 0):
            if token >= vocab_size:
                raise RequestError(
                    f"trigger_token_ids={token}: ids go from 0 to {vocab_size - 1}",
                    param="trigger_token_ids",
                )
    for token, _ in params.logit_bias:
        if token >= vocab_size:
            raise RequestError(
                f"logit_bias={token}: ids go from 0 to {vocab_size - 1}", param="logit_bias"
            )
    if skips_rows and params.prompt_logprobs is not None:
        raise RequestError(
            f"prompt_logprobs={params.prompt_logprobs}: this replica skips rows of prompts, whose "
            "log probabilities do not exist; ask one that runs all of them (mode off)",
            param="prompt_logprobs",
        )


def pack(params: Sequence[SamplingParams], seeds: Sequence[int]) -> np.ndarray:
    """Plain words of rows, int32 [rows, WORDS]."""
    words = np.empty((len(params), WORDS), np.uint32)
    seed = np.array(seeds, np.uint64)
    words[:, 0], words[:, 1] = seed >> np.uint64(32), seed & np.uint64(0xFFFFFFFF)
    floats = np.array([(p.temperature, p.top_p) for p in params]).reshape(-1, 2)
    floats[floats[:, 0] < GREEDY_BELOW, 0] = 0.0
    words[:, 2:4] = np.minimum(floats, LARGEST).astype(np.float32).view(np.uint32)
    signed = words.view(np.int32)
    signed[:, 4] = [min(p.top_k, 2**31 - 1) for p in params]
    return signed


def unpack(words: Int[Array, "B words"], position: Int[Array, " B"]) -> sample.Controls:
    """Inside a step: controls from plain words and the positions to draw for."""
    floats = lax.bitcast_convert_type(words[:, 2:4], jnp.float32)
    return sample.Controls(
        temperature=floats[:, 0],
        top_p=floats[:, 1],
        top_k=words[:, 4],
        seed=lax.bitcast_convert_type(words[:, :2], jnp.uint32),
        position=position,
    )


def pack_full(
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    slots: Sequence[int],
    positions: Sequence[int],
    places: Sequence[int],
    total: int,
) -> np.ndarray:
    """Full words int32 [total, FULL_WORDS]: row n at places[n], padding that changes nothing."""
    words = np.zeros((total, FULL_WORDS), np.int32)
    floats = words.view(np.float32)
    words[:, WORDS] = NOWHERE
    floats[:, WORDS + 4] = 1.0
    words[:, _BIAS : _BIAS + MAX_LOGIT_BIAS] = NOWHERE
    words[places, :WORDS] = pack(params, seeds)
    words[places, WORDS], words[places, WORDS + 1] = slots, positions
    words[places, WORDS + 2] = [
        COUNTED * p.counts_tokens | REPORTED * (p.top_logprobs is not None) for p in params
    ]
    floats[places, WORDS + 3 : _BIAS] = [
        (p.min_p, p.repetition_penalty, p.presence_penalty, p.frequency_penalty) for p in params
    ]
    for place, p in zip(places, params, strict=True):
        if p.logit_bias:
            ids, values = zip(*p.logit_bias, strict=True)
            words[place, _BIAS : _BIAS + len(ids)] = ids
            at = _BIAS + MAX_LOGIT_BIAS
            floats[place, at : at + len(ids)] = values
    return words


def unpack_full(words: Int[Array, "B words"]) -> tuple[sample.Controls, full.Shaping]:
    """Inside the sampling program: what each row asks for."""
    floats = lax.bitcast_convert_type(words, jnp.float32)
    flags = words[:, WORDS + 2]
    shaping = full.Shaping(
        slots=words[:, WORDS],
        min_p=floats[:, WORDS + 3],
        penalties=penalties.Penalties(
            repetition=floats[:, WORDS + 4],
            presence=floats[:, WORDS + 5],
            frequency=floats[:, WORDS + 6],
        ),
        counted=flags & COUNTED > 0,
        reported=flags & REPORTED > 0,
        bias_ids=words[:, _BIAS : _BIAS + MAX_LOGIT_BIAS],
        bias_values=floats[:, _BIAS + MAX_LOGIT_BIAS :],
    )
    return unpack(words, words[:, WORDS + 1]), shaping


def count_row(token_ids: Sequence[int], prompt_tokens: int, vocab_size: int) -> np.ndarray:
    """A slot's counts, uint16 [V], after a prompt and the outputs behind it.

    Complexity: linear in tokens and vocabulary.
    """
    outputs = np.bincount(np.asarray(token_ids[prompt_tokens:], np.int64), minlength=vocab_size)
    row = np.minimum(outputs, penalties.MOST).astype(np.uint16)
    row[np.asarray(token_ids[:prompt_tokens], np.int64)] |= penalties.IN_PROMPT
    return row


def token_logprob(words: np.ndarray, top: int) -> TokenLogprob:
    """A row of `sampling.logprobs` words as a record with so many of the most likely tokens."""
    floats = words.view(np.float32)
    first = 1 + logprobs.TOP
    ids, values = words[1 : 1 + top].tolist(), floats[first : first + top].tolist()
    pairs = tuple(pair for pair in zip(ids, values, strict=True) if pair[0] >= 0)
    return TokenLogprob(float(floats[0]), pairs)
