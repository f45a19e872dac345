"""Responses: the response object at one moment.

Decides its fields, their order and which of them are constant. Never changes: a later moment is
another snapshot. In: settings, items and usage. Out: JSON text.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from ds_jax.recipe import event_json, json_text
from ds_jax.recipe.responses_output import Item
from ds_jax.recipe.responses_reply import ResponsesEcho

IncompleteReason: TypeAlias = Literal["max_output_tokens", "content_filter"]


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; input tokens include those found in a cache."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int

    def to_json(self) -> str:
        """The `usage` object."""
        return (
            f'{{"input_tokens":{self.input_tokens},'
            f'"input_tokens_details":{{"cached_tokens":{self.cached_tokens}}},'
            f'"output_tokens":{self.output_tokens},'
            f'"output_tokens_details":{{"reasoning_tokens":{self.reasoning_tokens}}},'
            f'"total_tokens":{self.input_tokens + self.output_tokens}}}'
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A response object; times are seconds since 1970."""

    id: str
    model: str
    created_at: int
    echo: ResponsesEcho
    status: Literal["in_progress", "completed", "incomplete"] = "in_progress"
    completed_at: int | None = None
    incomplete_reason: IncompleteReason | None = None
    output: tuple[Item, ...] = ()
    usage: Usage | None = None
    previous_response_id: str | None = None
    stored: bool = False

    def to_json(self) -> str:
        """The object."""
        echo, compact = self.echo, json_text.dumps_compact
        incomplete = "null"
        if self.incomplete_reason is not None:
            incomplete = f'{{"reason":"{self.incomplete_reason}"}}'
        output = ",".join([item.to_json() for item in self.output])
        return (
            f'{{"id":{event_json.quote(self.id)},"object":"response",'
            f'"created_at":{self.created_at},"status":"{self.status}","background":false,'
            f'"completed_at":{compact(self.completed_at)},"content_filters":null,"error":null,'
            f'"frequency_penalty":0.0,"incomplete_details":{incomplete},'
            f'"instructions":{compact(echo.instructions)},'
            f'"max_output_tokens":{compact(echo.max_output_tokens)},"max_tool_calls":null,'
            f'"model":{event_json.quote(self.model)},"moderation":null,"output":[{output}],'
            f'"parallel_tool_calls":true,"presence_penalty":0.0,'
            f'"previous_response_id":{compact(self.previous_response_id)},'
            f'"prompt_cache_key":null,"prompt_cache_retention":null,'
            f'"reasoning":{compact(echo.reasoning)},"safety_identifier":null,'
            f'"service_tier":"default","store":{compact(self.stored)},'
            f'"temperature":{event_json.float32(echo.temperature)},"text":{compact(echo.text)},'
            f'"tool_choice":{compact(echo.tool_choice)},"tools":{compact(echo.tools)},'
            f'"top_logprobs":{echo.top_logprobs},"top_p":{event_json.float32(echo.top_p)},'
            f'"truncation":"disabled","usage":{self.usage.to_json() if self.usage else "null"},'
            f'"user":{compact(echo.user)},"metadata":{{}}}}'
        )
