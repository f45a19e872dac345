"""Prompts are byte-identical to recorded ones, and no text becomes a control token."""

from __future__ import annotations

import pytest

from ds_jax import recipe
from ds_jax.recipe import conversation as conv
from ds_jax.recipe import json_text, render, render_v4
from ds_jax.recipe.special_tokens import SpecialTokens
from tests.recipe import golden_cases, prompt_cases


@pytest.mark.parametrize("name", ["conversations", "shapes"])
def test_prompts_match_recorded_ones(name):
    for case in golden_cases.read(f"render/{name}.open.jsonl"):
        assert prompt_cases.render(recipe, case["input"]) == case["expected"], case["id"]


def _everywhere(text: str, own: str) -> conv.Conversation:
    """A conversation with `text` in every field, and `own` where the assistant speaks."""
    quoted = json_text.dumps({text: text, "list": [text]})
    call = conv.ToolCall(text, text, quoted)
    tool = conv.ToolDefinition(text, text, {text: text})
    return conv.Conversation(
        (
            conv.SystemMessage(text, tools=(tool,)),
            conv.UserMessage(text),
            conv.AssistantMessage(own, own, (call,)),
            conv.ToolMessage(text, text),
            conv.LatestReminderMessage(text),
        ),
        tools=(tool,),
        response_schema={text: text},
    )


@pytest.mark.parametrize("render_it", [render.render, render_v4.render])
def test_control_strings_in_any_field_stay_text(render_it):
    harmless = render_it(_everywhere("x", "x"))
    controls = [segment.text for segment in harmless.segments if segment.special]
    for name, token in SpecialTokens().items():
        is_spatial = name.startswith(("ref", "box", "point", "polygon"))
        got = render_it(_everywhere(token, "x" if is_spatial else token))
        assert [segment.text for segment in got.segments if segment.special] == controls


def test_image_placeholders_need_a_source():
    source = conv.UrlImageSource("http://host/1")
    message = conv.UserMessage("<｜image｜> and <｜image｜>", (source,))
    got = render.render(conv.Conversation((message,)))
    images = [segment for segment in got.segments if segment.text == "<｜image｜>"]
    assert len(images) == 1
    assert images[0].special


def test_completion_continues_the_prompt():
    answer = conv.AssistantMessage("4", "2+2=4")
    got = render.render_completion(answer, thinking_mode=True)
    assert got.prompt == "2+2=4</think>4<｜end▁of▁sentence｜>"
