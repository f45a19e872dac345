"""Random context-free grammars: their GBNF text, words, and a recogniser written from the rules."""

from __future__ import annotations

import functools
from typing import Any

from hypothesis import strategies as st

Node = Any
"""("text", str) | ("class", chars) | ("seq", nodes) | ("or", nodes) | ("rep", node, low, high) |
("name", rule)"""
LETTERS = "abc"
NAMES = ("root", "x", "y-z")


def expressions() -> st.SearchStrategy[Node]:
    leaves = st.one_of(
        st.text(LETTERS, max_size=3).map(lambda text: ("text", text)),
        st.sets(st.sampled_from(LETTERS), min_size=1).map(lambda some: ("class", "".join(some))),
        st.sampled_from(NAMES).map(lambda name: ("name", name)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("seq", parts)),
            st.lists(inner, min_size=1, max_size=3).map(lambda parts: ("or", parts)),
            st.tuples(st.just("rep"), inner, st.integers(0, 2), st.sampled_from([None, 2, 3])),
        ),
        max_leaves=6,
    )


def rules() -> st.SearchStrategy[dict[str, Node]]:
    return st.fixed_dictionaries({name: expressions() for name in NAMES})


def spelled(node: Node) -> str:
    match node[0]:
        case "text":
            return f'"{node[1]}"'
        case "class":
            return f"[{node[1]}]"
        case "name":
            return node[1]
        case "seq":
            return "(" + " ".join(map(spelled, node[1])) + ")"
        case "or":
            return "(" + " | ".join(map(spelled, node[1])) + ")"
        case _:
            high = "" if node[3] is None else node[3]
            return f"{spelled(node[1])}{{{node[2]},{high}}}"


def text(grammar: dict[str, Node]) -> str:
    return "\n".join(f"{name} ::= {spelled(body)}" for name, body in grammar.items()) + "\n"


def matches(grammar: dict[str, Node], word: str) -> bool:
    """Least fixed point of (rule, start) to ends: what can be derived, and nothing else."""
    known: dict[tuple[str, int], frozenset[int]] = {
        (name, start): frozenset() for name in grammar for start in range(len(word) + 1)
    }

    def ends(node: Node, start: int) -> frozenset[int]:
        match node[0]:
            case "text":
                fits = word.startswith(node[1], start)
                return frozenset({start + len(node[1])} if fits else ())
            case "class":
                fits = start < len(word) and word[start] in node[1]
                return frozenset({start + 1} if fits else ())
            case "name":
                return known[node[1], start]
            case "seq":
                return functools.reduce(
                    lambda places, part: frozenset(e for p in places for e in ends(part, p)),
                    node[1],
                    frozenset({start}),
                )
            case "or":
                return frozenset(end for part in node[1] for end in ends(part, start))
            case _:
                return repeated(node, start)

    def repeated(node: Node, start: int) -> frozenset[int]:
        _, part, low, high = node
        most = len(word) + 2 if high is None else high
        found: set[int] = set()
        places = frozenset({start})
        for count in range(max(low, most) + 1):
            if low <= count <= max(low, most):
                found |= places
            places = frozenset(end for place in places for end in ends(part, place))
        return frozenset(found)

    while True:
        fresh = {key: ends(grammar[key[0]], key[1]) for key in known}
        if fresh == known:
            return len(word) in known["root", 0]
        known = fresh
