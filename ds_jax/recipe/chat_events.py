"""Chat Completions: deltas in, chunks out.

Decides which chunks a stream has and how each is spelled. Never parses model output. In: deltas.
Out: `ChatCompletionChunk`s, which `chat_response` puts together again.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, TypeAlias

from ds_jax.recipe import arguments, event_json
from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    Delta,
    Finished,
    ReasoningDelta,
)
from ds_jax.recipe.generator import ChunkGenerator, consumed
from ds_jax.recipe.request import ConversationRequest

if TYPE_CHECKING:
    from ds_jax.recipe.stream import PromptUsage


@dataclasses.dataclass(frozen=True, slots=True)
class Opening:
    """The first delta of a choice: its role, and which texts are there from the start."""

    content: str | None
    reasoning: str | None
    shows_reasoning: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request."""

    prompt_tokens: int
    prompt_cache_hit_tokens: int
    completion_tokens: int
    reasoning_tokens: int | None

    def to_json(self) -> str:
        """The `usage` object."""
        prompt, hit, done = self.prompt_tokens, self.prompt_cache_hit_tokens, self.completion_tokens
        details = ""
        if self.reasoning_tokens is not None:
            details = f'"completion_tokens_details":{{"reasoning_tokens":{self.reasoning_tokens}}},'
        return (
            f'{{"prompt_tokens":{prompt},"completion_tokens":{done},'
            f'"total_tokens":{prompt + done},"prompt_tokens_details":{{"cached_tokens":{hit}}},'
            f'{details}"prompt_cache_hit_tokens":{hit},'
            f'"prompt_cache_miss_tokens":{max(0, prompt - hit)}}}'
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Closing:
    """The last delta of a choice; `usage` is None while other choices go on."""

    reason: str
    usage: Usage | None


@dataclasses.dataclass(frozen=True, slots=True)
class Frame:
    """What all chunks of one choice share: its index and the constant parts of their JSON."""

    index: int
    system_fingerprint: str | None
    head: str
    after_content: str
    tail: str


ChatDelta: TypeAlias = Opening | Delta | Closing


class ChatCompletionChunk:
    """One chunk of a Chat Completions stream; accumulating it uses it up."""

    __slots__ = ("_call", "_delta", "_frame")

    _frame: Frame | None

    def __init__(self, frame: Frame, delta: ChatDelta, call: int) -> None:
        self._frame = frame
        self._delta = delta
        self._call = call

    def to_json(self) -> str:
        """The chunk as compact JSON.

        Raises:
          RuntimeError: the chunk was accumulated.
        """
        frame = self._frame
        if frame is None:
            raise consumed()
        delta = self._delta
        if isinstance(delta, ContentDelta):
            return (
                f'{frame.head}{{"content":{event_json.quote(delta.text)}{frame.after_content}}},'
                f'"logprobs":{_logprobs("content", delta)},"finish_reason":null}}]{frame.tail}'
            )
        if isinstance(delta, ReasoningDelta):
            return (
                f'{frame.head}{{"content":null,"reasoning_content":{event_json.quote(delta.text)}}},'
                f'"logprobs":{_logprobs("reasoning_content", delta)},"finish_reason":null}}]'
                f"{frame.tail}"
            )
        if isinstance(delta, Closing):
            usage = f',"usage":{delta.usage.to_json()}}}' if delta.usage else frame.tail
            return (
                f'{frame.head}{{"content":""{frame.after_content}}},"logprobs":null,'
                f'"finish_reason":"{delta.reason}"}}]{usage}'
            )
        return (
            f'{frame.head}{self._rare(delta)},"logprobs":null,"finish_reason":null}}]{frame.tail}'
        )

    def _rare(self, delta: Opening | CallStart | CallArguments) -> str:
        if isinstance(delta, CallArguments):
            return (
                f'{{"tool_calls":[{{"index":{self._call},'
                f'"function":{{"arguments":{event_json.quote(delta.text)}}}}}]}}'
            )
        if isinstance(delta, CallStart):
            return f'{{"tool_calls":[{call_json(self._call, delta, "")}]}}'
        reasoning = ""
        if delta.shows_reasoning:
            reasoning = f',"reasoning_content":{_text_or_null(delta.reasoning)}'
        return f'{{"role":"assistant","content":{_text_or_null(delta.content)}{reasoning}}}'

    def _check(self) -> None:
        """Refuses a used chunk."""
        if self._frame is None:
            raise consumed()

    def _consume(self) -> tuple[Frame, ChatDelta, int]:
        """Takes the contents out; the chunk is used up."""
        frame = self._frame
        if frame is None:
            raise consumed()
        self._frame = None
        return frame, self._delta, self._call


@dataclasses.dataclass(frozen=True, slots=True)
class ChatReply:
    """What a Chat Completions request says about its answer alone.

    Args:
      include_usage: every chunk has a `usage` key, null before the last one.
    """

    include_usage: bool = False


class UsageTally:
    """Adds up what the choices of one request used, for the chunk that ends last."""

    __slots__ = ("_completion_tokens", "_open", "_reasoning_tokens")

    def __init__(self, num_choices: int) -> None:
        self._open = num_choices
        self._completion_tokens = 0
        self._reasoning_tokens: int | None = 0

    def add(self, finished: Finished, prompt_usage: PromptUsage) -> Usage | None:
        """Counts one finished choice; returns the sum when it was the last one."""
        self._open -= 1
        self._completion_tokens += finished.completion_tokens
        if finished.reasoning_tokens is None or self._reasoning_tokens is None:
            self._reasoning_tokens = None
        else:
            self._reasoning_tokens += finished.reasoning_tokens
        if self._open > 0:
            return None
        return Usage(
            prompt_usage.prompt_tokens,
            prompt_usage.prompt_cache_hit_tokens,
            self._completion_tokens,
            self._reasoning_tokens,
        )


class ChatCompletionChunkGenerator(ChunkGenerator):
    """Makes the chunks of one choice; a stream processor uses it up.

    Args:
      id: id of the response.
      model: name of the model that answers.
      thinking_mode: whether chunks speak of reasoning at all.
      starts_in_reasoning: whether the output begins with reasoning.
      usage_in_every_chunk: chunks before the last one carry `"usage":null`.
      index: number of the choice, when a request asks for several.
      tally: shared by the choices of one request; None: this is the only choice.
      created: seconds since 1970; None: the time of the first chunk.
    """

    __slots__ = (
        "_call",
        "_created",
        "_frame",
        "_index",
        "_prompt_usage",
        "_starts_in_reasoning",
        "_tally",
        "_usage_in_every_chunk",
    )

    _frame: Frame
    _prompt_usage: PromptUsage

    def __init__(
        self,
        id: str,
        model: str,
        *,
        thinking_mode: bool,
        starts_in_reasoning: bool,
        usage_in_every_chunk: bool,
        index: int = 0,
        tally: UsageTally | None = None,
        created: int | None = None,
    ) -> None:
        super().__init__(id, model, thinking_mode)
        self._starts_in_reasoning = starts_in_reasoning
        self._usage_in_every_chunk = usage_in_every_chunk
        self._index = index
        self._tally = tally or UsageTally(1)
        self._created = created
        self._call = -1

    def _start(
        self, prompt_usage: PromptUsage, system_fingerprint: str | None
    ) -> list[ChatCompletionChunk]:
        self._prompt_usage = prompt_usage
        id, model = event_json.quote(self._id), event_json.quote(self._model)
        created = int(time.time()) if self._created is None else self._created
        self._frame = Frame(
            self._index,
            system_fingerprint,
            f'{{"id":{id},"object":"chat.completion.chunk","created":{created},"model":{model},'
            f'"system_fingerprint":{_text_or_null(system_fingerprint)},'
            f'"choices":[{{"index":{self._index},"delta":',
            ',"reasoning_content":null' if self._thinking_mode else "",
            ',"usage":null}' if self._usage_in_every_chunk else "}",
        )
        reasoning = self._thinking_mode and self._starts_in_reasoning
        opening = Opening(None if reasoning else "", "" if reasoning else None, self._thinking_mode)
        return [ChatCompletionChunk(self._frame, opening, 0)]

    def _add(self, delta: Delta) -> list[ChatCompletionChunk]:
        if isinstance(delta, CallStart):
            self._call += 1
        return [ChatCompletionChunk(self._frame, delta, self._call)]

    def _finish(self, finished: Finished) -> list[ChatCompletionChunk]:
        reason = "stop" if finished.reason == "stop_sequence" else finished.reason
        if not self._thinking_mode:
            finished = dataclasses.replace(finished, reasoning_tokens=None)
        closing = Closing(reason, self._tally.add(finished, self._prompt_usage))
        return [ChatCompletionChunk(self._frame, closing, 0)]


def generators(
    request: ConversationRequest, id: str, model: str, num_choices: int = 1
) -> list[ChatCompletionChunkGenerator]:
    """One generator a choice, with one time and one sum of the usage.

    Args:
      request: a converted request, of any protocol.
      id: id of the response.
      model: name of the model that answers.
      num_choices: how many answers are generated for the request.
    """
    arguments.record("request", request, ConversationRequest)
    stage = request.parsing_options.thinking_initial_stage
    reply = request._reply  # pyright: ignore[reportPrivateUsage]
    include_usage = isinstance(reply, ChatReply) and reply.include_usage
    tally = UsageTally(num_choices)
    created = None if num_choices == 1 else int(time.time())
    return [
        ChatCompletionChunkGenerator(
            id,
            model,
            thinking_mode=request.conversation.thinking_mode,
            starts_in_reasoning=stage is not None and stage.starts_in_reasoning(),
            usage_in_every_chunk=include_usage or not request.stream,
            index=index,
            tally=tally,
            created=created,
        )
        for index in range(num_choices)
    ]


def call_json(index: int, call: CallStart, arguments: str) -> str:
    """One entry of `tool_calls`."""
    return (
        f'{{"index":{index},"id":{event_json.quote(call.id)},"type":"function","function":'
        f'{{"name":{event_json.quote(call.name)},"arguments":{event_json.quote(arguments)}}}}}'
    )


def _text_or_null(text: str | None) -> str:
    return "null" if text is None else event_json.quote(text)


def _logprobs(key: str, delta: ContentDelta | ReasoningDelta) -> str:
    if delta.logprobs is None:
        return "null"
    return f'{{"{key}":{event_json.logprobs(delta.logprobs)}}}'
