"""Marks of places are found as the longest that ends first; text and marks join to the text."""

from __future__ import annotations

import random

import pytest

from ds_jax.recipe import spatial
from ds_jax.recipe.special_tokens import SpecialTokens


def _marks(**spellings: str) -> spatial.Marks:
    unused = dict.fromkeys(
        ["ref", "ref_end", "box", "box_end", "point", "point_end", "polygon", "polygon_end"], "<>"
    )
    return spatial.Marks(SpecialTokens(**{**unused, **spellings}))


@pytest.mark.parametrize(
    ("spellings", "text", "found"),
    [
        ({"ref": "aa", "box": "a"}, "aaa", ["a", "a", "a"]),
        ({"ref": "aaa", "box": "aa"}, "aaaaa", ["aa", "aa"]),
        ({"ref": "xa", "box": "aa"}, "xaaxab", ["xa", "xa"]),
        ({"ref": "abc", "box": "b"}, "abc", ["b"]),
        ({"ref": "cd", "box": "abcd"}, "xabcd", ["abcd"]),
        ({"ref": "abac"}, "ababac", ["abac"]),
        ({"ref": "", "box": "y"}, "xyz", []),
    ],
)
def test_the_mark_that_ends_first_counts(spellings: dict[str, str], text: str, found: list[str]):
    marks = _marks(**spellings)
    parts = marks.cut(text)
    assert "".join(parts) == text
    assert parts[1::2] == found
    assert bool(found) <= marks.may_occur(text)


def test_default_marks_are_found_at_every_position():
    marks = spatial.Marks(SpecialTokens())
    token = SpecialTokens().box_end
    text = "a<｜｜/box｜>é" * 3
    for cut in range(len(text) + 1):
        parts = marks.cut(text[:cut] + token + text[cut:])
        assert parts == [text[:cut], token, text[cut:]]
        assert marks.may_occur("".join(parts))


def test_parts_are_what_a_slow_search_finds():
    rng = random.Random(0)
    for _ in range(300):
        names = rng.sample(["ref", "ref_end", "box", "point"], 3)
        spellings = {name: "".join(rng.choices("ab", k=rng.randrange(1, 4))) for name in names}
        text = "".join(rng.choices("abc", k=12))
        parts = _marks(**spellings).cut(text)
        assert parts == _slow(text, set(spellings.values()))


def _slow(text: str, marks: set[str]) -> list[str]:
    parts, at = [], 0
    for end in range(len(text) + 1):
        found = [mark for mark in marks if text[at:end].endswith(mark)]
        if found:
            longest = max(found, key=len)
            parts += [text[at : end - len(longest)], longest]
            at = end
    return [*parts, text[at:]]
