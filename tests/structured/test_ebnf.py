"""GBNF: the language is exactly the rules', however the grammar is cut into lexemes."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from ds_jax import errors, structured
from tests.structured import grammars

WORDS = ["".join(each) for size in range(6) for each in itertools.product("abc", repeat=size)]


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(grammar=grammars.rules(), data=st.data())
def test_random_grammars_accept_exactly_the_words_of_their_rules(grammar, data):
    hypothesis.assume(all(node[3] is None or node[2] <= node[3] for node in _repeats(grammar)))
    try:
        compiled = structured.compile("ebnf", grammars.text(grammar))
    except errors.RequestError as error:
        assert "no text comes out" in str(error)
        assert not any(grammars.matches(grammar, word) for word in WORDS[:121])
        return
    for word in data.draw(st.lists(st.sampled_from(WORDS), min_size=40, max_size=60)):
        assert compiled.accepts(word) == grammars.matches(grammar, word), word


def _repeats(grammar):
    stack = list(grammar.values())
    while stack:
        node = stack.pop()
        if node[0] == "rep":
            yield node
            stack.append(node[1])
        elif node[0] in ("seq", "or"):
            stack += node[1]


@pytest.mark.parametrize(
    ("grammar", "accepted", "refused"),
    [
        # lexemes that would swallow what follows
        ('root ::= [a-z]* "end" ("(" root ")")?', ["end", "friend", "endend", "end(end)"], ["en"]),
        ('root ::= "if (" e ")" | e\ne ::= [a-z]+ ("+" e)?', ["if+b", "iff", "if (a)"], ["if ("]),
        ('root ::= [a-z]+ "." | "i" "x" "!" root?', ["ix!", "ix.", "ix!a."], ["ix", "i!"]),
        # layout, comments, names
        ('# c\nroot ::= a-b # "x"\n  | "z"\na-b ::=\n "q" "r"\r\n', ["qr", "z"], ["q", "a-b"]),
        ('root ::= "\\x41\\u00e9\\U0001F600\\n\\"\\\\"', ['Aé😀\n"\\'], ["A"]),
        ("root ::= [^\\]a-] [\\^x-] [-]", ["b^-", "c--"], ["a^-", "-x-", "]x-"]),
        ("root ::= .{2}", ["ab", "\n😀"], ["a", "abc"]),
        ('root ::= "a"{2,} "b"{,2} "c"{3}', ["aaccc", "aaabbccc"], ["accc", "aabbbccc"]),
        # recursion of every kind, the empty text
        ('root ::= root "a" | ""', ["", "aaa"], ["b"]),
        ('root ::= "(" root ")" root | ""', ["", "(())()"], ["(", "())"]),
        ('root ::= (("a"?)*)* "b" root?', ["b", "aab", "bab"], ["a"]),
        ('root ::= ""', [""], ["a"]),
    ],
)
def test_hand_written_grammars(grammar, accepted, refused):
    compiled = structured.compile("ebnf", grammar)
    assert [text for text in accepted if not compiled.accepts(text)] == []
    assert [text for text in refused if compiled.accepts(text)] == []


def test_no_output_can_walk_into_a_rule_without_an_end():
    compiled = structured.compile("ebnf", 'root ::= "a" | "b" dead\ndead ::= "x" dead\n')
    assert compiled.accepts("a")
    assert compiled.matcher().count_valid([ord("b")]) == 0


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ("", "no rule 'root'"),
        ('start ::= "a"', "no rule 'root'"),
        ('root ::= "a\n', "line 1, column 10"),
        ("root ::= [a-z\n", "line 1, column 10: this class does not end"),
        ('root ::= ("a" | "b"\n', "line 1, column 10: this '('"),
        ('root ::= "a")', "line 1, column 13"),
        ('root ::= "a"{3,1}', "line 1, column 13"),
        ('root ::= "a"{}', "a repeat is written"),
        ("root ::= []", "no character"),
        ("root ::= [z-a]", "from a lower to a higher"),
        ('root ::= "\\q"', "unknown escape"),
        ('root ::= "\\uD800"', "is no character"),
        ("root ::= x\n", "line 1, column 10: the rule 'x' is not defined"),
        ('root ::= "a"\nroot ::= "b"\n', "line 2, column 1: the rule 'root' is defined twice"),
        ("root ::= root", "no text comes out"),
        ('root ::= "a" root', "no text comes out"),
        ('root ::= "a"*********', "repeats of one part"),
        ("root ::= " + "(" * 200, "nested deeper"),
        ('root ::= "a"{99999999999}', "more than any output holds"),
        ("* ::= ", "must start here"),
    ],
)
def test_broken_grammars_are_refused_with_reason_and_place(grammar, reason):
    with pytest.raises(errors.RequestError, match="ebnf") as caught:
        structured.compile("ebnf", grammar)
    assert reason in str(caught.value)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= r0\n"
        + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(200))
        + 'r200 ::= "a"\n',
        "root ::= r0\n"
        + "".join(f"r{i} ::= r{i + 1}\n" for i in range(3000))
        + 'r3000 ::= "a" root?\n',
        "root ::= " + " | ".join(f'"{i}" root' for i in range(2000)) + ' | "x"\n',
        "root ::= " + '"a"? ' * 3000 + "root?\n",
        'root ::= ("a"{1,2147483647} root?)? "b"\n',
        "root ::= ((([a-z]{1,1000}){1,1000}){1,1000}){1,1000} root?\n",
    ],
    ids=["doubling", "chain", "wide", "optional", "repeat", "nested repeats"],
)
def test_large_grammars_compile_or_are_refused_in_bounded_time(grammar, bounded):
    with bounded(seconds=20):
        try:
            structured.compile("ebnf", grammar)
        except errors.RequestError as error:
            assert str(error)
