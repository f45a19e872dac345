"""What the command line reads and shows.

Decides the form of prompts files, results, progress and statistics. Never loads a model, imports no
jax.
In: flag values, a pipeline. Out: stdout (results only) and stderr.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ds_jax.errors import ConfigError, DsJaxError, RequestError
from ds_jax.grammar_request import GrammarRequest
from ds_jax.records import FinishReason, SamplingParams, TokenEvent, TokenLogprob, Usage

if TYPE_CHECKING:
    from ds_jax.pipeline import Pipeline, Prompt


class Clock:
    """Seconds of the parts of a run. Mutates itself."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.load_s = 0.0
        self.first: float | None = None
        self.last = 0.0
        self.tokens = 0
        self.waited_s = (0.0, 0.0)  # until the first and the last token

    def loaded(self) -> None:
        """The model is ready."""
        self.load_s = time.perf_counter() - self.start

    def token(self, waited_s: float) -> None:
        """A token has arrived; `waited_s` is what waiting for programs has taken so far."""
        self.last = time.perf_counter()
        if self.first is None:
            self.first, self.waited_s = self.last, (waited_s, waited_s)
        self.waited_s = (self.waited_s[0], waited_s)
        self.tokens += 1

    def summary(self, prompt_tokens: int) -> str:
        """One line; the rate leaves out compiling and everything before the first token."""
        if self.first is None:
            return f"loaded in {self.load_s:.1f} s; no token"
        text = (
            f"loaded in {self.load_s:.1f} s, programs in {self.waited_s[1]:.1f} s; "
            f"{prompt_tokens} prompt tokens, first token after {self.first - self.start:.1f} s; "
            f"{self.tokens} tokens"
        )
        decode_s = self.last - self.first - (self.waited_s[1] - self.waited_s[0])
        return f"{text}, {(self.tokens - 1) / decode_s:.1f} tokens/s" if decode_s > 0 else text


class Session:
    """Runs prompts and shows results.

    Args:
      prompts: texts or lists of token ids.
      chat: render each text as a user's turn.
      thinking: such turns ask for reasoning first; the mark at its end is then shown.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        prompts: Sequence[Prompt],
        params: SamplingParams,
        *,
        chat: bool,
        thinking: bool = False,
        clock: Clock,
    ):
        self.pipeline = pipeline
        self.prompts = prompts
        self.clock = clock
        self.skip_control = not thinking
        inputs = [
            pipeline.chat_prompt(p, thinking=thinking) if chat and isinstance(p, str) else p
            for p in prompts
        ]
        self.requests = pipeline.requests(inputs, self._answers(params) if thinking else params)

    def _answers(self, params: SamplingParams) -> SamplingParams:
        """Parameters whose grammar starts behind the reasoning."""
        tokenizer = self.pipeline.tokenizer
        if params.grammar is None or tokenizer is None:
            return params
        ends = tokenizer.control_id(tokenizer.special_tokens.thinking_end)
        return dataclasses.replace(
            params, grammar=dataclasses.replace(params.grammar, trigger_token_ids=(ends,))
        )

    def run(self, output: str) -> None:
        """Prints results to stdout: "text" or "jsonl"; progress and statistics to stderr.

        Raises:
          RequestError, StepError: why a request was refused or failed; the others are printed.
        """
        if output == "text" and len(self.prompts) == 1 and self.pipeline.tokenizer is not None:
            self._stream()
        else:
            self._collect(output)
        total = sum(len(r.prompt_token_ids) for r in self.requests)
        print(self.clock.summary(total), file=sys.stderr)

    def _stream(self) -> None:
        assert self.pipeline.tokenizer is not None, "streaming text needs a tokenizer"
        detokenizer = self.pipeline.tokenizer.detokenizer(skip_control=self.skip_control)
        for event in self.pipeline.events(self.requests):
            if event.token_id is not None:
                self.clock.token(self.pipeline.runner.programs.waited_s)
                print(detokenizer.push([event.token_id]), end="", flush=True)
            if event.error is not None:
                raise event.error
        print(detokenizer.finish(), flush=True)

    def _collect(self, output: str) -> None:
        told: list[list[TokenEvent]] = [[] for _ in self.requests]
        reasons: list[FinishReason | None] = [None] * len(self.requests)
        shown = 0
        errors: list[DsJaxError] = []
        bar = Progress(len(self.requests))
        for event in self.pipeline.events(self.requests):
            number = int(event.request_id)
            if event.error is not None:
                errors.append(event.error)
            if event.token_id is not None:
                self.clock.token(self.pipeline.runner.programs.waited_s)
            told[number].append(event)
            reasons[number] = event.finish_reason
            bar.show(sum(r is not None for r in reasons), self.clock.tokens)
            while shown < len(reasons) and (reason := reasons[shown]) is not None:
                bar.clear()
                self._print(output, shown, told[shown], reason)
                shown += 1
        bar.clear()
        if errors:
            raise errors[0]

    def _print(
        self, output: str, index: int, events: Sequence[TokenEvent], reason: FinishReason
    ) -> None:
        ids = [event.token_id for event in events if event.token_id is not None]
        params = self.requests[index].params
        tokenizer = self.pipeline.tokenizer
        text = tokenizer.decode(ids, skip_control=self.skip_control) if tokenizer else ""
        if output == "jsonl":
            usage = Usage(len(self.requests[index].prompt_token_ids), len(ids))
            record: dict[str, Any] = {
                "index": index,
                "prompt": self.prompts[index],
                "text": text,
                "token_ids": ids,
                "finish_reason": reason.value,
                "usage": {
                    "prompt_tokens": usage.prompt_tokens,
                    "completion_tokens": usage.completion_tokens,
                    "total_tokens": usage.total_tokens,
                },
            }
            if events[-1].error is not None:
                record["error"] = str(events[-1].error)
            if params.top_logprobs is not None:
                record["logprobs"] = [_logprob(e.logprob) for e in events if e.logprob is not None]
            if params.prompt_logprobs is not None:
                record["prompt_logprobs"] = [_logprob(p) for p in events[0].prompt_logprobs or ()]
            print(json.dumps(record, ensure_ascii=False), flush=True)
        else:
            body = text if tokenizer is not None else " ".join(map(str, ids))
            head = f"--- prompt {index}\n" if len(self.prompts) > 1 else ""
            print(f"{head}{body}", flush=True)


class Progress:
    """A bar on stderr for several prompts. Mutates itself."""

    def __init__(self, total: int, width: int = 30):
        self.total = total
        self.width = width
        self.live = sys.stderr.isatty()
        self.drawn = ""

    def show(self, done: int, tokens: int) -> None:
        """Draws the bar: on a terminal every time, elsewhere when a prompt is done."""
        if self.total < 2:
            return
        filled = self.width * done // self.total
        line = f"[{'#' * filled}{'.' * (self.width - filled)}] {done}/{self.total} prompts"
        if self.live:
            line += f", {tokens} tokens"
            print(f"\r{line}", end="", file=sys.stderr, flush=True)
        elif line != self.drawn:
            print(line, file=sys.stderr, flush=True)
        self.drawn = line

    def clear(self) -> None:
        """Wipes the bar off a terminal."""
        if self.live and self.drawn:
            print("\r" + " " * len(self.drawn) + "\r", end="", file=sys.stderr, flush=True)


def prompts(given: Sequence[str], file: str | None) -> list[Prompt]:
    """Prompts of the command line, then those of a JSON lines file.

    Raises: RequestError for none, ConfigError for an unreadable file, with its line.
    """
    found: list[Prompt] = list(given)
    if file is not None:
        lines = enumerate(_text("prompts_file", file).splitlines(), 1)
        found += [_prompt(line, f"{file}:{number}") for number, line in lines if line.strip()]
    if not found:
        raise RequestError("no prompt: give --prompt or --prompts_file")
    return found


def _prompt(line: str, where: str) -> Prompt:
    forms = 'use "text", {"prompt": "text"} or {"token_ids": [1, 2]}'
    try:
        value = json.loads(line)
    except ValueError as error:
        raise RequestError(f"{where}: not JSON ({error}); {forms}") from None
    if isinstance(value, dict):
        if len(value) != 1 or not value.keys() <= {"prompt", "token_ids"}:
            raise RequestError(f"{where}: keys {sorted(value)}; {forms}")
        (value,) = value.values()
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(type(i) is int for i in value):
        return value
    raise RequestError(f"{where}: {type(value).__name__} is no prompt; {forms}")


def biases(pairs: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """Pairs such as `17:-2.5` as ids and values.

    Raises: RequestError for anything else.
    """
    found: list[tuple[int, float]] = []
    for pair in pairs:
        token, _, value = pair.partition(":")
        try:
            found.append((int(token), float(value)))
        except ValueError:
            raise RequestError(
                f"--logit_bias={pair}: must be an id and a value, such as 17:-2.5",
                param="logit_bias",
            ) from None
    return tuple(found)


def _logprob(found: TokenLogprob | None) -> dict[str, Any] | None:
    return (
        None if found is None else {"logprob": found.logprob, "top": [list(t) for t in found.top]}
    )


def grammar(
    schema_file: str | None, regex: str | None, ebnf_file: str | None
) -> GrammarRequest | None:
    """The grammar that flags ask for.

    Raises: ConfigError for an unreadable file, RequestError for a grammar that is refused.
    """
    from ds_jax import structured  # its modules are loaded only where they are needed

    given: list[GrammarRequest] = []
    for flag, kind, file in (
        ("json_schema", "json_schema", schema_file),
        ("ebnf", "ebnf", ebnf_file),
    ):
        if file is not None:
            given.append(GrammarRequest(kind, _text(flag, file)))
    if regex is not None:
        given.append(GrammarRequest("regex", regex))
    if len(given) > 1:
        raise RequestError("give one of --json_schema, --regex and --ebnf: an output follows one")
    for each in given:  # over bytes: what is wrong with it does not need the model's tokens
        structured.compile(each.kind, each.text)
    return given[0] if given else None


def _text(flag: str, file: str) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"--{flag}={file}: cannot read it ({reason})") from None


def config_file(checkpoint: str) -> pathlib.Path:
    """The config of a checkpoint: its folder, a bare file, or the embedded model's for `tiny`."""
    if checkpoint == "tiny":
        return pathlib.Path(__file__).parent / "assets" / "tiny" / "config.json"
    return pathlib.Path(checkpoint)
