"""Plain records that cross layers: a request, its tokens, its result.

Decides what a request may ask for. Never holds arrays, text processing or engine state.
In: values a caller gives. Out: frozen dataclasses, or a `RequestError` that names the field.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
from collections.abc import Mapping
from typing import Any

from ds_jax import grammar_request
from ds_jax.errors import DsJaxError, RequestError
from ds_jax.grammar_request import GrammarRequest

MAX_LOGIT_BIAS = 300  # biased token ids of a request
MAX_TOP_LOGPROBS = 20


class FinishReason(enum.StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # the end token, a stop token or a stop string
    LENGTH = "length"  # max_tokens or the context is full
    CANCELLED = "cancelled"  # the caller went away
    DEADLINE = "deadline"  # the request's time was over
    ERROR = "error"  # this sequence was refused or failed; others went on


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """How one request is sampled.

    Attributes:
      max_tokens: tokens to generate at most.
      temperature: 0 is greedy; above 0 divides the logits.
      top_p: smallest set of tokens whose probabilities reach this sum.
      top_k: keep this many most likely tokens; -1 keeps all.
      min_p: keep tokens at least this share as probable as the most likely one; 0 keeps all.
      repetition_penalty: divides positive and multiplies negative logits of tokens in prompt or
        output; 1 changes nothing.
      presence_penalty: subtracted from the logits of tokens in the output.
      frequency_penalty: subtracted once for every time the token is in the output.
      logit_bias: (token id, value) pairs; the value is added to the token's logit.
      seq_seed: seed of this sequence, from 0 to 2**64 - 1; None lets the caller's side draw one.
        With a seed, the tokens do not depend on batch, preemption or cache.
      top_logprobs: report the log probability of every token and of this many most likely ones;
        0: of the token alone; None: none. They are the model's own: before bias and penalties, at
        temperature 1.
      prompt_logprobs: the same for the tokens of the prompt. The whole prompt is then computed,
        whatever is cached.
      stop_token_ids: further tokens that end the sequence; they are not part of the result.
      ignore_eos: go on past the model's end token.
      stop: strings that end the sequence as soon as one is complete; the text ends in front of it.
      grammar: what the output must follow, token by token; docs/structured_output.md. An output
        that `max_tokens` or a stop string cuts off may be a part of it only.

    Args:
      json_schema: short for the grammar of a JSON Schema: its text or a JSON value.
      regex: short for a regular expression that the whole output matches.
      ebnf: short for a grammar in GBNF; the output is its rule `root`.
      so_args: the grammar in DeepInfer's form (`grammar_request`).
    """

    max_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    seq_seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    grammar: GrammarRequest | None = None
    json_schema: dataclasses.InitVar[Any] = None
    regex: dataclasses.InitVar[str | None] = None
    ebnf: dataclasses.InitVar[str | None] = None
    so_args: dataclasses.InitVar[Mapping[str, Any] | None] = None

    def __post_init__(
        self,
        json_schema: Any,
        regex: str | None,
        ebnf: str | None,
        so_args: Mapping[str, Any] | None,
    ):
        _check_int("max_tokens", self.max_tokens, 1, None)
        _check_float("temperature", self.temperature)
        _check_float("top_p", self.top_p)
        if self.temperature < 0:
            _fail("temperature", self.temperature, "must be 0 (greedy) or above")
        if not 0 < self.top_p <= 1:
            _fail("top_p", self.top_p, "must be above 0 and at most 1")
        if self.top_k != -1:
            _check_int("top_k", self.top_k, 1, None, " or -1 to keep all tokens")
        _check_between("min_p", self.min_p, 0, 1)
        _check_between("repetition_penalty", self.repetition_penalty, 0.01, 100)
        _check_between("presence_penalty", self.presence_penalty, -2, 2)
        _check_between("frequency_penalty", self.frequency_penalty, -2, 2)
        _check_bias(self.logit_bias)
        for name in ("top_logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                _check_int(name, getattr(self, name), 0, MAX_TOP_LOGPROBS, " or None for none")
        if self.seq_seed is not None:
            _check_int("seq_seed", self.seq_seed, 0, 2**64 - 1)
        for token in self.stop_token_ids:
            _check_int("stop_token_ids", token, 0, None)
        if type(self.ignore_eos) is not bool:
            _fail("ignore_eos", self.ignore_eos, "must be true or false")
        for text in self.stop:
            if type(text) is not str or not text:
                _fail("stop", text, "must be a string of at least one character")
        given = [] if self.grammar is None else [self.grammar]
        if json_schema is not None:
            given.append(grammar_request.from_json_schema(json_schema))
        if regex is not None:
            given.append(GrammarRequest("regex", regex))
        if ebnf is not None:
            given.append(GrammarRequest("ebnf", ebnf))
        if so_args is not None:
            given.append(grammar_request.from_so_args(so_args))
        if len(given) > 1:
            _fail("grammar", [each.kind for each in given], "an output follows at most one")
        if given:
            object.__setattr__(self, "grammar", given[0])
            if self.ignore_eos:
                _fail("ignore_eos", True, "an output that follows a grammar ends with it")

    @functools.cached_property
    def counts_tokens(self) -> bool:
        """Penalties are asked for: what the sequence has said so far must be known."""
        neutral = (1.0, 0.0, 0.0)
        asked = (self.repetition_penalty, self.presence_penalty, self.frequency_penalty)
        return asked != neutral

    @functools.cached_property
    def needs_full_sampling(self) -> bool:
        """More is asked for than temperature, top-p, top-k, a seed and a grammar."""
        asked = self.min_p > 0 or self.logit_bias or self.top_logprobs is not None
        return bool(asked) or self.counts_tokens

    @functools.cached_property
    def drawn_again(self) -> bool:
        """Its tokens are drawn in full right behind each step; those of a grammar are later."""
        return self.needs_full_sampling and self.grammar is None


@dataclasses.dataclass(frozen=True)
class ImageSpan:
    """Where an image stands in a prompt.

    Attributes:
      start: position of its first placeholder token.
      digest: hash of its content; equal images have equal digests.
    """

    start: int
    digest: bytes


@dataclasses.dataclass(frozen=True)
class GenerateRequest:
    """One prompt to continue.

    Attributes:
      request_id: the caller's name for it; events carry it.
      prompt_token_ids: the prompt, at least one token.
      params: how it is sampled.
      priority: a higher one goes first; 0 is usual. It shortens the wait, it does not push a
        running request out.
      deadline_s: seconds after its arrival at which it ends, finished or not; None: never.
      tenant: cached prefixes are shared within a tenant only.
      images: the images of the prompt, in order.
      reuse_prefix: start from a cached prefix; False: compute every row of the prompt, which
        `prompt_logprobs` always do.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = dataclasses.field(default_factory=SamplingParams)
    priority: int = 0
    deadline_s: float | None = None
    tenant: str = ""
    images: tuple[ImageSpan, ...] = ()
    reuse_prefix: bool = True

    def __post_init__(self):
        if not self.prompt_token_ids:
            _fail("prompt_token_ids", [], "must hold at least one token")
        for token in self.prompt_token_ids:
            _check_int("prompt_token_ids", token, 0, None)
        if self.params.prompt_logprobs is not None:
            object.__setattr__(self, "reuse_prefix", False)
        _check_int("priority", self.priority, -(2**31), 2**31 - 1)
        if self.deadline_s is not None:
            _check_float("deadline_s", self.deadline_s)
            if self.deadline_s <= 0:
                _fail("deadline_s", self.deadline_s, "must be above 0")
        last = -1
        for image in self.images:
            if not last < image.start < len(self.prompt_token_ids):
                _fail("images", image.start, "must start inside the prompt, in ascending order")
            last = image.start


@dataclasses.dataclass(frozen=True)
class Usage:
    """Token counts of one request; `cached_tokens` of the prompt were not computed again."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """Log probability of a token, and of the `top` most likely ones as (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class TokenEvent:
    """One generated token, or the end of a sequence.

    Attributes:
      request_id: the request it belongs to.
      index: number of the token in the output, from 0.
      token_id: None in an event that only reports the end.
      finish_reason: set on the last event of a sequence.
      text: the token's part of the text, only where the request has stop strings; the pieces of
        all events end exactly in front of the string that stopped.
      logprob: only where it was asked for.
      prompt_logprobs: in the first event of a request that asked for them: one a token of the
        prompt, None for the first token, which nothing predicts.
      matched_stop: the stop string that ended the sequence, in the last event.
      usage: token counts so far, in the first and in the last event of a sequence that an engine
        ran: the first one tells early how much of the prompt was cached.
      error: why the sequence was refused or failed, in the last event.
      draft: the confidence, 0 to 1, of a draft that was accepted; None: the model drew the token.
        It tells how a token came about, so events are equal without it.
    """

    request_id: str
    index: int
    token_id: int | None
    finish_reason: FinishReason | None = None
    text: str | None = None
    logprob: TokenLogprob | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    matched_stop: str | None = None
    usage: Usage | None = None
    error: DsJaxError | None = None
    draft: float | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True)
class GenerateResult:
    """A finished request; `token_ids` and `text` leave out the token that ended it.

    `logprobs` has one entry a token and `prompt_logprobs` one a token of the prompt (None for the
    first), where they were asked for. `error`: why the sequence failed or was refused, with
    `FinishReason.ERROR`.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    error: DsJaxError | None = None


def _check_int(name: str, value: object, low: int, high: int | None, also: str = "") -> None:
    if type(value) is not int or value < low or (high is not None and value > high):
        upper = "" if high is None else f" to {high}"
        _fail(name, value, f"must be a whole number from {low}{upper}{also}")


def _check_float(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        _fail(name, value, "must be a finite number")


def _check_between(name: str, value: object, low: float, high: float) -> None:
    _check_float(name, value)
    assert isinstance(value, int | float)
    if not low <= value <= high:
        _fail(name, value, f"must be from {low} to {high}")


def _check_bias(pairs: tuple[tuple[int, float], ...]) -> None:
    if len(pairs) > MAX_LOGIT_BIAS:
        _fail("logit_bias", f"{len(pairs)} tokens", f"must be at most {MAX_LOGIT_BIAS} tokens")
    for token, value in pairs:
        _check_int("logit_bias", token, 0, None)
        _check_between("logit_bias", value, -100, 100)
    ids = [token for token, _ in pairs]
    if len(set(ids)) < len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        _fail("logit_bias", twice, "must name a token once")


def _fail(name: str, value: object, allowed: str) -> None:
    raise RequestError(f"{name}={value!r}: {allowed}", param=name)
