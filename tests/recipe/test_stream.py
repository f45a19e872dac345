"""A stream starts, ends and fails once; ids and text may be mixed; usage counts what was read."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

import ds_jax
from ds_jax import recipe
from ds_jax.recipe import marker_match
from ds_jax.recipe.deltas import CallStart, ContentDelta, Finished, ReasoningDelta, TokenLogprob
from ds_jax.recipe.detokenize import TokenPieces
from ds_jax.recipe.inference import InferenceChunk, InferenceFinishReason, PromptUsage
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.special_tokens import SpecialTokens
from ds_jax.recipe.stream import StreamProcessor
from tests.recipe import golden_cases
from tests.recipe.parsing import (
    END,
    START,
    V4,
    V41,
    Recorder,
    block,
    cuts,
    deltas,
    parse,
    processor,
    tokenizer,
)

# Its vocabulary has tokens that end in newlines.
TINY = pathlib.Path(next(iter(ds_jax.__path__))) / "assets" / "tiny" / "tokenizer.json"
# Ids of the recorded tokenizer: three bytes of "｜", a control token, one outside the vocabulary.
FIRST, SECOND, THIRD = 171, 121, 250
USER = 504
UNKNOWN = 9999
A, B, LESS, SLASH, NEWLINE = 64, 65, 27, 14, 198


def texts(made: list[Any]) -> list[str]:
    return [delta.text for delta in made if not isinstance(delta, Finished)]


def num_tokens(made: list[Any]) -> int:
    return made[-1].completion_tokens


@pytest.mark.parametrize("form", [V4, V41], ids=["v4", "v41"])
def test_ids_give_the_same_at_every_cut(form: str):
    output = f"hé😀.\n\n{END}\nSure.\n\n{block(form, ('f', [('k', 'true', 'ü ｜ 2>&1')]))}"
    ids = tokenizer().encode(output)
    for chunks in cuts(ids):
        parsed = parse(chunks, with_tokenizer=True, thinking_initial_stage=START)
        assert (parsed.reasoning, parsed.content) == ("hé😀.", "Sure.")
        assert parsed.calls == (("f", '{"k": "ü ｜ 2>&1"}'),)
        end = parsed.finished
        assert (end.reason, end.completion_tokens) == ("tool_calls", len(ids))
        assert end.reasoning_tokens == len(tokenizer().encode("hé😀."))


def test_all_tokens_spent_on_reasoning_are_reasoning_tokens():
    ids = tokenizer().encode("step one, step two")
    for chunks in cuts(ids):
        chunks = [*chunks, InferenceFinishReason.Length]
        parsed = parse(chunks, with_tokenizer=True, thinking_initial_stage=START)
        assert parsed.finished == Finished("length", None, len(ids), len(ids))
        assert parsed.content == ""


def test_reasoning_tokens_are_known_with_a_tokenizer_and_a_stage_only():
    for with_tokenizer, stage, count in (
        (True, START, 1),
        (True, ThinkingInitialStage.ContentContinuation, 0),
        (True, None, None),
        (False, START, None),
    ):
        made = deltas(["a", END], with_tokenizer=with_tokenizer, thinking_initial_stage=stage)
        assert made[-1].reasoning_tokens == count


def test_a_marker_spelled_by_ordinary_ids_is_text():
    spelled = tokenizer().encode_text(END)
    assert texts(deltas([spelled, "b"], with_tokenizer=True)) == [END, "b"]
    assert parse([[A, LESS, SLASH], "think>", [B]], with_tokenizer=True).content == "a</think>b"
    assert parse(["a</th", spelled[-1:], "b"], with_tokenizer=True).content == "a</th>b"


def test_a_marker_spelled_in_text_works_beside_a_tokenizer():
    for chunks in cuts("a</think>b"):
        assert parse(chunks, with_tokenizer=True).content == "ab"


def test_the_literal_parts_of_tags_may_come_from_ids_and_text():
    dsml = tokenizer().encode("｜DSML｜")
    for chunks in (["a<", dsml, "x"], [[A, LESS], dsml, "x"], [[A, LESS], "｜DSML｜", "x"]):
        assert parse(chunks, with_tokenizer=True).content == "a"


def test_newlines_of_any_origin_before_a_marker_are_dropped():
    chunks = ["a", [NEWLINE], "\n", tokenizer().encode(END), "b"]
    parsed = parse(chunks, with_tokenizer=True, thinking_initial_stage=START)
    assert (parsed.reasoning, parsed.content) == ("a", "b")


@pytest.mark.parametrize("form", [V4, V41], ids=["v4", "v41"])
def test_newlines_in_the_token_of_a_full_stop_before_a_block_are_dropped(form: str):
    merged = recipe.Tokenizer.from_file(TINY)
    sizes = range(merged.vocab_size)
    stop = next(i for i in sizes if merged.token_bytes(i) == b".\n\n")
    ids = [*merged.encode("Done"), stop, *merged.encode(block(form, ("f", [])))]
    for chunks in cuts(ids):
        stream = StreamProcessor(Recorder(), ParsingOptions(), merged)
        made = [one for chunk in chunks for one in stream.push(InferenceChunk.tokens(chunk))]
        made += stream.push(InferenceChunk.finish(InferenceFinishReason.Stop))
        assert "".join(one.text for one in made if isinstance(one, ContentDelta)) == "Done."
        assert [one.name for one in made if isinstance(one, CallStart)] == ["f"]


def test_other_control_tokens_are_shown_and_match_no_stop_string():
    chunks = [[A, USER, B]]
    for stop in ("<｜User｜>", "User", "a<", ">b"):
        made = deltas(chunks, with_tokenizer=True, stop_sequences=[stop])
        assert texts(made) == ["a", "<｜User｜>", "b"]
    assert parse(chunks, with_tokenizer=True, stop_sequences=["ab"]).content == "a<｜User｜>b"


def test_a_stop_string_may_span_ids_and_ends_the_chunk_it_is_in():
    ids = tokenizer().encode("xSTOPy")
    for chunks in cuts(ids):
        parsed = parse(chunks, with_tokenizer=True, stop_sequences=["STOP"])
        assert (parsed.content, parsed.finished.stop_sequence) == ("x", "STOP")
    made = deltas([[A, USER, A, B, USER, A]], with_tokenizer=True, stop_sequences=["b"])
    assert texts(made) == ["a", "<｜User｜>", "a"]
    assert num_tokens(made) == 4


def test_an_incomplete_character_is_held_with_its_run():
    made = deltas([[A, FIRST], [SECOND], [THIRD, A]], with_tokenizer=True)
    assert (texts(made), num_tokens(made)) == (["a｜a"], 5)


def test_an_incomplete_character_is_flushed_before_a_control_token():
    made = deltas([[FIRST], [USER, A]], with_tokenizer=True)
    assert texts(made) == ["\ufffd", "<｜User｜>", "a"]


def test_an_incomplete_character_survives_text():
    made = deltas([[FIRST], "x", [SECOND, THIRD]], with_tokenizer=True)
    assert (texts(made), num_tokens(made)) == (["x", "｜"], 4)


def test_an_incomplete_character_is_dropped_at_the_end():
    made = deltas([[A], [B, FIRST]], with_tokenizer=True)
    assert (texts(made), num_tokens(made)) == (["a"], 1)


def test_ids_outside_the_vocabulary_have_no_text_but_count():
    assert texts(deltas([[UNKNOWN], [A]], with_tokenizer=True)) == ["a"]
    made = deltas([[A], [UNKNOWN], [USER], [UNKNOWN, USER]], with_tokenizer=True)
    assert (texts(made), num_tokens(made)) == (["a", "<｜User｜>", "<｜User｜>"], 5)


def test_pieces_are_whole_characters_however_ids_are_cut():
    ids = tokenizer().encode("a｜😀é\ufffd")
    for chunks in cuts([*ids, A]):
        pieces = TokenPieces(tokenizer())
        made = [piece for chunk in chunks for piece in pieces.push(chunk, None)]
        assert "".join(text for text, _, _, _ in made) == "a｜😀é\ufffda"
        assert {kind for _, kind, _, _ in made} == {marker_match.TOKEN}
        assert sum(number for _, _, number, _ in made) == len(ids) + 1


def logprob(text: str, value: float, *top: TokenLogprob) -> TokenLogprob:
    return TokenLogprob(text, value, tuple(text.encode()), top)


def test_each_delta_has_the_log_probabilities_of_its_whole_piece():
    chunk = ([A, NEWLINE, LESS, 502, B], [(-value, []) for value in (1.0, 2.0, 3.0, 4.0, 5.0)])
    made = deltas([chunk], with_tokenizer=True, thinking_initial_stage=START)
    run = (logprob("a", -1.0), logprob("\n", -2.0), logprob("<", -3.0))
    assert made[:-1] == [
        ReasoningDelta("a\n<", run),
        ContentDelta("b", (logprob("b", -5.0),)),
    ]


def test_log_probabilities_end_with_the_chunk_that_a_stop_string_ends():
    ids = tokenizer().encode("xSTOPy")
    alternatives = [(A, -5.0), (B, -6.0)]
    for chunks in cuts(ids):
        given = [(chunk, [(-1.0, alternatives)] * len(chunk)) for chunk in chunks]
        made = deltas(given, with_tokenizer=True, stop_sequences=["STOP"])
        told = "".join(entry.token for delta in made[:-1] for entry in delta.logprobs)
        read = tokenizer().decode(ids[: num_tokens(made)])
        assert "".join(texts(made)) == "x"
        assert read.startswith(told) and read.rstrip("y") == "xSTOP"
        if all(len(chunk) <= 1 for chunk in chunks):
            assert (told, read) == ("x", "xSTOP")


def test_log_probabilities_of_alternatives_and_broken_characters():
    top = [(A, -1.5), (UNKNOWN, -2.0), (FIRST, -3.0), (502, float("-inf"))]
    made = deltas([([A, FIRST, B], [(0.5, top), (1, []), (2.0, [])])], with_tokenizer=True)
    [delta, _] = made
    first, broken, last = delta.logprobs
    assert first == logprob(
        "a",
        0.5,
        logprob("a", -1.5),
        logprob("", -2.0),
        TokenLogprob("\\xef", -3.0, (0xEF,)),
        logprob(END, float("-inf")),
    )
    assert broken == TokenLogprob("\\xef", 1.0, (0xEF,))
    assert last == logprob("b", 2.0)


def test_a_run_of_chunks_has_log_probabilities_if_all_have():
    for first, second in (([(-1.0, [])], None), (None, [(-1.0, []), (-2.0, [])])):
        chunks = [([FIRST], first), ([SECOND, THIRD], second)]
        assert deltas(chunks, with_tokenizer=True)[0] == ContentDelta("｜", None)
    chunks = [([FIRST], [(-1.0, [])]), ([SECOND, THIRD], [(-2.0, []), (-3.0, [])])]
    [delta, _] = deltas(chunks, with_tokenizer=True)
    assert [entry.logprob for entry in delta.logprobs] == [-1.0, -2.0, -3.0]


class Told(Recorder):
    """Also gives back how the stream started."""

    def _start(self, prompt_usage: PromptUsage, system_fingerprint: str | None) -> list[Any]:
        return [(prompt_usage.prompt_tokens, system_fingerprint)]


def test_the_first_update_starts_the_stream():
    usage = InferenceChunk.ready(prompt_usage=PromptUsage(prompt_tokens=5), system_fingerprint="fp")
    silent = [InferenceChunk.tokens([]), InferenceChunk.tokens([FIRST])]
    for before, first, start in (
        ([], usage, (5, "fp")),
        (silent, usage, (5, "fp")),
        ([], InferenceChunk.text(""), (0, None)),
        (silent, InferenceChunk.tokens([USER]), (0, None)),
        ([], InferenceChunk.finish(InferenceFinishReason.Stop), (0, None)),
    ):
        stream = StreamProcessor(Told(), ParsingOptions(), tokenizer())
        assert [stream.push(chunk) for chunk in before] == [[] for _ in before]
        assert stream.push(first)[0] == start
        if not stream.finished:
            assert stream.push(usage) == []
    assert StreamProcessor(Told(), ParsingOptions()).finish()[0] == (0, None)


def test_a_finished_stream_takes_no_more():
    stream = processor()
    assert not stream.finished
    assert stream.push(InferenceChunk.text("a<", 2)) == []
    assert stream.finish() == [ContentDelta("a<"), Finished("stop", None, 2, None)]
    assert stream.finished
    assert stream.finish() == []
    with pytest.raises(RuntimeError, match="stream processor has finished"):
        stream.push(InferenceChunk.text("b"))
    stream.close()
    assert not stream.finished


def test_finish_without_a_reason_is_stop_even_after_calls():
    stream = processor()
    stream.push(InferenceChunk.text(block(V41, ("f", []))))
    assert stream.finish() == [Finished("stop", None, 0, None)]


def test_a_call_that_only_the_end_completes_is_not_yet_a_reason():
    made = deltas(['<｜DSML｜invoke name="f"<'])
    assert [type(delta).__name__ for delta in made] == ["CallStart", "Finished"]
    assert made[-1].reason == "stop"


def test_a_closed_stream_takes_no_more():
    stream = processor()
    stream.close()
    stream.close()
    assert not stream.finished
    for use in (stream.finish, lambda: stream.push(InferenceChunk.text("a"))):
        with pytest.raises(RuntimeError, match="stream processor is closed"):
            use()


@pytest.mark.parametrize(
    ("with_tokenizer", "chunk", "message"),
    [
        (False, InferenceChunk.tokens([1]), "token chunk received without a tokenizer"),
        (
            True,
            InferenceChunk.tokens([1, 2], [(0.0, [])]),
            "invalid log probabilities: 1 log probabilities for 2 token IDs",
        ),
    ],
)
def test_a_stream_error_closes_the_stream(with_tokenizer: bool, chunk: Any, message: str):
    stream = processor(with_tokenizer=with_tokenizer)
    with pytest.raises(RuntimeError, match=message):
        stream.push(chunk)
    with pytest.raises(RuntimeError, match="stream processor is closed"):
        stream.push(InferenceChunk.text("a"))


def test_a_processor_uses_up_its_generator_and_copies_its_options():
    generator, options = Recorder(), ParsingOptions(stop_sequences=["x"])
    stream = StreamProcessor(generator, options)
    options.stop_sequences = ["y"]
    assert stream.push(InferenceChunk.text("axb"))[0] == ContentDelta("a")
    with pytest.raises(RuntimeError, match="chunk generator has been consumed"):
        StreamProcessor(generator, options)
    fresh = Recorder()
    for arguments in ((1, options), (fresh, 1), (fresh, options, 1)):
        with pytest.raises(TypeError):
            StreamProcessor(*arguments)  # type: ignore[arg-type]
    StreamProcessor(fresh, options)
    with pytest.raises(TypeError, match="'int' object cannot be cast as 'InferenceChunk'"):
        processor().push(1)


def test_chunks_say_what_they_hold():
    ready, text = InferenceChunk.ready(), InferenceChunk.text("x", 2)
    tokens = InferenceChunk.tokens((1, 2), [(0, ()), (-1.5, [(3, -2)])])
    finish = InferenceChunk.finish(InferenceFinishReason.Length)
    kinds = [chunk.kind for chunk in (ready, text, tokens, finish)]
    assert kinds == ["ready", "text", "tokens", "finish"]
    assert (text.content, text.token_count, text.token_ids) == ("x", 2, None)
    assert (tokens.token_ids, tokens.content, tokens.token_count) == ([1, 2], None, None)
    assert (finish.finish_reason, finish.prompt_usage) == (InferenceFinishReason.Length, None)
    assert (ready.prompt_usage, ready.system_fingerprint) == (PromptUsage(), None)
    assert repr(InferenceFinishReason.Stop) == "InferenceFinishReason.Stop"


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: InferenceChunk(), TypeError),  # type: ignore[call-arg]
        (lambda: InferenceChunk.text(1), TypeError),  # type: ignore[arg-type]
        (lambda: InferenceChunk.text("\ud800"), UnicodeEncodeError),
        (lambda: InferenceChunk.text("x", -1), OverflowError),
        (lambda: InferenceChunk.text("x", 2**64), OverflowError),
        (lambda: InferenceChunk.text("x", 1.5), TypeError),  # type: ignore[arg-type]
        (lambda: InferenceChunk.tokens("ab"), TypeError),  # type: ignore[arg-type]
        (lambda: InferenceChunk.tokens([-1]), OverflowError),
        (lambda: InferenceChunk.tokens([2**32]), OverflowError),
        (lambda: InferenceChunk.tokens([1.0]), TypeError),  # type: ignore[list-item]
        (lambda: InferenceChunk.tokens({1}), TypeError),  # type: ignore[arg-type]
        (lambda: InferenceChunk.tokens([1], [[0.5, []]]), TypeError),  # type: ignore[list-item]
        (lambda: InferenceChunk.tokens([1], [(0.5,)]), ValueError),  # type: ignore[list-item]
        (lambda: InferenceChunk.tokens([1], [("x", [])]), TypeError),  # type: ignore[list-item]
        (lambda: InferenceChunk.tokens([1], [(10**400, [])]), OverflowError),
        (lambda: InferenceChunk.finish(0), TypeError),  # type: ignore[arg-type]
        (lambda: InferenceChunk.ready(prompt_usage=1), TypeError),  # type: ignore[arg-type]
        (lambda: PromptUsage(prompt_tokens=-1), OverflowError),
        (lambda: PromptUsage(prompt_tokens="1"), TypeError),  # type: ignore[arg-type]
    ],
)
def test_what_chunks_refuse(make: Any, error: type[Exception]):
    with pytest.raises(error):
        make()


# What random comparison with the library found; each was once different here.


def test_a_newline_that_breaks_off_a_marker_belongs_to_the_text():
    for chunks in cuts("<\n</think>"):
        assert parse(chunks, thinking_initial_stage=START).reasoning == "<\n"
    assert parse(["<\n\n</think>"], thinking_initial_stage=START).reasoning == "<\n"


def test_an_empty_piece_after_a_json_bracket_says_nothing():
    made = deltas(["``", "{", "", "}"], parse_json_output=True)
    assert texts(made) == [" ", "{", "}"]


def test_an_empty_piece_repeats_the_action_before_it():
    made = deltas(["", "a", "", "</", "", "x", ""])
    assert texts(made) == ["", "a", "", "</", "", "x", ""]
    made = deltas(["", "\n", "", "a\n", "", END, "", "b"], thinking_initial_stage=START)
    assert [(type(delta), delta.text) for delta in made[:-1]] == [
        (ReasoningDelta, "a"),
        (ContentDelta, "b"),
    ]


def test_a_marker_may_be_a_part_of_a_control_token():
    for marker, content in (
        ("</", "athink>b"),
        ("think", "a</>b"),
        (END, "ab"),
        ("x</", f"a{END}b"),
    ):
        spellings = SpecialTokens(thinking_end=marker)
        parsed = parse([[A], [502], [B]], with_tokenizer=True, special_tokens=spellings)
        assert parsed.content == content


def test_ids_without_text_belong_to_the_control_token_after_them():
    chunk = ([UNKNOWN, USER], [(-1.0, []), (-2.0, [])])
    made = deltas([[UNKNOWN], chunk], with_tokenizer=True)
    assert made[:-1] == [ContentDelta("<｜User｜>", None)]
    made = deltas([chunk, [B]], with_tokenizer=True, stop_sequences=["b"])
    logprobs = (TokenLogprob("", -1.0, ()), logprob("<｜User｜>", -2.0))
    assert made[0] == ContentDelta("<｜User｜>", logprobs)
    assert num_tokens(made) == 3


def test_a_token_outside_the_byte_alphabet_is_its_own_text():
    vocabulary = json.loads((golden_cases.GOLDEN / "tokenizer_514.json").read_text("utf-8"))
    entries = vocabulary["model"]["vocab"]
    entries["é 中"] = entries.pop("!")
    odd = recipe.Tokenizer.from_str(json.dumps(vocabulary))
    stream = StreamProcessor(Recorder(), ParsingOptions(), odd)
    ids = [A, entries["é 中"], B]
    assert stream.push(InferenceChunk.tokens(ids)) == [ContentDelta("aé 中b")]


def test_ids_of_control_tokens_are_those_in_use():
    vocabulary = json.loads((golden_cases.GOLDEN / "tokenizer_514.json").read_text("utf-8"))
    for token in vocabulary["added_tokens"]:
        token["id"] += 100
    odd = recipe.Tokenizer.from_str(json.dumps(vocabulary))
    stream = StreamProcessor(Recorder(), ParsingOptions(), odd)
    assert stream.push(InferenceChunk.tokens([A, USER])) == [
        ContentDelta("a"),
        ContentDelta("<｜User｜>"),
    ]


def test_an_empty_marker_is_found_at_every_symbol():
    spellings = SpecialTokens(thinking_end="")
    parsed = parse(["</\n"], thinking_initial_stage=START, special_tokens=spellings)
    assert (parsed.reasoning, parsed.content) == ("<", "/\n")
