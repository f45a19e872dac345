"""Reasoning, answer, tool calls and stop strings come out the same at every cut of the output."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given, settings

from ds_jax import recipe
from ds_jax.recipe.deltas import CallArguments, CallStart, ContentDelta, Finished, ReasoningDelta
from ds_jax.recipe.inference import InferenceFinishReason
from ds_jax.recipe.parse import ParsingOptions, ThinkingInitialStage
from ds_jax.recipe.special_tokens import SpecialTokens
from tests.recipe import parse_cases, parse_outputs, strategies
from tests.recipe.parsing import END, START, V4, V41, block, cuts, deltas, parse

FORMS = pytest.mark.parametrize("form", [V4, V41], ids=["v4", "v41"])
LENGTH = InferenceFinishReason.Length


@FORMS
def test_markup_never_reaches_content(form: str):
    output = "Sure.\n\n" + block(form, ("f", [("a", "true", "v")]), ("g", []))
    for chunks in cuts(output):
        parsed = parse(chunks)
        assert parsed.content == "Sure."
        assert parsed.calls == (("f", '{"a": "v"}'), ("g", "{}"))
        assert parsed.finished.reason == "tool_calls"


@FORMS
@pytest.mark.parametrize(
    "value", ["make test 2>&1", "a < b </ c", 'q"\\\n\t', "", "x</｜DSML", "</think>", "é😀\x00"]
)
def test_a_string_value_is_byte_equal(form: str, value: str):
    for chunks in cuts(block(form, ("run", [("cmd", "true", value)]))):
        [(name, arguments)] = parse(chunks).calls
        assert (name, json.loads(arguments)) == ("run", {"cmd": value})


@FORMS
@pytest.mark.parametrize("value", ["true", "null", "-1.50", '{"x": [1, "</"]}', '"s"'])
def test_a_raw_value_is_json_as_written(form: str, value: str):
    for chunks in cuts(block(form, ("f", [("a", "false", value), ("b", "true", "true")]))):
        [(_, arguments)] = parse(chunks).calls
        assert arguments == f'{{"a": {value}, "b": "true"}}'
        assert json.loads(arguments) == {"a": json.loads(value), "b": "true"}


@FORMS
def test_a_block_opened_by_the_prompt_is_one_call_without_content(form: str):
    opened = block(form, ("run_sql", [("query", "true", "SELECT 1")])).split("\n", 1)[1]
    for chunks in cuts(opened):
        parsed = parse(chunks, starts_in_tool_calls=True, thinking_initial_stage=START)
        assert parsed.calls == (("run_sql", '{"query": "SELECT 1"}'),)
        assert parsed.content == parsed.reasoning == ""


@FORMS
def test_calls_after_an_empty_reasoning(form: str):
    for chunks in cuts(f"{END}\n\n{block(form, ('f', []))}"):
        parsed = parse(chunks, thinking_initial_stage=START)
        assert (parsed.reasoning, parsed.content, parsed.calls) == ("", "", (("f", "{}"),))


@FORMS
def test_calls_inside_reasoning_end_it(form: str):
    for chunks in cuts(f"\nhm\n\n{block(form, ('f', []))} tail{END}more"):
        parsed = parse(chunks, thinking_initial_stage=START)
        assert (parsed.reasoning, parsed.content, parsed.calls) == ("hm", "", (("f", "{}"),))


@FORMS
def test_a_call_cut_by_length_is_never_complete(form: str):
    output = block(form, ("f", [("text", "true", "long text"), ("n", "false", "12")]))
    [(_, whole)] = parse([output]).calls
    for size in range(len(output)):
        for chunks in ([*output[:size]], [output[:size]]):
            parsed = parse([*chunks, LENGTH])
            assert parsed.finished.reason == "length"
            for _, arguments in parsed.calls:
                assert whole.startswith(arguments.split("<")[0])
                if arguments != whole:
                    with pytest.raises(ValueError):
                        json.loads(arguments)


@FORMS
@pytest.mark.parametrize("before", ["Done.", "Done.\n", "Done.\n\n", "Done.\n\n\n\n"])
def test_newlines_before_a_block_are_dropped_wherever_they_are_cut(form: str, before: str):
    for chunks in cuts(before + block(form, ("f", []))):
        assert parse(chunks).content == "Done."


def test_reasoning_begins_without_a_tag():
    for chunks in cuts(f"I should greet.\n{END}\n\nHi\n"):
        parsed = parse(chunks, thinking_initial_stage=START)
        assert (parsed.reasoning, parsed.content) == ("I should greet.", "Hi\n")


@pytest.mark.parametrize("tools", [True, False])
def test_reasoning_comes_first_with_and_without_tools(tools: bool):
    for chunks in cuts(f"why{END}because"):
        made = deltas(chunks, thinking_initial_stage=START, parse_tool_calls=tools)
        kinds = [type(delta) for delta in made if not isinstance(delta, Finished)]
        assert kinds == sorted(kinds, key=[ReasoningDelta, ContentDelta].index)
        parsed = parse(chunks, thinking_initial_stage=START, parse_tool_calls=tools)
        assert (parsed.reasoning, parsed.content) == ("why", "because")


def test_json_after_reasoning_is_content():
    for answer in ('{"a": 1}', '```json\n{"a": 1}\n```', 'Here: {"a": 1}', '\n```\n{"a": 1}\n```x'):
        for chunks in cuts(f"a {{ is needed{END}\n{answer}"):
            parsed = parse(chunks, thinking_initial_stage=START, parse_json_output=True)
            assert parsed.reasoning == "a { is needed"
            if "```" in answer or answer.startswith("{"):
                assert json.loads(parsed.content) == {"a": 1}
            assert parsed.content.strip() == '{"a": 1}'


def test_reasoning_cut_by_length_is_told():
    for chunks in cuts("step one, step t"):
        parsed = parse([*chunks, LENGTH], thinking_initial_stage=START)
        assert (parsed.reasoning, parsed.content) == ("step one, step t", "")
        assert parsed.finished.reason == "length"


@pytest.mark.parametrize(
    ("stage", "reasoning", "content"),
    [
        (START, "go on", "done"),
        (ThinkingInitialStage.ReasoningContinuation, "\n\ngo on", "done"),
        (ThinkingInitialStage.ContentContinuation, "", "\n\ngo on\n\n\ndone"),
        (None, "", "go on\n\n\ndone"),
    ],
)
def test_a_continued_text_keeps_its_newlines(
    stage: ThinkingInitialStage | None, reasoning: str, content: str
):
    for chunks in cuts(f"\n\ngo on\n\n{END}\ndone"):
        parsed = parse(chunks, thinking_initial_stage=stage)
        assert (parsed.reasoning, parsed.content) == (reasoning, content)


def test_a_continued_code_block_ends_at_its_stop_string():
    for chunks in cuts("print(1)\n```\nThat prints 1."):
        stage = ThinkingInitialStage.ContentContinuation
        parsed = parse(chunks, thinking_initial_stage=stage, stop_sequences=["```"])
        assert parsed.content == "print(1)\n"
        assert (parsed.finished.reason, parsed.finished.stop_sequence) == ("stop_sequence", "```")


@pytest.mark.parametrize(
    ("stops", "text", "content", "found"),
    [
        (["\n"], "a\nbcd", "a", "\n"),
        (["a", "is", ","], "The user is a", "The user ", "is"),
        (["STOP", "TOP"], "xSTOP", "x", "STOP"),
        (["TOP", "STOP"], "xSTOP", "xS", "TOP"),
        (["aab"], "aaab", "a", "aab"),
        (["b", "abc"], "xabc", "xa", "b"),
        (["", "c"], "abc", "ab", "c"),
        (["é😀"], "aé😀b", "a", "é😀"),
    ],
)
def test_the_stop_string_that_is_complete_first_ends_the_answer(
    stops: list[str], text: str, content: str, found: str
):
    for chunks in cuts(text):
        parsed = parse([*chunks, "never"], stop_sequences=stops)
        assert parsed.content == content
        assert (parsed.finished.reason, parsed.finished.stop_sequence) == ("stop_sequence", found)


def test_nothing_after_a_stop_string_is_told_or_counted():
    made = deltas(["one ", "two STOP three", "four"], stop_sequences=["STOP"])
    assert [delta.text for delta in made[:-1]] == ["one ", "two "]
    assert made[-1] == Finished("stop_sequence", "STOP", 2, None)


def test_stop_strings_do_not_act_in_reasoning_or_calls():
    output = f"STOP{END}x{block(V41, ('STOP', [('STOP', 'true', 'STOP')]))}STOP"
    for chunks in cuts(output):
        parsed = parse(chunks, thinking_initial_stage=START, stop_sequences=["STOP"])
        assert (parsed.reasoning, parsed.content) == ("STOP", "x")
        assert parsed.calls == (("STOP", '{"STOP": "STOP"}'),)
        assert parsed.finished.reason == "tool_calls"


@pytest.mark.parametrize("rest", ["ST", "</thi", "\n\n<", "\n\n<｜DSML", "a\n"])
def test_what_was_held_for_a_marker_is_told_at_the_end(rest: str):
    for chunks in cuts(f"text{rest}"):
        for stage, want in ((None, ("", f"text{rest}")), (START, (f"text{rest}", ""))):
            parsed = parse(chunks, thinking_initial_stage=stage, stop_sequences=["STOP"])
            assert (parsed.reasoning, parsed.content) == want


@FORMS
@pytest.mark.parametrize("rest", ["</", "ST", "\n\n<", "</thi"])
def test_text_held_in_an_argument_at_the_end_is_of_the_argument(form: str, rest: str):
    opened = block(form, ("f", [("k", "true", 'a"')])).split("</｜")[0]
    for chunks in cuts(opened + rest):
        parsed = parse(chunks, stop_sequences=["STOP"])
        assert (parsed.content, parsed.calls[0][0]) == ("", "f")
        assert json.loads(parsed.calls[0][1] + '"}') == {"k": f'a"{rest}'}


@FORMS
def test_a_part_of_a_stop_string_before_a_marker_is_text(form: str):
    for chunks in cuts(f"hm ST\n{END}\nx ST\n\n{block(form, ('f', []))}"):
        parsed = parse(chunks, thinking_initial_stage=START, stop_sequences=["STOP", "ST\n\n\n"])
        assert (parsed.reasoning, parsed.content) == ("hm ST", "x ST")
        assert parsed.calls == (("f", "{}"),)


def test_only_what_may_become_a_marker_is_held():
    made = deltas(["abc<", "d", "e\n", "\n", "f"], thinking_initial_stage=START)
    assert [delta.text for delta in made[:-1]] == ["abc<", "d", "e\n", "\n", "f"]
    stream = [delta for delta in deltas(["abc ST"], stop_sequences=["STOP"])]
    assert [delta.text for delta in stream[:-1]] == ["abc ST"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        (InferenceFinishReason.Stop, "tool_calls"),
        (InferenceFinishReason.Length, "length"),
        (InferenceFinishReason.ContentFilter, "content_filter"),
    ],
)
def test_the_finish_reason_of_an_output_with_calls(reason: InferenceFinishReason, finish: str):
    for chunks in cuts(block(V4, ("f", []))):
        assert parse([*chunks, reason]).finished.reason == finish


def test_without_tools_markup_is_text():
    output = block(V41, ("f", [("a", "true", "v")]))
    for chunks in cuts(output):
        parsed = parse(chunks, parse_tool_calls=False)
        assert (parsed.content, parsed.calls) == (output, ())


def test_other_spellings_of_the_markers():
    spellings = SpecialTokens(thinking_end="[/T]", dsml="#D")
    output = f"why[/T]{block(V41, ('f', []))}".replace("｜DSML｜", "#D")
    for chunks in cuts(output):
        parsed = parse(chunks, thinking_initial_stage=START, special_tokens=spellings)
        assert (parsed.reasoning, parsed.content, parsed.calls) == ("why", "", (("f", "{}"),))


def test_each_piece_has_its_own_deltas():
    made = deltas(
        ['<｜DSML｜invoke name="f">', '<｜DSML｜parameter name="k" string="true">v"', "w"]
    )
    assert [delta.text for delta in made if isinstance(delta, CallArguments)] == [
        *("{", '"k"', ": ", '"', 'v\\"', "w")
    ]


def test_call_ids_tell_their_number_and_whether_reasoning_was_empty():
    two_calls = block(V41, ("f", []), ("g", []))
    for output, thinking, mark in (
        (END + two_calls, True, "ET_"),
        (f"hm{END}{two_calls}", True, ""),
        (END + two_calls, False, ""),
    ):
        made = deltas([output], thinking_initial_stage=START, thinking=thinking)
        ids = [delta.id for delta in made if isinstance(delta, CallStart)]
        assert len(set(ids)) == 2
        for number, id in enumerate(ids):
            head = f"call_{number:02d}_{mark}"
            assert id.startswith(head) and len(id) == len(head) + 24
            assert id[-24:].isalnum() and id[-4:].isdigit()


@settings(max_examples=100, deadline=None)
@given(strategies.cases(parse_outputs.case))
def test_joined_deltas_do_not_depend_on_the_cut(case: dict[str, Any]):
    def joined(chunks: list[Any]) -> tuple[Any, ...]:
        parsed = parse(chunks, with_tokenizer=True, **options)
        content = parsed.content
        if options["parse_json_output"]:  # other text is a space a piece
            content = content.replace(" ", "")
        end = parsed.finished
        return parsed.reasoning, content, parsed.calls, end.reason, end.stop_sequence

    options = vars_of(parse_cases.options(recipe, case["options"]))
    text = "".join(chunk.get("text", "") for chunk in case["chunks"])
    ids = [i for chunk in case["chunks"] for i in chunk.get("tokens", [])] + [64]
    for output in (text, ids):
        assert joined([output]) == joined([output[i : i + 1] for i in range(len(output))])


def vars_of(options: ParsingOptions) -> dict[str, Any]:
    """The settings as keywords."""
    names = inspect.signature(ParsingOptions).parameters
    return {name: getattr(options, name) for name in names}


def test_options_are_checked_and_copied():
    options = ParsingOptions(stop_sequences=("a", "b"))
    options.stop_sequences.append("c")
    assert options.stop_sequences == ["a", "b"]
    assert repr(START) == "ThinkingInitialStage.ReasoningStart"
    assert [stage.starts_in_reasoning() for stage in ThinkingInitialStage] == [True, True, False]
    for name, value in (
        ("stop_sequences", "ab"),
        ("stop_sequences", [1]),
        ("stop_sequences", None),
        ("parse_tool_calls", 1),
        ("thinking_initial_stage", 0),
        ("special_tokens", {}),
    ):
        with pytest.raises(TypeError, match=name):
            setattr(options, name, value)
    with pytest.raises(UnicodeEncodeError):
        options.stop_sequences = ["\ud800"]
    with pytest.raises(AttributeError):
        options.unknown = 1  # type: ignore[attr-defined]
