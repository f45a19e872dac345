"""The input of a custom tool is decoded alike wherever its arguments are cut."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_jax.recipe.apply_patch import InputDecoder

PATCH = '*** Begin Patch\n"q"\\\t\x01é😀\n*** End Patch'

WRITTEN = [
    (json.dumps({"input": PATCH}), PATCH),
    (json.dumps({"input": PATCH}, ensure_ascii=False), PATCH),
    (' {\n"input"\t:\f"abc" , "more": 1}', "abc"),
    ('{"input": "abc', "abc"),
    ('{"input": "a\\/b\\b\\f\\r\\t\\"\\\\"}', 'a/b\b\f\r\t"\\'),
    ('{"input": "a\nb"}', "a\nb"),
    # what means nothing stays as it was written
    ('{"input": "a\\qb"}', "a\\qb"),
    ('{"input": "a\\u12xyz"}', "a\\u12xyz"),
    ('{"input": "a\\u12"b"}', 'a\\u12"b'),
    ('{"input": "a\\ud83dx"}', "a\\ud83dx"),
    ('{"input": "a\\ude00"}', "a\\ude00"),
    ('{"input": "\\ud83d\\ud83d\\ude00"}', "\\ud83d\\ud83d\\ude00"),
    ('{"input": "\\ud83d\\u0041"}', "\\ud83d\\u0041"),
    ('{"input": "\\u１234"}', "\\u１234"),
    ('{"input": "ab\\', "ab\\"),
    ('{"input": "ab\\ud83d\\u', "ab\\ud83d\\u"),
    # no such object: everything stays
    ('{"input": ', '{"input": '),
    ('{"other": "abc"}', '{"other": "abc"}'),
    ('{"input":\u00a0"abc"}', '{"input":\u00a0"abc"}'),
    ('{"input": 1.5}', '{"input": 1.5}'),
    ("", ""),
]


def decoded(pieces: list[str]) -> str:
    decoder = InputDecoder()
    return "".join(map(decoder.add, pieces)) + decoder.rest()


@pytest.mark.parametrize(("written", "want"), WRITTEN)
def test_input_is_decoded_at_every_cut(written: str, want: str):
    assert decoded([written]) == want
    assert decoded(list(written)) == want
    for cut in range(len(written) + 1):
        assert decoded([written[:cut], "", written[cut:]]) == want


@given(st.text())
def test_any_input_comes_back(text: str):
    assert decoded(list(json.dumps({"input": text}))) == text
    assert decoded([json.dumps({"input": text}, ensure_ascii=False)]) == text


@given(st.text(alphabet='{}"input: \\ud83de0nbx'), st.data())
def test_cuts_never_change_the_input(text: str, data: st.DataObject):
    written = '{"input": "' + text
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)))))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert decoded(pieces) == decoded([written])
