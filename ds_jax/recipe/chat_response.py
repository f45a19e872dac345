"""Chat Completions: chunks in, one response out.

Decides how chunks add up. Never sees deltas of another protocol. In: `ChatCompletionChunk`s. Out:
the `chat.completion` object.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe import event_json
from ds_jax.recipe.chat_events import (
    ChatCompletionChunk,
    ChatDelta,
    Closing,
    Opening,
    Usage,
    call_json,
)
from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    ReasoningDelta,
    TokenLogprob,
)
from ds_jax.recipe.generator import Origin, expect


@dataclasses.dataclass(slots=True)
class _Choice:
    """One choice while it grows; texts are lists that are joined in the end."""

    content: list[str] | None = None
    reasoning: list[str] | None = None
    calls: dict[int, tuple[CallStart, list[str]]] | None = None
    content_logprobs: list[TokenLogprob] | None = None
    reasoning_logprobs: list[TokenLogprob] | None = None
    finish_reason: str | None = None

    def add(self, delta: ChatDelta, call: int) -> None:
        """Adds a delta; `call` is the index of the call it belongs to. Mutates the choice."""
        if isinstance(delta, ContentDelta):
            self.content = _more(self.content, delta.text)
            self.content_logprobs = _more_logprobs(self.content_logprobs, delta)
        elif isinstance(delta, ReasoningDelta):
            self.reasoning = _more(self.reasoning, delta.text)
            self.reasoning_logprobs = _more_logprobs(self.reasoning_logprobs, delta)
        elif isinstance(delta, CallArguments):
            self.calls = self.calls or {}
            if call in self.calls:
                self.calls[call][1].append(delta.text)
        elif isinstance(delta, CallStart):
            self.calls = self.calls or {}
            self.calls[call] = (delta, [])
        elif isinstance(delta, Opening):
            self.content = _more(self.content, delta.content)
            self.reasoning = _more(self.reasoning, delta.reasoning)
        else:
            self.content = _more(self.content, "")
            self.finish_reason = delta.reason

    def to_json(self, index: int) -> str:
        """One entry of `choices`."""
        content = "null" if self.content is None else event_json.quote("".join(self.content))
        message = f'{{"role":"assistant","content":{content}'
        if self.reasoning is not None:
            message += f',"reasoning_content":{event_json.quote("".join(self.reasoning))}'
        if self.calls is not None:
            calls = [
                call_json(i, call, "".join(arguments))
                for i, (call, arguments) in self.calls.items()
            ]
            message += f',"tool_calls":[{",".join(calls)}]'
        reason = "null" if self.finish_reason is None else f'"{self.finish_reason}"'
        return (
            f'{{"index":{index},"message":{message}}},"logprobs":{self._logprobs()},'
            f'"finish_reason":{reason}}}'
        )

    def _logprobs(self) -> str:
        parts: list[str] = []
        if self.content_logprobs is not None:
            parts.append(f'"content":{event_json.logprobs(self.content_logprobs)}')
        if self.reasoning_logprobs is not None:
            parts.append(f'"reasoning_content":{event_json.logprobs(self.reasoning_logprobs)}')
        return f"{{{','.join(parts)}}}" if parts else "null"


class ChatCompletionResponse:
    """A whole Chat Completions response, put together from the chunks of its stream.

    Args:
      id: id of the response.
      model: name of the model that answered.
      created: seconds since 1970.
      prompt_tokens: unused here: the last chunk brings the usage.
      prompt_cache_hit_tokens: unused here, as above.
    """

    __slots__ = ("_choices", "_origin", "_system_fingerprint", "_usage")

    def __init__(
        self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int
    ) -> None:
        self._origin = Origin(id, model, created, prompt_tokens, prompt_cache_hit_tokens)
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self._system_fingerprint: str | None = None

    def accumulate(self, chunk: ChatCompletionChunk) -> None:
        """Adds a chunk and uses it up. Mutates the response and the chunk.

        Raises:
          RuntimeError: the chunk was accumulated before.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, ChatCompletionChunk)
        frame, delta, call = chunk._consume()  # pyright: ignore[reportPrivateUsage]
        choice = self._choices.get(frame.index)
        if choice is None:
            choice = self._choices[frame.index] = _Choice()
        choice.add(delta, call)
        self._system_fingerprint = frame.system_fingerprint
        if isinstance(delta, Closing) and delta.usage is not None:
            self._usage = delta.usage

    def to_json(self) -> str:
        """The response so far as compact JSON."""
        choices = ",".join([self._choices[i].to_json(i) for i in sorted(self._choices)])
        usage = "" if self._usage is None else f'"usage":{self._usage.to_json()},'
        fingerprint = self._system_fingerprint
        fingerprint_json = "null" if fingerprint is None else event_json.quote(fingerprint)
        return (
            f'{{"id":{event_json.quote(self._origin.id)},"object":"chat.completion",'
            f'"created":{self._origin.created},"model":{event_json.quote(self._origin.model)},'
            f'"choices":[{choices}],{usage}"system_fingerprint":{fingerprint_json}}}'
        )

    @staticmethod
    def sse_event_name(chunk: ChatCompletionChunk) -> str | None:
        """None: the data events of this protocol have no name.

        Raises:
          RuntimeError: the chunk was accumulated.
          TypeError: the event belongs to another protocol.
        """
        expect(chunk, ChatCompletionChunk)
        chunk._check()  # pyright: ignore[reportPrivateUsage]
        return None

    @staticmethod
    def sse_done_data() -> str | None:
        """`[DONE]`, the data of the message that ends the stream."""
        return "[DONE]"


def _more(texts: list[str] | None, text: str | None) -> list[str] | None:
    """Appends a text; None stands for no text yet and adds nothing. Mutates `texts`."""
    if text is None:
        return texts
    if texts is None:
        return [text]
    texts.append(text)
    return texts


def _more_logprobs(
    entries: list[TokenLogprob] | None, delta: ContentDelta | ReasoningDelta
) -> list[TokenLogprob] | None:
    """Appends log probabilities, if there are any. Mutates `entries`."""
    if delta.logprobs is None:
        return entries
    if entries is None:
        return list(delta.logprobs)
    entries.extend(delta.logprobs)
    return entries
