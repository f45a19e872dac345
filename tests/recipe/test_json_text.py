"""JSON is read strictly and written in the spelling of each prompt format."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_jax.recipe import json_text
from ds_jax.recipe.quoting import quoted


@pytest.mark.parametrize(
    ("value", "python", "decimal"),
    [
        (1.0, "1.0", "1.0"),
        (-0.0, "-0.0", "-0.0"),
        (0.0001, "0.0001", "0.0001"),
        (1e-5, "1e-05", "0.00001"),
        (-2.5e-5, "-2.5e-05", "-0.000025"),
        (1e-6, "1e-06", "1e-6"),
        (1.25e-10, "1.25e-10", "1.25e-10"),
        (5e-324, "5e-324", "5e-324"),
        (1e15, "1000000000000000.0", "1000000000000000.0"),
        (1e16, "1e+16", "1e+16"),
        (1.5e300, "1.5e+300", "1.5e+300"),
        (2**64 - 1, "18446744073709551615", "18446744073709551615"),
    ],
)
def test_floats_have_two_spellings(value: float, python: str, decimal: str):
    assert json_text.dumps([value]) == f"[{python}]"
    assert json_text.dumps_decimal([value]) == f"[{decimal}]"
    assert json_text.dumps_compact({"a": [value, 1]}) == f'{{"a":[{decimal},1]}}'


def test_strings_that_look_like_small_numbers_are_kept():
    value = {"1e-05": ['x 1e-05 "1e-05', "\\", 1e-5]}
    assert json_text.dumps_decimal(value) == ('{"1e-05": ["x 1e-05 \\"1e-05", "\\\\", 0.00001]}')


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_every_spelling_reads_back(value):
    for write in (json_text.dumps, json_text.dumps_decimal, json_text.dumps_compact):
        assert json_text.loads(write(value)) == value
    assert json_text.copy(value) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "{'a':1}", "[1,]", "nan", "NaN", "Infinity", "-Infinity", "01", "1.", ".5"),
        *("1e400", "\ufeff{}", '"\t"', '"\\ud800"', '"\\udc00\\ud800"', '"\\x"', "[1] 2", "tru"),
        *("[" * 128 + "]" * 128, '{"a":' * 128 + "1" + "}" * 128, "[" * 100_000),
    ],
)
def test_what_is_not_strict_json_is_refused(text: str):
    with pytest.raises(ValueError):
        json_text.loads(text)


def test_numbers_outside_64_bits_become_floats():
    assert json_text.loads("[18446744073709551616, -9223372036854775809]") == [2.0**64, -(2.0**63)]
    assert math.copysign(1, json_text.loads("-0")) == -1
    assert json_text.loads("-9223372036854775808") == -(2**63)
    assert json_text.loads("[" * 127 + "]" * 127)
    assert json_text.loads('"' + "[" * 500 + '"') == "[" * 500


@pytest.mark.parametrize("text", ["", "plain [text]!", 'a"b', "\\", "é😀", "\x00\n\u0301\u200b"])
def test_quoted_text_is_one_line_between_quotes(text: str):
    shown = quoted(text)
    assert shown[0] == shown[-1] == '"'
    assert shown.isprintable()
    if text.isascii() and text.isprintable():
        assert json.loads(shown) == text
