"""The matcher agrees with a search that starts afresh at every symbol, and stays small."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.recipe import marker_match
from ds_jax.recipe.marker_match import CONTROL, LITERAL, MARKER, TEXT, TOKEN, Matcher, Pattern
from tests.recipe.parsing import parse

KINDS = st.sampled_from([TEXT, TOKEN, CONTROL])
SYMBOLS = st.lists(st.tuples(st.sampled_from("ab<"), KINDS), max_size=40)
PATTERNS = st.lists(
    st.tuples(st.text("ab<", min_size=1, max_size=5), st.sampled_from([LITERAL, MARKER])),
    min_size=1,
    max_size=4,
)


def longest_prefix(symbols: list[tuple[str, int]], text: str, kinds: int) -> int:
    """How many symbols at the end are the beginning of a pattern."""
    for length in range(min(len(symbols), len(text)), 0, -1):
        end = symbols[len(symbols) - length :]
        if all(s == t and kind & kinds for (s, kind), t in zip(end, text, strict=False)):
            return length
    return 0


@settings(max_examples=300, deadline=None)
@given(PATTERNS, SYMBOLS)
def test_found_and_held_are_those_of_a_search_from_scratch(patterns, symbols):
    matcher = Matcher([Pattern(text, bytes([kinds]) * len(text)) for text, kinds in patterns])
    for _ in range(2):  # the second time from memory
        node, seen = matcher.start, []
        for symbol, kind in symbols:
            known = node.memory[kind].get(symbol)
            node = matcher.step(node, kind, symbol) if known is None else known
            seen.append((symbol, kind))
            prefixes = [longest_prefix(seen, text, kinds) for text, kinds in patterns]
            lengths = [len(text) for text, _ in patterns]
            complete = [
                i
                for i, pair in enumerate(zip(prefixes, lengths, strict=True))
                if pair[0] == pair[1]
            ]
            assert node.found == (complete[0] if complete else None)
            if complete:
                node, seen = matcher.start, []
            else:
                assert node.hold == max(prefixes)
                assert (node is matcher.root) == (max(prefixes) == 0)


@settings(max_examples=200, deadline=None)
@given(PATTERNS, st.text("ab<x\n", max_size=30))
def test_the_trigger_finds_the_first_symbol_that_leaves_the_root(patterns, text):
    newlines = [
        Pattern(symbols, bytes([kinds]) * len(symbols), True) for symbols, kinds in patterns
    ]
    matcher = Matcher(newlines)
    leaves = [matcher.step(matcher.root, TEXT, symbol) is not matcher.root for symbol in text]
    found = matcher.trigger.search(text)
    limit = len(text) if found is None else found.start()
    assert not any(leaves[:limit])


def test_newlines_before_a_pattern_belong_to_it():
    matcher = Matcher([Pattern("<b", bytes([LITERAL]) * 2, newlines=True)])
    node, begins = matcher.start, []
    for place, symbol in enumerate("a\n\n<b"):
        node = matcher.step(node, TEXT, symbol)
        if node.begins:
            begins.append(place)
    assert (node.found, node.runs, begins) == (0, (0,), [1])


def test_a_first_only_pattern_is_found_at_the_start_only():
    matcher = Matcher([Pattern("\n", bytes([LITERAL]), first_only=True)])
    assert matcher.step(matcher.start, TEXT, "\n").found == 0
    assert matcher.step(matcher.start, TEXT, "x") is matcher.root
    assert matcher.step(matcher.root, TEXT, "\n").found is None


def test_memory_of_steps_is_bounded():
    stop = "ab" * 8000 + "c"
    matcher = Matcher([Pattern(stop, bytes([LITERAL]) * len(stop))])
    node = matcher.start
    for symbol in stop:
        node = matcher.step(node, TEXT, symbol)
        assert len(matcher._nodes) <= marker_match._MAX_NODES
    assert node.found == 0
    assert parse(["x" + "ab" + stop], stop_sequences=[stop]).content == "xab"
