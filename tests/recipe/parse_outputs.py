"""Random generated outputs and parsing options, as plain data for `parse_cases`.

Outputs are strung together from fragments of markup, both spellings of the tags, whole calls, and
characters that are easily taken for the beginning of a marker; then they are cut anywhere into text
chunks, chunks of ids, or both.
"""

from __future__ import annotations

import json
import random
from typing import Any

import tokenizers

from tests.recipe import golden_cases

SPELLINGS: list[dict[str, str]] = [
    *({} for _ in range(12)),
    {"thinking_end": "<｜User｜>"},
    {"dsml": "<｜image｜>"},
    {"thinking_end": "[/T]", "dsml": "#D#"},
    {"thinking_end": "<#D", "dsml": "#D"},
    {"dsml": "<<"},
    {"thinking_end": "aab"},
    {"dsml": "D"},
    {"thinking_end": "</", "dsml": "/x"},
    {"thinking_end": "<|EXTRA|>", "dsml": "<|EXTRA|>"},
]
STRANGE_SPELLINGS: list[dict[str, str]] = [
    *({"thinking_end": ""}, {"dsml": ""}, {"thinking_end": "\n</t>"}, {"dsml": "\n>"}),
    *({"thinking_end": "a\na"}, {"thinking_end": "a\na", "dsml": "\n<"}, {"thinking_end": "{"}),
    *({"dsml": "tool_calls>"}, {"thinking_end": "a\nab"}, {"dsml": "t</"}, {"thinking_end": "```"}),
    *({"thinking_end": "\n"}, {"dsml": "\n"}, {"dsml": "a\n<a"}, {"dsml": "<#"}, {"dsml": "</"}),
]
_STAGES = [None, "reasoning_start", "reasoning_continuation", "content_continuation"]
_STOPS = [
    *("STOP", "ST", "TOP", "\n\n", "\n", "a", "ab", "aab", "<", "</", "{", "é", "\n```", "x>y"),
    *("end.", "l", "lo a", "hello", ""),
]
_TEXTS = [
    *("a", "b ", "hello", "\n", "\n\n", "\n\n\n", "<", "</", "{", "}", "[", '"', "'", "\\", "é"),
    *("😀", "\t", "\x00", "true", "false", " ", 'invoke name="', "parameter name=", '"k"', "STOP"),
    *(' string="true">', ' string="false">', "ST", "OP", "aa", "ab", "```json\n", "```\n", "\n```"),
    *("```", "`", '{"a": 1}', "[1, 2]", "x>y 2>&1", "tool_calls>", " calls>", "end.", "\r\n"),
    *("\ufffd", "<think>", "<｜User｜>", "<｜end▁of▁sentence｜>", "<|EXTRA|>", "\u2028", "\x7f"),
]
_VALUES = [
    *('true">a "q"\n\\ <', 'false">1', 'false">{"x":[1]}', 'true">make 2>&1', 'true">'),
    *('false">tru', 'true"></', 'false">[1, 2]', 'true">\n'),
]
_TOKENIZER_JSON = json.loads((golden_cases.GOLDEN / "tokenizer_514.json").read_text("utf-8"))
_WITH_CONTROL = tokenizers.Tokenizer.from_str(json.dumps(_TOKENIZER_JSON))
_PLAIN = tokenizers.Tokenizer.from_str(json.dumps({**_TOKENIZER_JSON, "added_tokens": []}))
# Outside the vocabulary, halves of characters, control tokens.
_IDS = [9999, 0, 171, 121, 170, 240, 200, 500, 501, 502, 507, 513]


def case(rng: random.Random, *, strange: bool = False) -> dict[str, Any]:
    """Options, and the chunks of one output.

    Args:
      rng: source of the choices.
      strange: spellings that nobody would choose: empty, with newlines, or like the tags.
    """
    spellings = rng.choice(STRANGE_SPELLINGS if strange else SPELLINGS)
    thinking_end = spellings.get("thinking_end", "</think>")
    dsml = spellings.get("dsml", "｜DSML｜")
    stops = rng.choices([*_STOPS, thinking_end, dsml], k=rng.choice([0, 0, 1, 2, 3]))
    mode = rng.choice(["text", "text", "tokens", "mixed"])
    parts = _parts(rng, thinking_end, dsml)
    made = _chunks(rng, parts, mode)
    if rng.random() < 0.1:
        made.insert(0, {"text": "", "n": 1})
    if rng.random() < 0.7:
        made.append({"finish": rng.choice(["stop", "stop", "length", "content_filter"])})
    return {
        "options": {
            "parse_tool_calls": rng.random() < 0.8,
            "starts_in_tool_calls": rng.random() < 0.15,
            "parse_json_output": rng.random() < 0.25,
            "thinking_initial_stage": rng.choice(_STAGES),
            "stop_sequences": stops,
            "special_tokens": spellings,
        },
        "thinking": rng.random() < 0.8,
        "tokenizer": "tiny" if mode != "text" or rng.random() < 0.2 else None,
        "chunks": made,
    }


def _parts(rng: random.Random, thinking_end: str, dsml: str) -> list[str]:
    markers = [
        *(thinking_end, thinking_end[:-1], thinking_end[1:], f"\n{thinking_end}"),
        *(f"\n\n{thinking_end}\n\n", dsml, dsml[:2], f"<{dsml}", f"</{dsml}"),
        *(f"</{dsml}tool_calls>", f"</{dsml} calls>", f"<{dsml}tool_calls>\n"),
        *(f"\n\n<{dsml} calls>\n", f'<{dsml} invoke name="f">\n', f'<{dsml}invoke name="g_x">\n'),
        *(f"</{dsml} invoke>\n", f"</{dsml}parameter>\n"),
        *(
            f'<{dsml} parameter name="k" string="true">',
            f'<{dsml}parameter name="n" string="false">',
        ),
    ]
    parts: list[str] = []
    for _ in range(rng.choice([1, 2, 3, 4, 6, 9])):
        kind = rng.random()
        if kind < 0.1:
            parts.append(_calls(rng, dsml))
        elif kind < 0.15:
            parts.append(thinking_end)
        else:
            parts.append(rng.choice([*_TEXTS, *markers]))
    return parts


def _calls(rng: random.Random, dsml: str) -> str:
    space, block = rng.choice([(" ", "calls"), ("", "tool_calls")])
    text = f"{rng.choice(['', chr(10) * 2])}<{dsml}{space}{block}>\n"
    for _ in range(rng.randint(0, 2)):
        text += f'<{dsml}{space}invoke name="{rng.choice(["f", "get_weather", ""])}">\n'
        for _ in range(rng.randint(0, 3)):
            name, value = rng.choice(["k", "key 2"]), rng.choice(_VALUES)
            text += (
                f'<{dsml}{space}parameter name="{name}" string="{value}</{dsml}{space}parameter>\n'
            )
        text += f"</{dsml}{space}invoke>\n"
    return f"{text}</{dsml}{space}{block}>"


def _chunks(rng: random.Random, parts: list[str], mode: str) -> list[dict[str, Any]]:
    longest = rng.choice([1, 3, 10, 1000])
    made: list[dict[str, Any]] = []
    if mode == "text":
        parts = ["".join(parts)]
    for part in parts:
        if mode == "text" or (mode == "mixed" and rng.random() < 0.5):
            made += [{"text": text, "n": rng.randint(0, 2)} for text in _cut(rng, part, longest)]
            continue
        ids = (_WITH_CONTROL if rng.random() < 0.75 else _PLAIN).encode(part).ids
        if rng.random() < 0.1:
            ids.insert(rng.randint(0, len(ids)), rng.choice(_IDS))
        made += [_tokens(rng, some) for some in _cut(rng, ids, longest)]
    return made


def _cut(rng: random.Random, sequence: Any, longest: int) -> list[Any]:
    made: list[Any] = []
    start = 0
    while start < len(sequence):
        stop = start + rng.randint(1, longest)
        made.append(sequence[start:stop])
        start = stop
        if rng.random() < 0.06:
            made.append(sequence[:0])
    return made


def _tokens(rng: random.Random, ids: list[int]) -> dict[str, Any]:
    if rng.random() < 0.7:
        return {"tokens": ids}
    return {"tokens": ids, "logprobs": [[-0.5, [[i, -1.25]] if i % 2 else []] for i in ids]}
