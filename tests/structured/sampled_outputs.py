"""Outputs of the embedded model at temperature 1 under grammars of every kind, beside free ones.

    python -m tests.structured.sampled_outputs --each=1000

Each output that has ended by itself is judged by something that is not the engine: `jsonschema`,
`re`, or a parser of its own. With `--canonical` the free requests are run once more without
constrained neighbours and must give the same tokens. `--first` is the first seed, so a long run can
be taken in pieces.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema

from ds_jax import Pipeline, SamplingParams
from ds_jax.grammar_request import GrammarRequest
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import FinishReason, GenerateRequest
from ds_jax.structured import answers

MARK = answers.MARKER
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "<think>"]}, "maxItems": 3},
        "at": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[0-2][0-9]h$"}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["v"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "name": "weather",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 10},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
    {
        "name": "clock",
        "strict": True,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
]
SENTENCE = r"(?:yes|no|maybe), [a-z]{3,9} [0-9]{1,3}\."
SUM = 'root ::= term ("+" term){1,3}\nterm ::= [1-9] [0-9]{0,2} | "(" root ")"\n'


def is_json(schema: dict[str, Any]) -> Callable[[str], bool]:
    """Whether a text is an instance."""

    def judge(text: str) -> bool:
        try:
            jsonschema.validate(json.loads(text), schema)
        except (ValueError, jsonschema.ValidationError):
            return False
        return True

    return judge


def is_sum(text: str) -> bool:
    """Whether a text is in the language of `SUM`: brackets are replaced from the inside."""
    flat = r"(?:[1-9][0-9]{0,2})(?:\+[1-9][0-9]{0,2}){1,3}"
    while (inner := re.search(rf"\({flat}\)", text)) is not None:
        text = f"{text[: inner.start()]}1{text[inner.end() :]}"
    return re.fullmatch(flat, text) is not None


def is_block(text: str) -> bool:
    """Whether a text is a block of calls of `TOOLS`, behind its opening line."""
    city = f'<{MARK} parameter name="city" string="true">(?s:.{{0,10}})</{MARK} parameter>\n'
    days = f'<{MARK} parameter name="days" string="false">[1-9]</{MARK} parameter>\n'
    weather = f'<{MARK} invoke name="weather">\n{city}(?:{days})?</{MARK} invoke>\n'
    clock = f'<{MARK} invoke name="clock">\n\n?</{MARK} invoke>\n'
    return re.fullmatch(f"(?:{weather}|{clock})+</{MARK} calls>", text) is not None


@dataclasses.dataclass(frozen=True)
class Kind:
    """A grammar, who judges its outputs, and the user's turn in front of them."""

    grammar: GrammarRequest
    judge: Callable[[str], bool]
    prompt: str
    thinking: bool = False


def kinds(tokenizer: Tokenizer) -> dict[str, Kind]:
    """All kinds, one grammar or two each."""
    ends = (tokenizer.control_id(tokenizer.special_tokens.thinking_end),)
    number = r"-?[0-9]{1,4}"
    return {
        "json_schema": Kind(
            GrammarRequest("json_schema", json.dumps(PERSON)), is_json(PERSON), "Who are you?"
        ),
        "json_schema, recursive": Kind(
            GrammarRequest("json_schema", json.dumps(TREE)), is_json(TREE), "A tree, please."
        ),
        "json_object": Kind(
            GrammarRequest("json_object", ""), is_json({"type": "object"}), "Answer in JSON."
        ),
        "regex": Kind(
            GrammarRequest("regex", SENTENCE),
            lambda text: re.fullmatch(SENTENCE, text) is not None,
            "Will it rain?",
        ),
        "regex behind reasoning": Kind(
            GrammarRequest("regex", number, trigger_token_ids=ends),
            lambda text: re.fullmatch(f"(?s:.*)</think>{number}", text) is not None,
            "What is 3 + 4?",
            thinking=True,
        ),
        "ebnf": Kind(GrammarRequest("ebnf", SUM), is_sum, "A sum."),
        "lark": Kind(
            GrammarRequest("lark", 'start: "<" /[a-z]{1,8}/ ">"'),
            lambda text: re.fullmatch("<[a-z]{1,8}>", text) is not None,
            "A tag.",
        ),
        "tool_calls": Kind(
            GrammarRequest("tool_calls", json.dumps(TOOLS), (("start", "calls"), ("max_calls", 2))),
            is_block,
            "What is the weather?",
        ),
    }


def requests(
    pipeline: Pipeline, seeds: range, *, max_tokens: int = 96
) -> Iterator[tuple[str, GenerateRequest]]:
    """Constrained requests of every kind, one in five free, with their names."""
    assert pipeline.tokenizer is not None, "the embedded model has a tokenizer"
    known = kinds(pipeline.tokenizer)
    prompts = {
        name: tuple(pipeline.chat_prompt(kind.prompt, thinking=kind.thinking))
        for name, kind in known.items()
    }
    free = tuple(pipeline.chat_prompt("Tell me something."))
    number = 0
    for seed in seeds:
        for place, (name, kind) in enumerate(known.items()):
            params = SamplingParams(max_tokens, grammar=kind.grammar, seq_seed=seed)
            yield name, GenerateRequest(str(number), prompts[name], params)
            number += 1
            if place % 4 == 3:
                params = SamplingParams(max_tokens // 2, seq_seed=seed)
                yield "free", GenerateRequest(str(number), free, params)
                number += 1


@dataclasses.dataclass
class Tally:
    """What has become of the requests of one kind."""

    ended: int = 0
    cut: int = 0
    invalid: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Takes the numbers of another one. Mutates."""
        self.ended += other.ended
        self.cut += other.cut
        self.invalid += other.invalid
        self.failed += other.failed


def run(
    pipeline: Pipeline, asked: list[tuple[str, GenerateRequest]]
) -> tuple[dict[str, Tally], dict[str, list[int]]]:
    """Runs requests together; tallies of the kinds and tokens of all requests."""
    tokenizer = pipeline.tokenizer
    assert tokenizer is not None, "the embedded model has a tokenizer"
    names = {request.request_id: name for name, request in asked}
    tokens: dict[str, list[int]] = {request.request_id: [] for _, request in asked}
    tallies: dict[str, Tally] = collections.defaultdict(Tally)
    known = kinds(tokenizer)
    for event in pipeline.events([request for _, request in asked]):
        name, ids = names[event.request_id], tokens[event.request_id]
        if event.token_id is not None:
            ids.append(event.token_id)
        if event.finish_reason is None:
            continue
        tally = tallies[name]
        if event.error is not None:
            tally.failed.append(str(event.error))
        elif event.finish_reason is not FinishReason.STOP:
            tally.cut += 1
        else:
            tally.ended += 1
            text = tokenizer.decode(ids)
            if name in known and not known[name].judge(text):
                tally.invalid.append(text)
    return tallies, tokens


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--each", type=int, default=1000)
    parser.add_argument("--round", type=int, default=50)
    parser.add_argument("--canonical", action="store_true")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--nextn", type=int, default=0, help="drafts")
    parser.add_argument("--first", type=int, default=0, help="seed of the first ones")
    given = parser.parse_args()
    options: dict[str, Any] = {"chunk_tokens": (64,), "max_context": 256}
    if given.canonical:
        options |= {"canonical": True, "engine": {"canonical_rows": given.sequences}}
    options |= {"max_sequences": given.sequences, "nextn": given.nextn}
    pipeline = Pipeline.from_checkpoint("tiny", **options)
    start = time.monotonic()
    total: dict[str, Tally] = collections.defaultdict(Tally)
    same = compared = 0
    last = given.first + given.each
    for first in range(given.first, last, given.round):
        asked = list(requests(pipeline, range(first, min(first + given.round, last))))
        tallies, tokens = run(pipeline, asked)
        for name, tally in tallies.items():
            total[name].add(tally)
        if given.canonical:
            alone = run(pipeline, [pair for pair in asked if pair[0] == "free"])[1]
            same += sum(ids == tokens[name] for name, ids in alone.items())
            compared += len(alone)
        print(f"\n{time.monotonic() - start:.0f} s, {pipeline.stats()['steps_total']} steps\n")
        print("| kind | ended | cut by max_tokens | invalid | failed |\n|---|---|---|---|---|")
        for name, tally in sorted(total.items()):
            found = f"{len(tally.invalid)} | {len(tally.failed)}"
            print(f"| {name} | {tally.ended} | {tally.cut} | {found} |")
            for text in [*tally.invalid, *tally.failed][:5]:
                print(f"    {text!r}")
        if given.nextn:
            stats = pipeline.stats()
            print(f"{stats['mean_accepted_length']:.2f} tokens a step and sequence")
        if compared:
            print(f"free ones with the same tokens without neighbours: {same} of {compared}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
