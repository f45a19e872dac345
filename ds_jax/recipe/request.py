"""A converted request: what to say to the model, how to sample, how to read its answer.

Decides how a refusal looks (`ConversionError`) and how many tokens an answer may have once the
prompt's length is known. Never reads a request body. In: the results of a conversion. Out:
`ConversationRequest` and the records it holds.
"""

from __future__ import annotations

import dataclasses
import json

from ds_jax.recipe.conversation import Conversation
from ds_jax.recipe.options import ModelVersion
from ds_jax.recipe.parse import ParsingOptions

_DEFAULT_TOKENS = 8192
_DEFAULT_THINKING_TOKENS = 65536
_DEFAULT_MAX_EFFORT_TOKENS = 131072


class ConversionError(Exception):
    """A request that cannot be converted.

    Attributes:
      status_code: the HTTP status, 400.
      body: the error body, compact JSON; the same form in all three protocols.
    """

    def __init__(self, message: str, status_code: int = 400, body: str | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.body = _error_body(message) if body is None else body


def invalid_request(message: str) -> ConversionError:
    """The refusal with this message: status 400, type and code `invalid_request_error`."""
    return ConversionError(message)


def _error_body(message: str) -> str:
    error = {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_request_error",
    }
    return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":"))


@dataclasses.dataclass(frozen=True, slots=True)
class OutputConstraint:
    """What constrained decoding would enforce; whether a backend does is the caller's decision.

    Attributes:
      kind: `json`, `regex`, `tool_call` (a call may come) or `tool_call_required`.
      schema: a JSON Schema as compact JSON (empty: any JSON value), the regular expression, or the
        tools as a compact JSON array with their `strict` and `parameters`.
    """

    kind: str
    schema: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """How to sample the answer; None where the request says nothing.

    Attributes:
      max_tokens: requested tokens; `ConversationRequest.resolve_max_tokens` completes it.
      temperature: 1.0 while thinking, else as requested or 1.0. A conversion always sets it.
      top_p: resolved for the model version. A conversion always sets it.
      logprobs: whether the answer carries log probabilities.
      top_logprobs: alternatives per token, 0..20.
      seed: 0..2^63-1.
      output_constraint: for constrained decoding.
      n: how many answers; above 1 only if `ConversionOptions.max_choices` allows it.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    seed: int | None = None
    output_constraint: OutputConstraint | None = None
    n: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class ConversationRequest:
    """A conversation and everything needed to run it and to report its answer.

    Attributes:
      conversation: what the prompt is rendered from.
      model_version: which encoding renders it.
      inference_options: how to sample.
      parsing_options: how to parse the output.
      stream: whether the client asked for a stream.
      _reply: what only the events of the request's own protocol need; None when built directly.
    """

    conversation: Conversation
    model_version: ModelVersion
    _: dataclasses.KW_ONLY
    inference_options: InferenceOptions = dataclasses.field(default_factory=InferenceOptions)
    parsing_options: ParsingOptions = dataclasses.field(default_factory=ParsingOptions)
    stream: bool = False
    _reply: object = None

    def resolve_max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        """How many tokens the answer may have.

        A requested number is kept. Without one it is 8192 when not thinking, 131072 when thinking
        with effort `max`, else 65536; at most what the context leaves, and at least 1.

        Args:
          prompt_tokens: tokens of the encoded prompt, images at their full count.
          context_limit: tokens the context holds.

        Raises:
          ConversionError: the prompt and the requested tokens (or the prompt alone, without a
            request) are more than the context holds.
          OverflowError: a negative number.
        """
        if prompt_tokens < 0 or context_limit < 0:
            raise OverflowError(f"{prompt_tokens=} and {context_limit=} must not be negative")
        requested = self.inference_options.max_tokens
        total = prompt_tokens + (requested or 0)
        if total > context_limit:
            raise invalid_request(
                f"This model's maximum context length is {context_limit} tokens. However, you"
                f" requested {total} tokens ({prompt_tokens} in the messages, {requested or 0} in"
                " the completion). Please reduce the length of the messages or completion."
            )
        if requested is not None:
            return requested
        default = _DEFAULT_TOKENS
        if self.conversation.thinking_mode:
            effort = self.conversation.reasoning_effort
            default = _DEFAULT_MAX_EFFORT_TOKENS if effort == "max" else _DEFAULT_THINKING_TOKENS
        return max(1, min(default, context_limit - prompt_tokens))
