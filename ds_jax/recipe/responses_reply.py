"""What a Responses answer needs to know about its request.

Decides which settings come back with every response and how calls of the model are told apart
(functions in a namespace, custom tools, tool search). Never makes an event. In: a converted
request. Out: `ResponsesEcho` and `ResponsesReply`, read by the event generator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ds_jax.recipe.response_store import JsonObject, ResponseStore, StoredResponse


def _no_reasoning() -> JsonObject:
    return {"effort": None, "summary": None}


def _plain_text() -> JsonObject:
    return {"format": {"type": "text"}, "verbosity": None}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesEcho:
    """Settings that a response object repeats, as the request gave them.

    Built without arguments it holds the settings of a request that asked for nothing.

    Args:
      instructions: the request's instructions; None if absent.
      max_output_tokens: the requested limit; None if absent.
      temperature: the requested value (a 32-bit float) or 1.0, not the one used for sampling.
      top_p: the requested value (a 32-bit float) or 1.0, not the one used for sampling.
      top_logprobs: the requested number or 0.
      user: the caller's end-user name; None if absent.
      reasoning: effort and summary, as JSON values in the order of a response object.
      text: format and verbosity, likewise.
      tool_choice: likewise.
      tools: the declared tools of known types, likewise.
    """

    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_logprobs: int = 0
    user: str | None = None
    reasoning: Mapping[str, Any] = dataclasses.field(default_factory=_no_reasoning, hash=False)
    text: Mapping[str, Any] = dataclasses.field(default_factory=_plain_text, hash=False)
    tool_choice: str | Mapping[str, Any] = dataclasses.field(default="auto", hash=False)
    tools: Sequence[Mapping[str, Any]] = dataclasses.field(default=(), hash=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResponsesReply:
    """How the events of one request are formed.

    Args:
      echo: settings to repeat.
      namespace_tool_map: name in the prompt -> (namespace, function), of the declared tools and of
        those that a tool search found.
      custom_tools: names whose calls are `custom_tool_call` items.
      tool_search: calls of `tool_search` are `tool_search_call` items.
      previous_response_id: the response continued here; None unless a store supplied it.
      store: where the finished response is kept; None: it is not kept.
      input_items: the request's own input items, kept with the response.
    """

    echo: ResponsesEcho = dataclasses.field(default_factory=ResponsesEcho)
    namespace_tool_map: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=dict[str, tuple[str, str]]
    )
    custom_tools: frozenset[str] = frozenset()
    tool_search: bool = False
    previous_response_id: str | None = None
    store: ResponseStore | None = None
    input_items: tuple[JsonObject, ...] = ()

    def remember(self, response_id: str, output: Sequence[JsonObject]) -> None:
        """Keeps the finished response if the request asked for it; else does nothing.

        A call that was cut short is left out: nobody could answer it.

        Args:
          response_id: the id that a later request names as `previous_response_id`.
          output: the output items of the response object.
        """
        if self.store is None:
            return
        kept = [item for item in output if not _is_cut_short(item)]
        turn = StoredResponse(self.previous_response_id, (*self.input_items, *kept))
        self.store.put(response_id, turn)


def _is_cut_short(item: JsonObject) -> bool:
    return item.get("status") == "incomplete" and str(item.get("type")).endswith("_call")
