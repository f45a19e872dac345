"""Typed decoding: declared shapes, and the texts for what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ds_jax.recipe import decode
from ds_jax.recipe.decode import DecodeError
from ds_jax.recipe.decode_record import defaulted, optional, record, required
from ds_jax.recipe.decode_tagged import Unit, tagged, variants


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: int = required(decode.u8)
    y: int | None = optional(decode.i64)
    name: str = defaulted(decode.string, "origin", key="label")


@dataclasses.dataclass(frozen=True, slots=True)
class Circle:
    radius: float = required(decode.f64)
    colour: str | None = optional(decode.words("red", "blue"), aliases=("color",))


point = record(Point, "struct Point")
circle = record(Circle, "struct Circle")
shape = tagged(
    "Shape",
    "kind",
    {
        **variants("Shape", {"circle": ("Circle", Circle)}),
        "none": Unit(None),
    },
)


def refused(reader: decode.Reader[Any], value: Any) -> str:
    with pytest.raises(DecodeError) as caught:
        reader(value)
    return str(caught.value)


def test_record_reads_objects_and_arrays():
    assert point({"x": 1, "unknown": {}}) == Point(1, None, "origin")
    assert point({"label": "a", "y": -5, "x": 0}) == Point(0, -5, "a")
    assert point([1, None, "a"]) == Point(1, None, "a")
    assert point([1, None]) == Point(1, None, "origin")


@pytest.mark.parametrize(
    "value, message",
    [
        (5, "invalid type: integer `5`, expected struct Point"),
        (None, "invalid type: null, expected struct Point"),
        ("a", 'invalid type: string "a", expected struct Point'),
        ({}, "missing field `x`"),
        ({"x": None}, "invalid type: null, expected u8"),
        ({"x": True}, "invalid type: boolean `true`, expected u8"),
        ({"x": 256}, "invalid value: integer `256`, expected u8"),
        ({"x": -1}, "invalid value: integer `-1`, expected u8"),
        ({"x": 1.5}, "invalid type: floating point `1.5`, expected u8"),
        ({"y": "a"}, 'invalid type: string "a", expected i64'),
        ({"x": 0, "y": 2**63}, "invalid value: integer `9223372036854775808`, expected i64"),
        ({"x": 1, "label": None}, "invalid type: null, expected a string"),
        ([], "invalid length 0, expected struct Point with 3 elements"),
        ([1], "invalid length 1, expected struct Point with 3 elements"),
        ([1, None, "a", 0], "invalid length 4, expected fewer elements in array"),
    ],
)
def test_record_says_what_is_wrong(value, message):
    assert refused(point, value) == message


def test_first_wrong_value_comes_before_missing_fields():
    assert refused(point, {"y": [], "label": 1}) == "invalid type: sequence, expected i64"


def test_field_given_under_two_names_is_refused():
    assert circle({"radius": 1, "color": "red"}) == Circle(1.0, "red")
    assert refused(circle, {"colour": "red", "color": "blue"}) == "duplicate field `colour`"
    assert refused(circle, {"colour": 1, "color": "blue"}) == (
        "invalid type: integer `1`, expected string or map"
    )


def test_tagged_value_is_chosen_by_its_tag():
    assert shape({"kind": "circle", "radius": 2}) == Circle(2.0, None)
    assert shape(["circle", 2.5, "blue"]) == Circle(2.5, "blue")
    assert shape({"kind": "none", "radius": "x"}) is None


@pytest.mark.parametrize(
    "value, message",
    [
        (5, "invalid type: integer `5`, expected internally tagged enum Shape"),
        ({}, "missing field `kind`"),
        ([], "missing field `kind`"),
        ({"kind": 1}, "invalid type: integer `1`, expected variant identifier"),
        ({"kind": "x"}, "unknown variant `x`, expected `circle` or `none`"),
        ({"kind": "circle"}, "missing field `radius`"),
        (
            ["circle"],
            "invalid length 0, expected struct variant Shape::Circle with 2 elements",
        ),
        (["circle", 1, None, 3], "invalid length 3, expected 2 elements in sequence"),
        (["none", 1], "invalid length 1, expected 0 elements in sequence"),
    ],
)
def test_tagged_value_says_what_is_wrong(value, message):
    assert refused(shape, value) == message


def test_words_may_be_keys_of_null():
    effort = decode.words("low", "mid", "high")
    assert effort("low") == effort({"low": None}) == "low"
    assert refused(effort, "x") == "unknown variant `x`, expected one of `low`, `mid`, `high`"
    assert refused(effort, {"low": 1}) == "invalid type: integer `1`, expected unit"
    assert refused(effort, {}) == "invalid value: map, expected map with a single key"
    assert refused(effort, None) == "invalid type: null, expected string or map"
    assert refused(decode.words("low"), "x") == "unknown variant `x`, expected `low`"


def test_combinations():
    texts = decode.string_or_array(decode.string, "expected a string or a list")
    assert texts("a") == "a" and texts(["a", "b"]) == ["a", "b"]
    assert refused(texts, {}) == "expected a string or a list"
    assert refused(texts, [1]) == "invalid type: integer `1`, expected a string"
    table = decode.mapping(decode.option(decode.boolean))
    assert table({"b": True, "a": None}) == {"b": True, "a": None}
    assert refused(table, []) == "invalid type: sequence, expected a map"
    assert refused(decode.at_field("f", table), {"a": 1}) == (
        "field `f`: invalid type: integer `1`, expected a boolean"
    )
    assert refused(decode.number, "x") == 'invalid type: string "x", expected a JSON number'


def test_32_bit_floats_are_rounded_and_may_be_infinite():
    assert decode.f32(0.95) == 0.949999988079071
    assert decode.f32(1e300) == float("inf")
    assert decode.f32(-(2**63)) == -(2.0**63)
    assert repr(decode.f32(-1e300)) == "-inf"


@pytest.mark.parametrize(
    "value, text",
    [
        (1.0, "floating point `1.0`"),
        (1e-7, "floating point `1e-7`"),
        (1e16, "floating point `1e+16`"),
        (-0.0, "floating point `-0.0`"),
        ('a"\\\n\0é', 'string "a\\"\\\\\\n\\0é"'),
        ("\u200b\u0301\x7f", 'string "\\u{200b}\\u{301}\\u{7f}"'),
        ({}, "map"),
    ],
)
def test_values_are_described_by_type(value, text):
    assert refused(decode.boolean, value) == f"invalid type: {text}, expected a boolean"
