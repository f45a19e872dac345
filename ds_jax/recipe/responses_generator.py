"""Responses: deltas in, events out.

Decides which item a delta belongs to and how the response begins and ends. Never parses model
output. In: deltas. Out: `ResponsesStreamEvent`s.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ds_jax.recipe import arguments
from ds_jax.recipe.deltas import CallStart, ContentDelta, Delta, Finished, ReasoningDelta
from ds_jax.recipe.generator import ChunkGenerator
from ds_jax.recipe.responses_events import ResponsesStreamEvent
from ds_jax.recipe.responses_open import (
    EventLog,
    OpenCustomCall,
    OpenFunctionCall,
    OpenItem,
    OpenSearchCall,
    OpenText,
)
from ds_jax.recipe.responses_output import (
    CustomCallItem,
    FunctionCallItem,
    Item,
    Phase,
    SearchCallItem,
    Status,
)
from ds_jax.recipe.responses_reply import ResponsesEcho, ResponsesReply
from ds_jax.recipe.responses_snapshot import IncompleteReason, Snapshot, Usage

if TYPE_CHECKING:
    from ds_jax.recipe.stream import PromptUsage

_INCOMPLETE: dict[str, IncompleteReason] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}


class ResponsesChunkGenerator(ChunkGenerator):
    """Makes the events of one response; a stream processor uses it up.

    Args:
      id: id of the response.
      model: name of the model that answers.
      reply: what the request asked for; None: it was no Responses request, so nothing is known and
        a name `x::y` is taken for function y in namespace x.
      thinking_mode: whether the model was asked to think.
    """

    __slots__ = (
        "_events",
        "_namespaces",
        "_open",
        "_output",
        "_prompt_usage",
        "_reply",
        "_snapshot",
    )

    _namespaces: Mapping[str, tuple[str, str]] | None
    _prompt_usage: PromptUsage
    _snapshot: Snapshot

    def __init__(
        self,
        id: str,
        model: str,
        reply: ResponsesReply | None = None,
        *,
        thinking_mode: bool = True,
    ) -> None:
        super().__init__(id, model, thinking_mode)
        self._reply = ResponsesReply() if reply is None else reply
        self._namespaces = None if reply is None else reply.namespace_tool_map
        self._events = EventLog()
        self._output: list[Item] = []
        self._open: OpenItem | None = None

    def with_namespace_tool_map(
        self, namespace_tool_map: dict[str, tuple[str, str]]
    ) -> ResponsesChunkGenerator:
        """A generator that splits these function names into (namespace, function).

        Mutates this generator: it is used up.

        Raises:
          RuntimeError: it already was.
          TypeError: no dict, or a key or value of another type.
          ValueError: a value is not a pair.
        """
        argument = "namespace_tool_map"
        given = cast("dict[Any, Any]", arguments.record(argument, namespace_tool_map, dict))
        names = {arguments.text(argument, name): _pair(pair) for name, pair in given.items()}
        other = self._successor()
        other._namespaces = names
        return other

    def with_echo(self, echo: ResponsesEcho) -> ResponsesChunkGenerator:
        """A generator whose responses repeat these settings.

        Mutates this generator: it is used up.

        Raises:
          RuntimeError: it already was.
          TypeError: `echo` is something else.
        """
        arguments.record("echo", echo, ResponsesEcho)
        other = self._successor()
        other._reply = dataclasses.replace(self._reply, echo=echo)
        return other

    def _successor(self) -> ResponsesChunkGenerator:
        """An equal generator; this one is used up."""
        self._take()
        other = ResponsesChunkGenerator(
            self._id, self._model, self._reply, thinking_mode=self._thinking_mode
        )
        other._namespaces = self._namespaces
        return other

    def _start(
        self, prompt_usage: PromptUsage, system_fingerprint: str | None
    ) -> list[ResponsesStreamEvent]:
        self._prompt_usage = prompt_usage
        self._snapshot = Snapshot(
            id=self._id,
            model=self._model,
            created_at=int(time.time()),
            echo=self._reply.echo,
            previous_response_id=self._reply.previous_response_id,
            stored=self._reply.store is not None,
        )
        return [
            self._events.event("response.created", 0, self._snapshot),
            self._events.event("response.in_progress", 0, self._snapshot),
        ]

    def _add(self, delta: Delta) -> list[ResponsesStreamEvent]:
        item = self._open
        if item is not None and type(delta) is item.accepts:
            return item.add(delta)
        call = isinstance(delta, CallStart)
        events = self._close("completed", "commentary" if call else "final_answer")
        item = self._new_item(delta)
        self._open = item
        events += item.open()
        if not call:
            events += item.add(delta)
        return events

    def _finish(self, finished: Finished) -> list[ResponsesStreamEvent]:
        reason = _INCOMPLETE.get(finished.reason)
        events = self._close("completed" if reason is None else "incomplete", "final_answer")
        prompt = self._prompt_usage
        snapshot = dataclasses.replace(
            self._snapshot,
            status="completed" if reason is None else "incomplete",
            completed_at=int(time.time()),
            incomplete_reason=reason,
            output=tuple(self._output),
            usage=Usage(
                prompt.prompt_tokens,
                prompt.prompt_cache_hit_tokens,
                finished.completion_tokens,
                finished.reasoning_tokens or 0,
            ),
        )
        events.append(self._events.event(f"response.{snapshot.status}", 0, snapshot))
        if self._reply.store is not None:
            self._reply.remember(self._id, [json.loads(item.to_json()) for item in self._output])
        return events

    def _new_item(self, delta: Delta) -> OpenItem:
        """The item that a delta begins."""
        index, id = len(self._output), self._id
        if isinstance(delta, ContentDelta | ReasoningDelta):
            return OpenText(self._events, index, id, type(delta))
        assert isinstance(delta, CallStart), f"no call is open for {delta!r}"
        if delta.name in self._reply.custom_tools:
            custom = CustomCallItem(f"ctc_{id}_{index}", delta.id, delta.name)
            return OpenCustomCall(self._events, index, custom)
        if self._reply.tool_search and delta.name == "tool_search":
            search = SearchCallItem(f"tsc_{id}_{index}", delta.id)
            return OpenSearchCall(self._events, index, search)
        namespace, name = self._split(delta.name)
        function = FunctionCallItem(f"fc_{id}_{index}", delta.id, name, namespace)
        return OpenFunctionCall(self._events, index, function)

    def _split(self, name: str) -> tuple[str | None, str]:
        """Namespace, if there is one, and function."""
        if self._namespaces is not None:
            return self._namespaces.get(name, (None, name))
        namespace, separator, function = name.partition("::")
        return (namespace, function) if separator else (None, name)

    def _close(self, status: Status, phase: Phase) -> list[ResponsesStreamEvent]:
        """Ends the open item, if there is one. Mutates the generator."""
        if self._open is None:
            return []
        events, item = self._open.close(status, phase)
        self._output.append(item)
        self._open = None
        return events


def _pair(value: Any) -> tuple[str, str]:
    name = "namespace_tool_map"
    pair = cast("tuple[Any, ...]", arguments.record(name, value, tuple))
    if len(pair) != 2:
        raise ValueError(f"expected tuple of length 2, but got tuple of length {len(pair)}")
    return arguments.text(name, pair[0]), arguments.text(name, pair[1])
