"""State of a matcher: rollback, fork and replay give the same masks; masks agree with accepts."""

from __future__ import annotations

import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from ds_jax import structured
from ds_jax.structured.limits import Limits
from ds_jax.structured.masks import Filler, Job, bucket_sizes
from ds_jax.structured.matcher import GrammarFault, Matcher
from ds_jax.structured.trigger import Trigger

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"enum": ["a", "ab", "<think>"]}},
        "size": {"type": ["integer", "null"]},
    },
    "required": ["name"],
}
SOURCES = (
    ("json_schema", json.dumps(SCHEMA), {}),
    ("json_schema", json.dumps(SCHEMA), {"forced": False}),
    ("json_object", "", {}),
    ("regex", "(?:[a-z]+ ){0,3}end|日本.{2}", {}),
    ("ebnf", 'root ::= "(" root ")" root | [a-z]{0,3}', {}),
    ("tool_calls", json.dumps([{"name": "f", "strict": True, "parameters": SCHEMA}]), {}),
)


def row(matcher: Matcher) -> bytes:
    out = np.zeros(matcher.vocabulary.words, np.int32)
    matcher.fill_row(out)
    return out.tobytes()


def ids(mask: bytes) -> list[int]:
    bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def pick(data: st.DataObject, matcher: Matcher) -> int:
    """A token the mask allows; short ones and the end token often."""
    some = ids(row(matcher))
    return some[data.draw(st.one_of(st.integers(0, 9), st.integers(0, 10**6))) % len(some)]


def think(tiny) -> int:
    return tiny.tokenizer.find_control("</think>")


@pytest.fixture(scope="module")
def compiled(tiny):
    return [structured.compile(kind, text, tiny, **opts) for kind, text, opts in SOURCES]


@hypothesis.settings(max_examples=120, deadline=None)
@hypothesis.given(data=st.data())
def test_rollback_fork_and_replay_give_the_same_masks(data, compiled, tiny):
    grammar = data.draw(st.sampled_from(compiled))
    end = think(tiny)
    trigger = data.draw(
        st.sampled_from([None, Trigger((end,)), Trigger((end, 5, end, 6), bound_token_id=7)])
    )
    matcher = grammar.matcher(trigger)
    taken: list[int] = []
    masks = [row(matcher)]
    for _ in range(data.draw(st.integers(0, 30))):
        if matcher.has_ended:
            break
        move = data.draw(st.sampled_from(["take", "take", "trigger", "back", "fork", "refuse"]))
        if move == "back":
            count = data.draw(st.integers(0, len(taken)))
            matcher.rollback(count)
            del taken[len(taken) - count :], masks[len(masks) - count :]
        elif move == "fork":
            other, matcher = matcher, matcher.fork()
            if not other.has_ended:
                other.accept(pick(data, other))
        elif move == "refuse":
            token = data.draw(st.integers(-3, tiny.size + 3))
            if matcher.count_valid([token]) == 0:
                with pytest.raises(GrammarFault, match="not allowed"):
                    matcher.accept(token)
        else:
            token = pick(data, matcher)
            if move == "trigger" and trigger is not None and matcher.is_waiting:
                token = trigger.token_ids[len(taken) % len(trigger.token_ids)]
                if matcher.count_valid([token]) == 0:
                    continue
            matcher.accept(token)
            taken.append(token)
            masks.append(row(matcher))
        assert matcher.length == len(taken)
        assert row(matcher) == masks[-1]
    replayed = grammar.matcher(trigger, taken)
    assert row(replayed) == masks[-1]
    assert (replayed.is_accepting, replayed.has_ended, replayed.is_waiting) == (
        *(matcher.is_accepting, matcher.has_ended, matcher.is_waiting),
    )


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_masks_agree_with_what_is_accepted(data, compiled, tiny):
    grammar = data.draw(st.sampled_from(compiled))
    matcher = grammar.matcher()
    for _ in range(data.draw(st.integers(0, 12))):
        if matcher.has_ended:
            break
        matcher.accept(pick(data, matcher))
    if matcher.has_ended:
        assert ids(row(matcher)) == [tiny.eos_id]
        return
    some = set(ids(row(matcher)))
    forced = matcher.forced_tokens()
    assert (tiny.eos_id in some) == matcher.is_accepting
    for token in range(tiny.size):
        if token in some:
            assert matcher.count_valid([token]) == 1, token
        elif not forced and token != 0xFF:
            assert matcher.count_valid([token]) == 0, token
    for token in forced:
        assert ids(row(matcher)) == [token]
        matcher.accept(token)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(data=st.data())
def test_rows_of_a_batch_are_those_of_each_sequence(data, compiled, tiny):
    """Drafts with wrong, end and control tokens, triggers inside the window: both ways agree."""
    filler = Filler(tiny, bucket_sizes(64), 100, threads=data.draw(st.sampled_from([1, 2])))
    end = think(tiny)
    jobs = []
    for number in range(data.draw(st.integers(0, 4))):
        trigger = data.draw(st.sampled_from([None, Trigger((end,)), Trigger((end,), None, False)]))
        matcher = data.draw(st.sampled_from(compiled)).matcher(trigger)
        walker = matcher.fork()
        tokens: list[int] = []
        for _ in range(data.draw(st.integers(0, 14))):
            if walker.has_ended:
                tokens.append(tiny.eos_id)
                continue
            special = st.sampled_from([end, tiny.eos_id, 3, -1, tiny.size])
            choice = data.draw(st.one_of(st.none(), st.none(), st.none(), special))
            token = pick(data, walker) if choice is None else choice
            tokens.append(token)
            walker.accept_while_valid([token])
        cut = data.draw(st.integers(0, len(tokens)))
        matcher.accept_while_valid(tokens[:cut])
        drafts = tokens[cut : cut + 6]
        jobs.append(Job(matcher, drafts, 10 * number))
    filled = filler.fill(jobs)
    expected: dict[int, bytes] = {}
    for number, job in enumerate(jobs):
        rows = np.zeros((1 + len(job.draft_ids), tiny.words), np.int32)
        assert job.matcher.fill_rows(job.draft_ids, rows) == filled.valid[number]
        free = job.matcher.fork()
        for offset, mask in enumerate(rows):
            if offset and offset <= filled.valid[number]:
                free.accept(job.draft_ids[offset - 1])
            if offset > filled.valid[number] or free.needs_row:
                expected[job.first_row + offset] = mask.tobytes()
    assert filled.faults == {}
    assert len(filled.rows) in bucket_sizes(64)
    found = {
        int(target): mask.tobytes()
        for target, mask in zip(filled.targets, filled.rows, strict=True)
        if target < 100
    }
    assert found == expected
    assert (filled.rows[len(expected) :] == -1).all()


def test_the_end_token_can_be_taken_back(tiny):
    """Also where nothing else could follow, which the parser does not count."""
    for text, prefix in (("[a-z]{2}", "ab"), ("[a-z]+", "ab")):
        matcher = structured.compile("regex", text, tiny).matcher(committed=tiny.encode(prefix))
        mask = row(matcher)
        matcher.accept(tiny.eos_id)
        assert matcher.has_ended and matcher.is_finished
        assert matcher.count_valid([tiny.eos_id]) == 0
        assert ids(row(matcher)) == [tiny.eos_id]
        matcher.rollback(1)
        assert row(matcher) == mask
        matcher.rollback(len(tiny.encode(prefix)))
        assert matcher.length == 0 and matcher.count_valid(tiny.encode(prefix)) > 0


def test_the_grammar_starts_behind_the_reasoning_inside_the_window(tiny):
    end = think(tiny)
    matcher = structured.compile("regex", "yes|no", tiny).matcher(Trigger((end,)))
    free = tiny.encode("so")
    assert matcher.count_valid([tiny.eos_id]) == 0  # an answer has to come
    drafts = [*free, end, *tiny.encode("no"), tiny.eos_id, tiny.eos_id]
    rows = np.zeros((1 + len(drafts), tiny.words), np.int32)
    assert matcher.fill_rows(drafts, rows) == len(drafts) - 1
    assert matcher.is_waiting and matcher.length == 0
    inside = ids(rows[len(free) + 1].tobytes())
    assert inside == ids(row(structured.compile("regex", "yes|no", tiny).matcher()))
    assert ids(rows[-1].tobytes()) == [tiny.eos_id]


def test_after_the_bound_only_the_trigger_may_follow(tiny):
    trigger = Trigger((5, 6, 5, 7), bound_token_id=9, holds_end=False)
    matcher = structured.compile("regex", "a+", tiny).matcher(trigger)
    assert not matcher.needs_row
    matcher.accept_while_valid([1000, 5, 6, 9])
    assert matcher.needs_row
    assert ids(row(matcher)) == [5]
    assert matcher.forced_tokens() == [5, 6, 5, 7]
    assert matcher.count_valid([5, 6, 5, 6]) == 3
    matcher.accept_while_valid([5, 6, 5, 7])
    assert not matcher.is_waiting
    assert matcher.count_valid(tiny.encode("aa")) > 0


@pytest.mark.parametrize("ids_", [(1, 1, 2), (1, 2, 1, 2, 1), (1, 1, 1), (1, 2, 1, 1, 2, 1, 3)])
def test_trigger_is_found_wherever_it_stands(ids_):
    trigger = Trigger(ids_)
    rng = np.random.default_rng(0)
    for _ in range(200):
        stream = rng.integers(1, 4, 40).tolist()
        where = next(
            (i for i in range(len(stream)) if tuple(stream[i - len(ids_) + 1 : i + 1]) == ids_
             and i >= len(ids_) - 1),
            None,
        )  # fmt: skip
        matched, found = 0, None
        for index, token in enumerate(stream):
            matched = trigger.advance(matched, token)
            if matched == len(ids_):
                found = index
                break
        assert found == where


def test_forced_text_is_told_in_the_usual_tokens(tiny):
    matcher = structured.compile("json_schema", '{"const": "<think>hello world"}', tiny).matcher()
    forced = matcher.forced_tokens()
    assert forced == tiny.encode('"<think>hello world"')
    assert not set(forced) & set(tiny.tokenizer.control_ids)
    matcher.accept_while_valid(forced)
    assert matcher.is_finished and matcher.forced_tokens() == []


def test_a_parser_limit_ends_only_its_sequence(tiny):
    few = Limits(row_items=40)
    bad = structured.compile("ebnf", 'root ::= s\ns ::= s s | "x"', tiny, limits=few).matcher()
    good = structured.compile("regex", "[a-z]+", tiny).matcher()
    with pytest.raises(GrammarFault, match="parser stopped"):
        for _ in range(300):
            row(bad)
            bad.accept(tiny.encode("x")[0])
    for threads in (1, 2):
        filler = Filler(tiny, bucket_sizes(8), num_logits=4, threads=threads)
        filled = filler.fill([Job(bad, [], 0), Job(good, [], 1)])
        assert list(filled.faults) == [0]
        assert ids(filled.rows[0].tobytes()) == [tiny.eos_id]
        assert len(ids(filled.rows[1].tobytes())) > 26


def test_a_draft_that_leads_to_a_parser_limit_is_cut(tiny):
    """Nobody has drawn it yet: the sequence goes on."""
    few = Limits(row_items=40)
    grammar = structured.compile("ebnf", 'root ::= s\ns ::= s s | "x"', tiny, limits=few)
    drafts = [tiny.encode("x")[0]] * 300
    rows = np.zeros((301, tiny.words), np.int32)
    matcher = grammar.matcher()
    count = matcher.fill_rows(drafts, rows)
    assert 0 < count < 300 and ids(rows[-1].tobytes()) == [tiny.eos_id]
    for each in rows[:count]:
        assert row(matcher) == each.tobytes()
        matcher.accept(drafts[0])
    assert row(matcher) == rows[count].tobytes()
    with pytest.raises(GrammarFault, match="parser stopped"):
        matcher.accept(drafts[0])


def test_rows_of_ranks_stand_apart(tiny):
    grammar = structured.compile("regex", "[a-z]+", tiny)
    waiting = grammar.matcher(Trigger((tiny.encode("x")[0],), holds_end=False))
    filler = Filler(tiny, bucket_sizes(8, first=2), num_logits=50, ranks=3)
    inside = grammar.matcher()
    jobs = [
        Job(inside, [], 7, rank=2),
        Job(waiting, [], 1, rank=2),
        Job(inside, [], 4, rank=0),
        Job(waiting, [], 0, rank=1, always=True),
    ]
    filled = filler.fill(jobs)
    assert filled.rows.shape == (6, tiny.words)
    assert filled.targets.tolist() == [4, 50, 0, 50, 7, 50]
    assert filled.owners == {0: 2, 2: 3, 4: 0}
    assert (filled.rows[[1, 2, 3, 5]] == -1).all()
    assert (filled.rows[0] == filled.rows[4]).all() and (filled.rows[0] != -1).any()


def test_a_block_holds_the_rows_of_a_sequence(tiny):
    grammar = structured.compile("regex", "[a-z]+", tiny)
    x, y = tiny.encode("x")[0], tiny.encode("0")[0]
    trigger = Trigger((x,), holds_end=False)
    filler = Filler(tiny, bucket_sizes(8, first=2), num_logits=50, ranks=2)
    jobs = [
        Job(grammar.matcher(), [x, y, x], 5, rank=1),
        Job(grammar.matcher(trigger), [y, y, y], 1, rank=1),  # nothing of it is constrained
        Job(grammar.matcher(trigger), [y, x, x], 2, rank=0),
        Job(grammar.matcher(), [], 3, rank=0),
    ]
    blocks = filler.fill_blocks(jobs, 4)
    assert blocks.places.tolist() == [2, 3, 5, 50]
    assert blocks.owners == {0: 2, 1: 3, 2: 0} and blocks.valid == (1, 3, 3, 0)
    held = blocks.rows.reshape(4, 4, -1)
    first = row(grammar.matcher())
    assert held[2, 0].tobytes() == held[1, 0].tobytes() == held[0, 2].tobytes() == first
    assert ids(held[2, 2].tobytes()) == [tiny.eos_id]  # behind the cut
    assert (held[0, :2] == -1).all() and (held[1, 1:] == -1).all() and (held[3] == -1).all()


def test_bucket_sizes_grow_to_the_largest_step():
    assert bucket_sizes(48) == (0, 8, 32, 48)
    assert bucket_sizes(5) == (0, 5)
    assert bucket_sizes(0) == (0,)
