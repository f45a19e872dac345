"""Every part of a prompt says where it came from, and explaining changes nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from ds_jax import recipe
from ds_jax.recipe import explanation
from tests.recipe import strategies, test_prompts_fuzz

ENCODINGS = {"v4": recipe.DeepseekV4Encoding(), "v41": recipe.DeepseekV41Encoding()}


def whole() -> recipe.Conversation:
    """A conversation in which everything occurs."""
    image = recipe.SpecialToken.Image.default_str()
    return recipe.Conversation(
        [
            recipe.SystemMessage("Be kind.", tools=[recipe.ToolDefinition("later")]),
            recipe.UserMessage(f"See {image}!", [recipe.UrlImageSource("u")]),
            recipe.AssistantMessage(
                "Ok.", "Hm.", [recipe.ToolCall("b", "f", '{"x": 1}'), recipe.ToolCall("a", "g", "")]
            ),
            recipe.ToolMessage("41", "a"),
            recipe.ToolMessage("42", "b"),
            recipe.LatestReminderMessage("Short."),
        ],
        tools=[
            recipe.ToolDefinition("hidden", defer_loading=True),
            recipe.ToolDefinition("f"),
        ],
        tool_choice="required",
        response_schema={"type": "object"},
    )


@pytest.mark.parametrize("version", ENCODINGS)
def test_every_origin_is_named(version: str):
    segments = recipe.explain(ENCODINGS[version].render_conversation(whole()))
    text = {
        (one.role, one.origin): one.text
        for one in segments
        if not one.special and one.part not in ("tool_instructions", "turn")
    }
    assert text["system", "messages[0].content"] == "Be kind."
    assert text["system", "tools[1]"].startswith('{"name": "f"')
    assert ("system", "tools[0]") not in text
    assert text["system", "effort"].startswith("Reasoning Effort: ")
    assert text["system", "response_format"].endswith('{"type": "object"}')
    assert text["user", "messages[1].content"] == "!"
    assert text["assistant", "messages[2].reasoning_content"] == "Hm."
    assert text["tool", "messages[3].content"] == "41"
    assert text["tool", "messages[4].content"] == "42"
    assert text["latest_reminder", "messages[5].content"] == "Short."
    assert ("system", "messages[0].tools[0]") in text or version == "v4"
    controls = {(one.role, one.origin) for one in segments if one.special}
    assert (None, "template") in controls
    assert ("user", "messages[1].image_sources[0]") in controls
    assert ("assistant", "messages[2].tool_calls[1]") in controls
    assert ("assistant", "next_turn") in controls
    assert {one.part for one in segments} <= set(explanation.PARTS)


def test_results_keep_their_own_index_when_they_change_places():
    segments = recipe.explain(ENCODINGS["v41"].render_conversation(whole()))
    results = [one.message for one in segments if one.role == "tool" and one.part == "content"]
    assert results == [4, 3]


def test_one_place_is_one_segment():
    made = recipe.Conversation([recipe.UserMessage("a"), recipe.UserMessage("b")])
    segments = recipe.explain(ENCODINGS["v41"].render_conversation(made))
    assert [(one.text, one.origin) for one in segments[4:7]] == [
        ("a", "messages[0].content"),
        ("\n\n", "messages[1]"),
        ("b", "messages[1].content"),
    ]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(test_prompts_fuzz.case))
def test_segments_are_the_prompt(case):
    made = strategies.build_conversation(recipe, case["conversation"])
    encoding = ENCODINGS[case["version"]]
    encoding = encoding.with_special_tokens(recipe.SpecialTokens(**case["special_tokens"]))
    prompt = encoding.render_conversation(made)
    segments = recipe.explain(prompt)
    assert "".join(one.text for one in segments) == prompt.prompt
    assert [(one.start, one.end) for one in segments if one.special] == prompt.special_ranges
    assert all(prompt.prompt[one.start : one.end] == one.text != "" for one in segments)
    for one in segments:
        if one.message is not None and one.part != "turn":
            assert made.messages[one.message].role == one.role


def test_only_a_prompt_can_be_explained():
    with pytest.raises(TypeError, match="'prompt': 'str' object cannot be cast"):
        recipe.explain("text")
