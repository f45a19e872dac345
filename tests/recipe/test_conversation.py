"""Messages, tools, images and conversations: what they hold, show and refuse."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ds_jax import recipe
from ds_jax.recipe import message

SURROGATE = "\ud800"
DEEP: Any = {}
for _ in range(127):
    DEEP = {"a": DEEP}
CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)
ODD = "q\"\n\t\r\0\\é😀\u200b\x7f\x85\u0301\xad\u2028\ue000\U000e0001\u0bbe'x"


class Text(str):
    """A string of another class."""


EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "call": lambda r: r.ToolCall("i", "n", "a"),
    "call by name": lambda r: r.ToolCall(id="i", name="n", arguments="a"),
    "odd characters": lambda r: r.ToolCall(ODD, ODD, ODD),
    "call without arguments": lambda r: r.ToolCall("i", "n"),
    "call of numbers": lambda r: r.ToolCall("i", "n", 3),
    "call of None": lambda r: r.ToolCall("i", None, "a"),
    "surrogate": lambda r: r.ToolCall("i", "n", SURROGATE),
    "subclass of str": lambda r: type(r.ToolCall(Text("i"), "n", "a").id),
    "equal to itself": lambda r: (lambda c: c == c)(r.ToolCall("i", "n", "a")),
    "tool": lambda r: r.ToolDefinition("n"),
    "full tool": lambda r: r.ToolDefinition("n", "d", {"a": (1, None, True)}, True, True),
    "parameters": lambda r: r.ToolDefinition("n", None, {"a": (1, -0.0)}).parameters,
    "parameters are fresh": lambda r: (lambda t: t.parameters is t.parameters)(
        r.ToolDefinition("n", None, {})
    ),
    "big integers": lambda r: r.ToolDefinition("n", None, [2**64 - 1, -(2**63)]).parameters,
    "too big": lambda r: r.ToolDefinition("n", None, 2**64),
    "too small": lambda r: r.ToolDefinition("n", None, -(2**63) - 1),
    "nan": lambda r: r.ToolDefinition("n", None, float("nan")),
    "infinity": lambda r: r.ToolDefinition("n", None, [float("inf")]),
    "minus infinity": lambda r: r.ToolDefinition("n", None, [-float("inf")]),
    "set": lambda r: r.ToolDefinition("n", None, {"a": {1}}),
    "bytes": lambda r: r.ToolDefinition("n", None, b"a"),
    "numpy": lambda r: r.ToolDefinition("n", None, np.int64(1)),
    "key": lambda r: r.ToolDefinition("n", None, {1: 2}),
    "surrogate key": lambda r: r.ToolDefinition("n", None, {SURROGATE: 2}),
    "deepest": lambda r: r.ToolDefinition("n", None, DEEP),
    "too deep": lambda r: r.ToolDefinition("n", None, {"a": DEEP}),
    "circular": lambda r: r.ToolDefinition("n", None, CIRCULAR),
    "strict": lambda r: r.ToolDefinition("n", strict=1),
    "defer": lambda r: r.ToolDefinition("n", defer_loading=None),
    "description": lambda r: r.ToolDefinition("n", 3, {1: 2}),
    "url": lambda r: r.UrlImageSource("u", "low", path="p"),
    "data url": lambda r: r.DataUrlImageSource("u"),
    "bytes source": lambda r: r.BytesImageSource(bytearray(b"abc")),
    "bytes data": lambda r: r.BytesImageSource([1, 2]).data,
    "bytes of str": lambda r: r.BytesImageSource("abc"),
    "bytes of int": lambda r: r.BytesImageSource(3),
    "byte too big": lambda r: r.BytesImageSource([300]),
    "detail": lambda r: r.UrlImageSource("u", ODD),
    "detail of None": lambda r: r.UrlImageSource("u", None),
    "path": lambda r: r.UrlImageSource("u", "bad", path=3),
    "url fields": lambda r: _fields(r.UrlImageSource("u")),
    "data url fields": lambda r: _fields(r.DataUrlImageSource("u", path="é")),
    "bytes fields": lambda r: _fields(r.BytesImageSource(b"u", "auto")),
    "user": lambda r: r.UserMessage(ODD, [r.UrlImageSource("u")]),
    "system": lambda r: r.SystemMessage("c", tools=[r.ToolDefinition("n")]),
    "assistant": lambda r: r.AssistantMessage("c", "", [r.ToolCall("i", "n", "a")], True),
    "bare assistant": lambda r: r.AssistantMessage("c"),
    "tool message": lambda r: r.ToolMessage("c", "i"),
    "bare tool message": lambda r: r.ToolMessage("c"),
    "reminder": lambda r: r.LatestReminderMessage("c"),
    "content of None": lambda r: r.AssistantMessage(None),
    "prefix": lambda r: r.AssistantMessage("c", prefix=1),
    "numpy prefix": lambda r: r.AssistantMessage("c", prefix=np.bool_(True)).prefix,
    "no calls": lambda r: r.AssistantMessage("c", tool_calls=()).tool_calls,
    "wrong calls": lambda r: r.AssistantMessage("c", tool_calls=[3]),
    "calls of str": lambda r: r.AssistantMessage("c", tool_calls=""),
    "sources of set": lambda r: r.UserMessage("c", set()),
    "sources of iterator": lambda r: r.UserMessage("c", iter([])),
    "wrong source": lambda r: r.UserMessage("c", [r.UrlImageSource("u"), 3], image_token=""),
    "sources of nothing": lambda r: r.UserMessage("c", []).image_sources,
    "image token": lambda r: r.ToolMessage("c", image_token=""),
    "image token of int": lambda r: r.UserMessage("c", image_token=1),
    "system tools": lambda r: (r.SystemMessage("c", tools=()).tools, r.SystemMessage("c").tools),
    "wrong system tools": lambda r: r.SystemMessage("c", tools=[r.ToolCall("i", "n", "a")]),
    "base message": lambda r: [
        isinstance(made, r.Message) for made in (r.UserMessage("c"), r.AssistantMessage("c"))
    ],
    "base source": lambda r: isinstance(r.UrlImageSource("c"), r.ImageSource),
    "user tools": lambda r: hasattr(r.UserMessage("c"), "tools"),
    "conversation": lambda r: r.Conversation([r.UserMessage("c")], reasoning_effort="low"),
    "empty conversation": lambda r: (r.Conversation().messages, r.Conversation().tools),
    "wrong message": lambda r: r.Conversation([3]),
    "one message": lambda r: r.Conversation(r.UserMessage("c")),
    "messages of str": lambda r: r.Conversation("c"),
    "thinking": lambda r: r.Conversation(thinking_mode=None),
    "wrong tools": lambda r: r.Conversation(tools=[3]),
    "choice": lambda r: r.Conversation(tool_choice=ODD),
    "choice of None": lambda r: r.Conversation(tool_choice=None),
    "effort": lambda r: r.Conversation(tool_choice="x", reasoning_effort="medium"),
    "effort of int": lambda r: r.Conversation(reasoning_effort=3),
    "format": lambda r: r.Conversation(response_format="json_schema", response_schema={}),
    "format of None": lambda r: r.Conversation(response_format=None),
    "regex": lambda r: r.Conversation(response_regex="").response_format,
    "schema": lambda r: r.Conversation(response_schema=(0,)).response_schema,
    "schema format": lambda r: r.Conversation(response_schema=0).response_format,
    "wrong schema": lambda r: r.Conversation(response_schema={1: 2}),
    "wrong schema and choice": lambda r: r.Conversation(response_schema={1: 2}, tool_choice="x"),
    "object and schema": lambda r: r.Conversation(
        response_format="json_object", response_schema={}
    ),
    "schema and regex": lambda r: r.Conversation(
        response_format="json_object", response_schema={}, response_regex=""
    ),
    "special token": lambda r: [r.SpecialToken.Bos, int(r.SpecialToken.PolygonEnd)],
    "default spelling": lambda r: r.SpecialToken.Dsml.default_str(),
    "token is no number": lambda r: r.SpecialToken.Bos == 0,
    "token": lambda r: r.SpecialTokens(eos="x", bos=None).token(r.SpecialToken.Eos),
    "token by number": lambda r: r.SpecialTokens().token(1),
    "spelling": lambda r: r.SpecialTokens(bos=3),
    "image token id": lambda r: r.IMAGE_SPECIAL_TOKEN_ID,
    "conversation to encode": lambda r: r.DeepseekV4Encoding().encode(3),
    "encode without a tokenizer": lambda r: r.DeepseekV41Encoding().encode(r.Conversation()),
    "conversation to render": lambda r: r.DeepseekV41Encoding().render_conversation(None),
    "prompt": lambda r: r.DeepseekV4Encoding().render_conversation(r.Conversation()),
    "tokenizer": lambda r: r.DeepseekV4Encoding().with_tokenizer(3),
    "spellings": lambda r: r.DeepseekV4Encoding().with_special_tokens({}),
}
# The interpreter words these, so they name the method of a class in Python.
_INTERPRETER = ("call without arguments",)


def _fields(source: Any) -> list[Any]:
    names = ("kind", "detail", "path", "url", "data_url", "data")
    return [getattr(source, name) for name in names]


def _outcome(expression: Callable[[Any], Any], library: Any) -> str:
    try:
        return repr(expression(library))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_objects_are_as_in_the_library(name: str):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    want, got = (_outcome(EXPRESSIONS[name], one) for one in (library, recipe))
    if name in _INTERPRETER:
        want, got = want.split(":")[0], got.split(":")[0]
    assert got == want


def test_every_special_token_is_spelled_as_in_the_library():
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    for token in recipe.SpecialToken:
        theirs = getattr(library.SpecialToken, token.name)
        assert token.default_str() == theirs.default_str()
        assert int(token) == int(theirs)
        assert recipe.SpecialTokens().token(token) == token.default_str()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"response_format": "xml"}, 'invalid response_format "xml"; expected "text"'),
        ({"response_format": "json_object", "response_schema": {}}, "cannot be combined with"),
        ({"response_schema": {}, "response_regex": "a"}, "cannot be combined"),
        ({"tool_choice": "maybe"}, 'invalid tool_choice "maybe"; expected "auto", "none"'),
        ({"reasoning_effort": "some"}, 'invalid reasoning_effort "some"; expected "low"'),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, Any], text: str):
    with pytest.raises(ValueError, match=text):
        recipe.Conversation([], **options)


def test_no_result_changes_a_record():
    parameters = {"type": "object"}
    tool = recipe.ToolDefinition("n", None, parameters)
    source = recipe.UrlImageSource("u")
    said = recipe.UserMessage("c", [source])
    asked = recipe.AssistantMessage("c", tool_calls=[recipe.ToolCall("i", "n", "a")])
    told = recipe.SystemMessage("c", tools=[tool])
    whole = recipe.Conversation([said], tools=[tool], response_schema=parameters)
    before = repr(whole), tool.parameters, whole.response_schema
    parameters["type"] = "x"
    for values in (said.image_sources, asked.tool_calls, told.tools, whole.messages, whole.tools):
        assert values
        values.clear()
    tool.parameters.clear()
    whole.response_schema.clear()
    assert (repr(whole), tool.parameters, whole.response_schema) == before
    assert said.image_sources == [source]
    assert len(asked.tool_calls or []) == len(told.tools or []) == 1


def test_records_compare_by_value_and_can_be_copied():
    tool = recipe.ToolDefinition("n", None, {"a": [1]})
    records = [
        recipe.Conversation([recipe.UserMessage("c")], tools=[tool], response_schema={"a": 1}),
        recipe.SystemMessage("c", [recipe.BytesImageSource(b"a")], [tool]),
        recipe.AssistantMessage("c", None, [recipe.ToolCall("i", "n", "a")]),
        recipe.SpecialTokens(bos="x"),
    ]
    for record in records:
        for again in (pickle.loads(pickle.dumps(record)), copy.deepcopy(record)):
            assert again == record
            assert hash(again) == hash(record)
            assert repr(again) == repr(record)
    assert recipe.UserMessage("c") != recipe.SystemMessage("c")


def test_fields_cannot_be_set():
    for made in (recipe.UserMessage("c"), recipe.ToolCall("i", "n", "a"), recipe.Conversation()):
        for name in ("content", "name", "messages", "thinking_mode"):
            with pytest.raises((AttributeError, TypeError)):
                setattr(made, name, "x")


def test_bases_cannot_be_made():
    for base in (recipe.Message, recipe.ImageSource):
        with pytest.raises(TypeError, match="cannot create"):
            base()


def test_places_of_images_are_kept_as_positions():
    token = recipe.SpecialToken.Image.default_str()
    sources = [recipe.UrlImageSource("u"), recipe.UrlImageSource("v")]
    made = recipe.ToolMessage(f"{token}a{token}b{token}", "i", sources)
    assert made.parts == ("", "a", f"b{token}")
    placed = message.with_places(made, [f"typed {token}", "x"], token)
    assert (placed.content, placed.tool_call_id) == (f"typed {token}{token}x", "i")
    assert placed.parts == (f"typed {token}", "x")
    prompt = recipe.DeepseekV41Encoding().render_conversation(recipe.Conversation([placed]))
    spans = [span for span in prompt.special_ranges if prompt.prompt[slice(*span)] == token]
    assert [start - prompt.prompt.index("typed") for start, _ in spans] == [len(f"typed {token}")]
