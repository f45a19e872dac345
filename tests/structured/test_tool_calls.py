"""A constrained block of calls always parses, and its values fit the declared types."""

from __future__ import annotations

import json

import hypothesis
import jsonschema
import numpy as np
import pytest
from hypothesis import strategies as st

from ds_jax import errors, recipe, structured
from ds_jax.recipe import conversation as conv
from ds_jax.recipe import dsml
from ds_jax.recipe.inference import InferenceChunk
from ds_jax.recipe.parse import ParsingOptions
from ds_jax.recipe.prompt import PromptBuilder
from ds_jax.recipe.special_tokens import SpecialTokens
from ds_jax.recipe.stream import StreamProcessor
from tests.recipe import parsing

WEATHER = {
    "name": "get_weather",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "units": {"enum": ["metric", "imperial"]},
            "where": {"$ref": "#/$defs/place"},
            "note": {"type": ["string", "null"]},
        },
        "required": ["city", "days"],
        "additionalProperties": False,
        "$defs": {
            "place": {
                "type": "object",
                "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                "required": ["lat", "lon"],
                "additionalProperties": False,
            }
        },
    },
}
NOW = {"name": "time::now", "parameters": {"type": "object", "additionalProperties": False}}
FREE = {"name": "free"}
TOOLS = [WEATHER, NOW, FREE]


def spelled(*calls: tuple[str, dict]) -> str:
    """The block as prompts spell it."""
    out = PromptBuilder()
    records = [
        conv.ToolCall(str(i), name, json.dumps(args)) for i, (name, args) in enumerate(calls)
    ]
    dsml.add_calls(out, enumerate(records), SpecialTokens())
    return "".join(text for text, _ in out.build().segments)


def compiled(tools=TOOLS, tokenizer=None, **options):
    return structured.compile("tool_calls", json.dumps(tools), tokenizer, **options)


def test_calls_as_prompts_spell_them_are_accepted():
    grammar = compiled()
    full = {"city": "Köln </x>\n", "days": 3, "units": "metric", "where": {"lat": 1.5, "lon": -2}}
    assert grammar.accepts(spelled(("get_weather", full)))
    assert grammar.accepts(spelled(("get_weather", {"city": "", "days": 1, "note": None})))
    assert grammar.accepts(spelled(("get_weather", {"city": "a", "days": 1, "note": "b"})))
    assert grammar.accepts(spelled(("time::now", {})))
    assert grammar.accepts(spelled(("free", {"x": [1, {"y": None}], "z": "text", "n": -1.5})))
    two = spelled(("time::now", {}), ("get_weather", {"city": "a", "days": 14}))
    assert grammar.accepts(two)
    assert not compiled(max_calls=1).accepts(two)


def test_calls_that_do_not_fit_are_refused():
    grammar = compiled()
    for name, arguments in (
        ("get_weather", {"city": "a"}),
        ("get_weather", {"days": 1}),
        ("get_weather", {"city": 1, "days": 1}),
        ("get_weather", {"city": "a", "days": "1"}),
        ("get_weather", {"city": "a", "days": 15}),
        ("get_weather", {"city": "a", "days": 1, "units": "other"}),
        ("get_weather", {"city": "a", "days": 1, "where": {"lat": 1}}),
        ("get_weather", {"city": "a", "days": 1, "z": 1}),
        ("get_weathers", {"city": "a", "days": 1}),
        ("time::now", {"a": 1}),
    ):
        assert not grammar.accepts(spelled((name, arguments))), (name, arguments)
    assert not grammar.accepts("")
    assert not grammar.accepts(spelled(("time::now", {})) + "x")


def test_the_choice_names_the_only_tool():
    named = compiled(choice="time::now")
    assert named.accepts(spelled(("time::now", {})))
    assert not named.accepts(spelled(("free", {})))
    with pytest.raises(
        errors.RequestError, match="no tool is named 'other'; there are get_weather"
    ):
        compiled(choice="other")


def test_the_grammar_may_start_inside_the_block():
    block = spelled(("time::now", {}))
    opening = "\n\n<｜DSML｜ calls>\n"
    assert block.startswith(opening)
    assert compiled(start="calls").accepts(block.removeprefix(opening))
    assert compiled(start="marker").accepts(block.removeprefix("\n\n<｜DSML｜"))


def test_text_that_spells_the_marker_is_no_marker(released):
    marker = released.tokenizer.find_control("｜DSML｜")
    block = spelled(("get_weather", {"city": "</｜DSML｜ parameter>", "days": 1}))
    parts = block.split("｜DSML｜")
    grammar = compiled(tokenizer=released)
    # every marker but the one inside the value is a control token
    value = next(index for index, part in enumerate(parts) if part.endswith('string="true"></'))
    ids: list[int] = []
    for index, part in enumerate(parts):
        ids += released.encode(part)
        if index == value:
            ids += released.encode("｜DSML｜")
        elif index + 1 < len(parts):
            ids.append(marker)
    assert grammar.accepts_ids(ids)
    assert not grammar.accepts(block)


STRINGS = [
    ({"minLength": 2, "maxLength": 3}, ["ab", "日本語"], ["a", "abcd"]),
    ({"pattern": "^[a-z]+$"}, ["abc"], ["", "aB", "a\n"]),
    ({"pattern": "b+"}, ["b", "abba", "\nb"], ["", "a"]),
    ({"pattern": "^(?:a|b)"}, ["a", "bcd"], ["c", "ca"]),
    ({"pattern": "/$", "minLength": 3}, ["ab/"], ["/", "a/", "ab"]),
    ({"format": "date"}, ["2026-02-28", "2024-12-31"], ["2026-02-30", "2026-13-01", "x"]),
    ({"format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"], ["123e4567"]),
    ({"format": "ipv4"}, ["10.0.0.255"], ["10.0.0.256", "1.2.3"]),
    ({"format": "ipv6"}, ["::1", "fe80::1:2", "1:2:3:4:5:6:7:8", "::"], ["1::2::3", "1:2", ":::"]),
    ({"format": "email"}, ["a.b@example.org"], ["a@", "@b.c", "a b@c.d"]),
    ({"format": "hostname"}, ["a-1.example"], ["-a", "a..b"]),
    ({"format": "date-time"}, ["2026-11-30T07:00:00Z"], ["2026-11-30 07:00:00"]),
    ({"enum": ["</a", "b c", 3]}, ["</a", "b c"], ["3", "", "b"]),
    ({"anyOf": [{"const": "x"}, {"maxLength": 0}]}, ["x", ""], ["y"]),
]


@pytest.mark.parametrize(("schema", "accepted", "refused"), STRINGS)
def test_raw_strings_follow_a_strict_schema(schema, accepted, refused):
    parameters = {"type": "object", "properties": {"s": schema}, "required": ["s"]}
    if not {"enum", "anyOf"} & schema.keys():
        schema["type"] = "string"
    grammar = compiled([{"name": "f", "strict": True, "parameters": parameters}])
    assert [text for text in accepted if not grammar.accepts(spelled(("f", {"s": text})))] == []
    assert [text for text in refused if grammar.accepts(spelled(("f", {"s": text})))] == []
    for text in accepted:
        jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(
            text
        )


def test_a_tool_that_is_not_strict_keeps_to_names_and_types():
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "format": "iri", "not": {"const": "b"}},
            "b": {"type": "array", "uniqueItems": True},
            "c": {"enum": ["x", "y"], "title": 3},
            "d": {"if": {}},
        },
        "required": ["b"],
    }
    grammar = compiled([{"name": "f", "parameters": parameters}])
    assert grammar.accepts(spelled(("f", {"a": "any", "b": [1, 1], "c": "x", "d": {"e": 1}})))
    assert grammar.accepts(spelled(("f", {"b": []})))
    for wrong in ({"a": "any"}, {"b": 1}, {"b": [], "c": "z"}, {"a": 3, "b": []}):
        assert not grammar.accepts(spelled(("f", wrong))), wrong


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([], "at least one tool"),
        ({}, "at least one tool"),
        ([3], "#/0: a tool must be an object"),
        ([{}], "#/0: the name None"),
        ([{"name": 'a"b'}], "without quotes"),
        ([{"name": "a"}, {"name": "a"}], "#/1: the name 'a' stands twice"),
        ([{"name": "a", "parameters": 3}], "#/0/parameters: must be a JSON Schema object"),
        ([{"name": "a", "parameters": {"properties": 3}}], "#/0/parameters"),
        ([{"name": "a", "parameters": {"properties": {'"': {}}}}], "quotes"),
        (
            [{"name": "a", "strict": True, "parameters": {"properties": {"x": {"not": {}}}}}],
            "#/properties/x/not: the keyword 'not'",
        ),
        (
            [
                {"name": "a", "strict": True}
                | {"parameters": {"properties": {"x": {"type": "string", "format": "uri"}}}}
            ],
            "raw text",
        ),
        ([{"name": f"t{i}"} for i in range(10_000)], "10000 tools; at most 512"),
    ],
)
def test_wrong_tools_are_refused_with_reason_and_place(tools, reason, bounded):
    with bounded(seconds=2), pytest.raises(errors.RequestError) as caught:
        compiled(tools)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("tool_calls")


def test_options_are_checked():
    for options in ({"start": "x"}, {"max_calls": 0}, {"bogus": 1}, {"marker": "none"}):
        with pytest.raises(errors.RequestError):
            compiled(**options)


@pytest.fixture(scope="module")
def tiny_grammar(tiny):
    return compiled(TOOLS, tiny)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_random_walks_end_in_calls_that_parse_and_validate(data, tiny, tiny_grammar):
    matcher = tiny_grammar.matcher()
    ids: list[int] = []
    row = np.zeros(tiny.words, np.int32)
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    marker = tiny.tokenizer.find_control("｜DSML｜")
    for _ in range(400):
        matcher.fill_row(row)
        some = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        # lean to ends: the end token and markers first, else any token
        wanted = [token for token in (tiny.eos_id, marker) if token in some]
        token = int(wanted[0] if wanted and rng.random() < 0.7 else rng.choice(some))
        matcher.accept(token)
        if matcher.has_ended:
            break
        ids.append(token)
    hypothesis.assume(matcher.has_ended)
    calls = parsed(ids, tiny.tokenizer)
    assert calls
    for name, arguments in calls:
        value = json.loads(arguments)
        assert name in {"get_weather", "time::now", "free"}
        if name == "get_weather":
            jsonschema.Draft202012Validator(WEATHER["parameters"]).validate(value)
        assert name != "time::now" or value == {}


def parsed(ids: list[int], tokenizer) -> list[tuple[str, str]]:
    """The calls the output parser reads, as (name, arguments)."""
    options = ParsingOptions()
    stream = StreamProcessor(parsing.Recorder(False), options, tokenizer)
    made = stream.push(InferenceChunk.tokens(ids))
    made += stream.push(InferenceChunk.finish(recipe.InferenceFinishReason.Stop))
    return list(parsing.calls_in(made))
