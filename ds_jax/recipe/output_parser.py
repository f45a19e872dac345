"""Generated output to deltas, one piece after the other.

Decides what is reasoning, answer and tool call, and how much of it can be told already. Never
decodes token ids and knows no protocol. In: pieces of text. Out: deltas.

A piece is what the backend sent at once. Each delta comes from one piece: a stretch of one piece to
which one action applies, told as soon as the piece is used up or another action follows. Symbols
that may still become a marker are held back.
"""

from __future__ import annotations

import collections
import json
import re
import secrets
import string
from collections.abc import Callable
from typing import TypeAlias

from ds_jax.recipe.deltas import (
    CallArguments,
    CallStart,
    ContentDelta,
    Delta,
    ReasoningDelta,
    TokenLogprob,
)
from ds_jax.recipe.marker_match import Node
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.parse_stages import Action, At, Does, Grammar, Stage, stages

Logprobs: TypeAlias = tuple[TokenLogprob, ...] | None
_Piece: TypeAlias = tuple[str, Logprobs]

_ALPHANUMERIC = string.ascii_letters + string.digits


class OutputParser:
    """Parses one output. Every method mutates it.

    Args:
      options: the request's settings.
      thinking_mode: call ids tell when no reasoning came before them.
      keep_reasoning: collect the reasoning text.
    """

    __slots__ = (
        "_action",
        "_calls",
        "_decided",
        "_keep_reasoning",
        "_name",
        "_node",
        "_pieces",
        "_root",
        "_run_starts",
        "_search",
        "_seen",
        "_spoken",
        "_stage",
        "_stages",
        "_start",
        "_taken",
        "_thinking_mode",
        "has_reasoning",
        "plain_delta",
        "plain_search",
        "reasoning",
        "stop_sequence",
    )

    def __init__(
        self,
        options: ParsingOptions,
        *,
        thinking_mode: bool,
        keep_reasoning: bool,
    ) -> None:
        special_tokens = options.special_tokens
        self._stages = stages(
            Grammar(
                options.parse_tool_calls,
                options.parse_json_output,
                tuple(options.stop_sequences),
                special_tokens.thinking_end,
                special_tokens.dsml,
            )
        )
        self._thinking_mode = thinking_mode
        self._keep_reasoning = keep_reasoning
        self._pieces: collections.deque[_Piece] = collections.deque()
        """Pieces that are not used up."""
        self._seen = 0
        """Symbols read."""
        self._decided = 0
        """Symbols whose action is known."""
        self._start = 0
        """Symbols of the first piece whose deltas were told."""
        self._taken = 0
        """Symbols of the first piece whose action is known."""
        self._action: Action | None = None
        """The action of the symbols from `_start` to `_taken`, or of those before."""
        self._spoken = False
        """Whether a fixed text was told in this run of its action."""
        self._name: list[str] = []
        self._calls = 0
        self.stop_sequence: str | None = None
        """The stop string that ended the output."""
        self.has_reasoning = False
        """Whether any reasoning text was told."""
        self.reasoning: list[str] = []
        """The reasoning so far, if it is kept; who uses `plain_delta` adds its text."""
        self.plain_search: Callable[[str], object] = _never_plain
        """Returns None for a piece to which one action applies, because nothing is held."""
        self.plain_delta: Callable[[str, Logprobs], Delta] | None = None
        """Makes the one delta of such a piece; None: ask `feed`."""
        self._run_starts: list[int] = []
        self._stage: Stage
        self._node: Node
        self._root: Node
        self._search: Callable[..., re.Match[str] | None]
        self._enter(_first_stage(options))

    @property
    def has_calls(self) -> bool:
        """Whether a call was announced."""
        return self._calls > 0

    def feed(self, text: str, kind: int, logprobs: Logprobs) -> list[Delta]:
        """Reads one piece; after a stop string no more may follow.

        Args:
          text: backend text, text of ordinary tokens, or the spelling of one control token.
          kind: which of these: `marker_match.TEXT`, `TOKEN` or `CONTROL`.
          logprobs: of the tokens of this piece.

        Returns:
          What is known now and was not before.

        Complexity: linear in the text and in what was held back.
        """
        out: list[Delta] = []
        if self.plain_search(text) is None:
            self._tell((text, logprobs), 0, len(text), out)
            return out
        self._pieces.append((text, logprobs))
        self._read(text, kind, out)
        if self.stop_sequence is None:
            node = self._node
            known = self._seen - node.hold
            for index in node.runs:
                known = min(known, self._run_starts[index])
            self._decide(self._stage.default, known - self._decided, out)
        self._look_ahead()
        return out

    def finish(self) -> list[Delta]:
        """Ends the output: what was held back is no marker."""
        out: list[Delta] = []
        self._decide(self._stage.default, self._seen - self._decided, out)
        return out

    def _read(self, text: str, kind: int, out: list[Delta]) -> None:
        base, place, size = self._seen, 0, len(text)
        node, root = self._node, self._root
        self._seen += size
        while place < size:
            if node is root:
                trigger = self._search(text, place)
                if trigger is None:
                    break
                place = trigger.start()
            symbol = text[place]
            after = node.memory[kind].get(symbol)
            node = self._stage.matcher.step(node, kind, symbol) if after is None else after
            for index in node.begins:
                self._run_starts[index] = base + place
            place += 1
            if node.found is not None:
                self._complete(node, base + place, out)
                if self.stop_sequence is not None:
                    return
                node, root = self._node, self._root
        self._node = node

    def _complete(self, node: Node, end: int, out: list[Delta]) -> None:
        found = node.found
        assert found is not None, "only a node that found a pattern is complete"
        stage = self._stage
        start = end - stage.matcher.lengths[found]
        if found in node.runs:
            start = self._run_starts[found]
        action = stage.actions[found]
        self._decide(stage.default, start - self._decided, out)
        self._decide(action, end - start, out)
        if action.does is Does.STOP:
            self.stop_sequence = action.text
        self._enter(stage.nexts[found])

    def _enter(self, at: At) -> None:
        self._stage = self._stages[at]
        matcher = self._stage.matcher
        self._node, self._root = matcher.start, matcher.root
        self._search = matcher.trigger.search
        self._run_starts = [0] * len(self._stage.actions)

    def _look_ahead(self) -> None:
        default = self._stage.default
        self.plain_search, self.plain_delta = _never_plain, None
        if self._node is self._root and self._action is default and not self._pieces:
            self.plain_search = self._search
            if self.has_reasoning or default.does is not Does.REASONING:
                self.plain_delta = _MAKERS.get(default.does)

    def _decide(self, action: Action, count: int, out: list[Delta]) -> None:
        """Applies an action to the next symbols; empty pieces get the action before them."""
        self._decided += count
        if not count and self._action is None:
            return
        if count and action is not self._action:
            if self._taken > self._start:
                self._tell(self._pieces[0], self._start, self._taken, out)
            self._start = self._taken
            self._action, self._spoken = action, False
        while self._pieces:
            piece = self._pieces[0]
            room = len(piece[0]) - self._taken
            if room > count:
                self._taken += count
                break
            count -= room
            self._tell(piece, self._start, len(piece[0]), out)
            self._pieces.popleft()
            self._start = self._taken = 0

    def _tell(self, piece: _Piece, start: int, stop: int, out: list[Delta]) -> None:
        """Adds the delta of a stretch of one piece under the current action."""
        text, logprobs = piece
        text = text[start:stop]
        action = self._action
        assert action is not None, "symbols are decided by an action"
        does = action.does
        make = _MAKERS.get(does)
        if make is not None:
            out.append(make(text, logprobs))
            if does is Does.REASONING:
                self.has_reasoning = self.has_reasoning or bool(text)
                if self._keep_reasoning:
                    self.reasoning.append(text)
        elif does is Does.SPACE:
            out.append(ContentDelta(" ", logprobs))
        elif does is Does.NAME:
            self._name.append(text)
        elif does is Does.BEGIN_CALL:
            self._name = []
        elif not self._spoken:
            self._spoken = True
            if does is Does.FIXED:
                out.append(CallArguments(action.text))
            elif does is Does.BRACKET:
                out.append(ContentDelta(action.text, logprobs))
            elif does is Does.ANNOUNCE_CALL:
                out.append(CallStart(self._call_id(), "".join(self._name)))

    def _call_id(self) -> str:
        mark = "ET_" if self._thinking_mode and not self.has_reasoning else ""
        letters = "".join(secrets.choice(_ALPHANUMERIC) for _ in range(20))
        index, self._calls = self._calls, self._calls + 1
        return f"call_{index:02d}_{mark}{letters}{secrets.randbelow(10_000):04d}"


def _arguments(text: str, logprobs: Logprobs) -> CallArguments:
    return CallArguments(text)


def _string_arguments(text: str, logprobs: Logprobs) -> CallArguments:
    return CallArguments(json.encoder.encode_basestring(text)[1:-1])


_MAKERS: dict[Does, Callable[[str, Logprobs], Delta]] = {
    Does.CONTENT: ContentDelta,
    Does.REASONING: ReasoningDelta,
    Does.ARGUMENTS: _arguments,
    Does.STRING: _string_arguments,
}


def _never_plain(text: str) -> object:
    return text


def _first_stage(options: ParsingOptions) -> At:
    if options.starts_in_tool_calls:
        return At.CALLS
    return _FIRST_STAGES[options.thinking_initial_stage]


_FIRST_STAGES = {
    None: At.COMMON_LEAD,
    ThinkingInitialStage.ReasoningStart: At.REASON_LEAD,
    ThinkingInitialStage.ReasoningContinuation: At.REASON,
    ThinkingInitialStage.ContentContinuation: At.COMMON,
}
