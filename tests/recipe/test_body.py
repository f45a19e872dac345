"""Bodies: what is JSON, what is not, and where the error is."""

from __future__ import annotations

import enum
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.recipe.body import read_body

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(body: object) -> str:
    with pytest.raises(ValueError) as caught:
        read_body(body)
    return str(caught.value).removeprefix("invalid JSON request: ")


@given(st.lists(JSON, max_size=3))
def test_text_bytes_and_values_read_alike(value):
    text = json.dumps(value, ensure_ascii=False)
    for body in (value, text, text.encode(), json.dumps(value, indent=1)):
        assert json.dumps(read_body(body)) == json.dumps(value)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", 2.0**64),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -(2.0**63)),
        ("0" + "." + "0" * 400 + "1", 0.0),
        ("1e-400", 0.0),
        ("-0", -0.0),
        ("1E2", 100.0),
        ('"\\ud83d\\ude00\\u0000"', "😀\0"),
        ('"\x7f"', "\x7f"),
    ],
)
def test_numbers_and_escapes(text, expected):
    value = read_body(text)
    assert (type(value), repr(value)) == (type(expected), repr(expected))


def test_repeated_key_keeps_first_place_and_last_value():
    assert list(read_body('{"a":1,"b":2,"a":3}').items()) == [("a", 3), ("b", 2)]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("\n\n", "EOF while parsing a value at line 3 column 0"),
        ("{", "EOF while parsing an object at line 1 column 1"),
        ("[1", "EOF while parsing a list at line 1 column 2"),
        ('"ab', "EOF while parsing a string at line 1 column 3"),
        ("[1,]", "trailing comma at line 1 column 4"),
        ('{"a":1,}', "trailing comma at line 1 column 8"),
        ("[1 2]", "expected `,` or `]` at line 1 column 4"),
        ('{"a":1 "b"}', "expected `,` or `}` at line 1 column 8"),
        ('{"a" 1}', "expected `:` at line 1 column 6"),
        ("{1:2}", "key must be a string at line 1 column 2"),
        ("[tRue]", "expected ident at line 1 column 3"),
        ("NaN", "expected value at line 1 column 1"),
        ("-Infinity", "invalid number at line 1 column 2"),
        ("01", "invalid number at line 1 column 2"),
        ("1.a", "invalid number at line 1 column 3"),
        ("1e999", "number out of range at line 1 column 5"),
        ('{\n"a":\n1e999\n}', "number out of range at line 3 column 5"),
        ("{}x", "trailing characters at line 1 column 3"),
        ('{"é":é}', "expected value at line 1 column 7"),
        ('"\\x"', "invalid escape at line 1 column 3"),
        ('"\\ud800"', "unexpected end of hex escape at line 1 column 8"),
        ('"\\udc00"', "lone leading surrogate in hex escape at line 1 column 7"),
        (
            '"a\nb"',
            "control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0",
        ),
        ("\ufeff{}", "expected value at line 1 column 1"),
        (b'"\xff"', "invalid unicode code point at line 1 column 3"),
        ("[" * 128, "recursion limit exceeded at line 1 column 128"),
        ('{"a":' * 128, "recursion limit exceeded at line 1 column 636"),
    ],
)
def test_error_says_what_and_where(text, message):
    assert refused(text) == message


def test_replaced_values_are_checked_too():
    assert refused('{"a":"\\ud800","a":1}').startswith("unexpected end of hex escape")
    deep = '{"a":' + "[" * 127 + "]" * 127 + ',"a":1}'
    assert refused(deep).startswith("recursion limit exceeded")


def test_text_may_nest_127_levels_and_values_128():
    assert read_body("[" * 127 + "]" * 127)
    nested: object = 1
    for _ in range(128):
        nested = [nested]
    assert read_body(nested) == nested
    with pytest.raises(RecursionError, match="maximum nesting depth of 128"):
        read_body([nested])


@pytest.mark.parametrize(
    "value, error, message",
    [
        ({1: 2}, TypeError, "JSON object keys must be str"),
        ([{1, 2}], TypeError, "set is not a JSON value"),
        ([b"x"], TypeError, "bytes is not a JSON value"),
        (bytearray(b"{}"), TypeError, "bytearray is not a JSON value"),
        ([float("nan")], ValueError, "NaN is not a finite JSON number"),
        ([float("-inf")], ValueError, "-inf is not a finite JSON number"),
        ([2**64], OverflowError, "integer is outside the JSON number range"),
        (["\ud800"], UnicodeEncodeError, "surrogates not allowed"),
        ({"\ud800": 1}, UnicodeEncodeError, "surrogates not allowed"),
        ("\ud800", UnicodeEncodeError, "surrogates not allowed"),
    ],
)
def test_python_values_json_does_not_have(value, error, message):
    with pytest.raises(error, match=message):
        read_body(value)


def test_container_inside_itself_is_named():
    loop: list[object] = []
    loop.append({"a": loop})
    assert refused(loop) == "circular reference in JSON input"


def test_subclasses_become_plain_values_in_fresh_containers():
    class Word(str):
        def __str__(self) -> str:
            return "other"

    class Level(enum.IntEnum):
        TOP = 3

    given_value = {"a": (Word("w"), Level.TOP)}
    value = read_body(given_value)
    assert value == {"a": ["w", 3]}
    assert [type(item) for item in value["a"]] == [str, int]
    given_value["a"] = ()
    assert value == {"a": ["w", 3]}


@settings(max_examples=300)
@given(st.text('[]{}",:1-.eE+\\ud8\n truefalsn0', max_size=30) | st.binary(max_size=30))
def test_text_is_read_or_refused_as_the_standard_library_does(text):
    try:
        json.loads(text.decode() if isinstance(text, bytes) else text)
    except ValueError:
        assert " at line " in refused(text)
    else:
        try:
            read_body(text)
        except ValueError as error:
            # what only the strict reader refuses
            assert "hex escape" in str(error) or "out of range" in str(error)


@settings(max_examples=300)
@given(st.text('[]{}",:1-.eE+\\ud8\n truefalsn0', max_size=30) | st.binary(max_size=30))
def test_errors_are_those_of_the_library(text):
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    with pytest.raises(ValueError) as caught:
        reference.ChatCompletionRequest(text)
    message = str(caught.value)
    if message.startswith("invalid JSON request"):
        assert refused(text) == message.removeprefix("invalid JSON request: ")
    else:
        read_body(text)
