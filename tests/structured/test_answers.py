"""What a conversation's response format and tools come to."""

from __future__ import annotations

import json

import pytest

from ds_jax import errors, recipe
from ds_jax.structured import answers, trigger
from ds_jax.structured.compiler import Compiler

PARAMETERS = {
    "type": "object",
    "properties": {"day": {"type": "integer", "minimum": 1}},
    "required": ["day"],
    "additionalProperties": False,
}
TOOLS = [{"name": "weather", "strict": True, "parameters": PARAMETERS}]
M = answers.MARKER
BLOCK = (
    f'<{M} invoke name="weather">\n<{M} parameter name="day" string="false">3</{M} parameter>\n'
    f"</{M} invoke>\n</{M} calls>"
)


@pytest.fixture
def ids(tiny):
    """Ids of text in which control strings are control tokens."""
    return lambda text: tiny.encode(text, (M, answers.THINKING_END))


@pytest.fixture
def start(tiny):
    """A matcher at the start of an answer."""
    compiler = Compiler(tiny)

    def make(kind, text, **options):
        request = answers.grammar(kind, text, tiny.tokenizer, **options)
        grammar = compiler.submit_request(request).result()
        return grammar.matcher(trigger.of(request))

    yield make
    compiler.close()


def ends(matcher, token_ids):
    """Whether the output can be these ids."""
    taken = matcher.accept_while_valid(token_ids)
    return taken == len(token_ids) and matcher.count_valid([matcher.vocabulary.eos_id]) == 1


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("json", '{"type": "integer"}', "12", "a"),
        ("json", "", '{"a": 1}', "[1]"),
        ("regex", "a+", "aa", "b"),
    ],
)
def test_formats_start_behind_the_reasoning(start, ids, kind, text, good, bad):
    assert ends(start(kind, text), ids(good))
    assert not ends(start(kind, text), ids(bad))
    for answer, fits in ((good, True), (bad, False)):
        thought = ids(f"free {bad}{answers.THINKING_END}{answer}")
        assert ends(start(kind, text, thinking=True), thought) is fits
    assert not ends(start(kind, text, thinking=True), ids("free"))


def test_a_required_call_follows_the_opening_line_that_the_prompt_ends_with(start, ids):
    opening = f"\n\n<{M} calls>\n"
    tools = json.dumps(TOOLS)
    assert ends(start("tool_call_required", tools), ids(BLOCK))
    assert not ends(start("tool_call_required", tools), ids(BLOCK.replace(">3<", ">0<")))
    assert not ends(start("tool_call_required", tools), ids("It rains."))
    assert ends(start("tool_call_required", tools, opened=False), ids(opening + BLOCK))
    thought = ids(f"hm{answers.THINKING_END}{opening}{BLOCK}")
    assert ends(start("tool_call_required", tools, thinking=True), thought)


def test_strict_tools_are_held_to_once_the_model_opens_a_block(start, ids):
    opening = f"Let me see.\n\n<{M} calls>\n"
    tools = json.dumps([{"type": "function", "function": each} for each in TOOLS])
    assert ends(start("tool_call", tools), ids("It rains."))
    assert ends(start("tool_call", tools), ids(opening + BLOCK))
    assert not ends(start("tool_call", tools), ids(opening + BLOCK.replace("day", "hour")))


def test_tools_that_are_not_strict_are_free_unless_one_is_required(tiny):
    free = json.dumps([{"name": "f", "parameters": {"type": "object"}}])
    assert answers.grammar("tool_call", free, tiny.tokenizer) is None
    assert answers.grammar("tool_call_required", free, tiny.tokenizer) is not None


def test_the_constraint_of_a_conversion_is_read(start, ids):
    body = {
        "model": "DeepSeek-V4.1-Flash",
        "messages": [{"role": "user", "content": "Weather?"}],
        "thinking": {"type": "disabled"},
        "tools": [{"type": "function", "function": TOOLS[0]}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    }
    converted = recipe.ChatCompletionRequest(body).convert(recipe.ConversionOptions())
    found = converted.inference_options.output_constraint
    assert ends(start(found.kind, found.schema), ids(BLOCK))


def test_what_is_not_known_is_refused(tiny):
    with pytest.raises(errors.RequestError, match="must be json, regex"):
        answers.grammar("yaml", "", tiny.tokenizer)
    with pytest.raises(errors.RequestError, match="no control token '</thought>'"):
        answers.grammar("json", "", tiny.tokenizer, thinking=True, thinking_end="</thought>")
    for tools in ("[", "{}"):
        with pytest.raises(errors.RequestError, match="tools="):
            answers.grammar("tool_call", tools, tiny.tokenizer)
