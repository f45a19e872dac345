"""Stop strings: the first that is complete ends ids and text together, and nothing leaks before."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.engine.stop import StopMatcher

WORDS = ("a", "b", "ab", "ba", " ", "", "aab", "bb ")


class Texts:
    """Token i stands for words[i]."""

    def __init__(self, words: Sequence[str] = WORDS):
        self.words = words

    def push(self, token_ids: Iterable[int]) -> str:
        return "".join(self.words[token] for token in token_ids)

    def finish(self) -> str:
        return ""


class Bytes:
    """Token i is the byte i."""

    def __init__(self):
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        return self.decoder.decode(bytes(token_ids))

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)


def run(words: Sequence[str], stops: Sequence[str]) -> tuple[list[int], str, str | None]:
    """Ids and text shown in the end, and the stop string."""
    matcher = StopMatcher(stops, Texts(words))
    ids, text = list[int](), ""
    for token in range(len(words)):
        for piece in matcher.push(token):
            assert piece.token_id is not None
            ids.append(piece.token_id)
            text += piece.text or ""
        if matcher.matched is not None:
            return ids, text, matcher.matched
    for piece in matcher.finish():
        assert piece.token_id is not None
        ids.append(piece.token_id)
        text += piece.text or ""
    return ids, text, None


def expected(words: Sequence[str], stops: Sequence[str]) -> tuple[list[int], str, str | None]:
    """The definition, on the whole text."""
    text = "".join(words)
    for end in range(len(text) + 1):
        complete = [s for s in stops if text[:end].endswith(s)]
        if complete:
            stop = max(complete, key=len)
            cut = end - len(stop)
            starts = [len("".join(words[:n])) for n in range(len(words))]
            return [n for n, start in enumerate(starts) if start < cut], text[:cut], stop
    return list(range(len(words))), text, None


@given(
    st.lists(st.sampled_from(WORDS), max_size=12),
    st.lists(st.text("ab ", min_size=1, max_size=4), max_size=3),
)
@settings(max_examples=120, deadline=None)
def test_every_cut_of_the_text_gives_the_same_end(words: list[str], stops: list[str]) -> None:
    assert run(words, stops) == expected(words, stops)


@given(
    st.lists(st.sampled_from(WORDS), max_size=10),
    st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=2),
)
@settings(max_examples=80, deadline=None)
def test_only_what_can_still_match_is_held(words: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops, Texts(words))
    shown = 0
    for token in range(len(words)):
        shown += len(matcher.push(token))
        if matcher.matched is not None:
            return
        held = words[shown : token + 1]
        text = "".join(held)
        possible = any(text.endswith(s[:n]) for s in stops for n in range(1, len(s)))
        assert possible or not text, f"{text!r} cannot become one of {stops}"


@pytest.mark.parametrize(
    ("words", "stops", "shown"),
    [
        (["The", " user", " is", " a"], ["a", "is", ","], ([0, 1, 2], "The user ", "is")),
        (["a\nb", "cd"], ["\n"], ([0], "a", "\n")),
        (["abc"], ["bc", "abc"], ([], "", "abc")),
        (["x", "```py", "thon\n"], ["```"], ([0], "x", "```")),
        (["end"], ["ends"], ([0], "end", None)),
    ],
)
def test_the_string_complete_first_wins(
    words: list[str], stops: list[str], shown: tuple[list[int], str, str | None]
) -> None:
    assert run(words, stops) == shown


def test_a_part_of_a_character_waits_for_the_rest() -> None:
    matcher = StopMatcher(["é!"], Bytes())
    first, second, mark = "é!".encode()
    assert matcher.push(first) == []
    assert matcher.push(second) == []
    assert matcher.push(mark) == []
    assert matcher.matched == "é!"


def test_an_unfinished_character_is_shown_at_the_end() -> None:
    matcher = StopMatcher(["zz"], Bytes())
    assert [p.token_id for p in matcher.push(ord("a"))] == [ord("a")]
    assert matcher.push(0xC3) == []
    rest = matcher.finish()
    assert [(p.token_id, p.text) for p in rest] == [(0xC3, ""), (None, "�")]
