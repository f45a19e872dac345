"""JSON Schemas and the regular expressions inside them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ds_jax.recipe import schema_keywords
from ds_jax.recipe.regex_syntax import is_regex
from ds_jax.recipe.schema_check import first_error

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}},
        {"$ref": "#"},
        {"$ref": "#here", "$defs": {"x": {"$anchor": "here"}}},
        {"const": {"$ref": "#/nope"}, "unknown": {"$ref": "#/nope"}},
        {"$defs": {"x": {"$ref": "#/nope"}}},
        {"minLength": 1.0, "maxItems": 1e30},
        {"$schema": DRAFT_7, "items": [{}]},
        {"$schema": DRAFT_7, "$ref": "#", "properties": {"a": {"$ref": "#/nope"}}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://x/", "if": 5},
        {"$id": "http://x/", "$defs": {"y": {"$id": "z"}}, "$ref": "z"},
        {"$defs": {"x": {"pattern": "["}}, "contentSchema": {"pattern": "["}},
        {"if": {"pattern": "["}},
        {"$schema": ""},
        {"$schema": "#"},
        {"$schema": "http://json-schema.org/schema#"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema#here"},
    ],
)
def test_schema_without_error(schema):
    assert first_error(schema) is None


@pytest.mark.parametrize(
    "schema, message",
    [
        (None, 'null is not of types "boolean", "object"'),
        ([], '[] is not of types "boolean", "object"'),
        ({"required": "a"}, '"a" is not of type "array"'),
        ({"required": ["a", "a"]}, '["a","a"] has non-unique elements'),
        ({"properties": {"a": 5}}, '5 is not of types "boolean", "object"'),
        (
            {"type": "zz"},
            "\"zz\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        ({"minLength": -1}, "-1 is less than the minimum of 0"),
        ({"multipleOf": 0}, "0 is less than or equal to the minimum of 0"),
        ({"anyOf": []}, "[] has less than 1 item"),
        ({"pattern": "[a-"}, '"[a-" is not a "regex"'),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"pattern": "["}}}, '"[" is not a "regex"'),
        ({"$ref": "#x", "$defs": {"x": {"$anchor": "x", "pattern": "["}}}, '"[" is not a "regex"'),
        ({"dependencies": {"a": {"pattern": "["}}}, '"[" is not a "regex"'),
        ({"patternProperties": {"[": {}}}, '{} is not a "regex"'),
        (
            {"$schema": DRAFT_7, "definitions": {"x": {"pattern": "["}}},
            '"[" is not a "regex"',
        ),
        ({"pattern": "[", "minLength": -1}, "-1 is less than the minimum of 0"),
        ({"$id": "#a"}, '"#a" does not match "^[^#]*#?$"'),
        ({"$ref": "#/nope"}, "Pointer '/nope' does not exist"),
        ({"$ref": "#nope"}, "Anchor 'nope' does not exist"),
        ({"$ref": "a b"}, "Invalid URI reference 'a b': unexpected character at index 1"),
        (
            {"$ref": "http://x/y"},
            "Resource 'http://x/y' is not present in a registry and retrieving it failed: Retrieval"
            " is disabled, cannot fetch http://x/y",
        ),
        (
            {"$schema": "http://nope"},
            "Unknown meta-schema: 'http://nope'. Custom meta-schemas must be registered in the"
            " registry before use",
        ),
        ({"$schema": "a b"}, "Invalid URI reference 'a b': unexpected character at index 1"),
        ({"$schema": DRAFT_7, "if": 5}, '5 is not of types "boolean", "object"'),
    ],
)
def test_error_says_what_is_wrong(schema, message):
    assert first_error(schema) == message


def test_keyword_kinds_are_all_checked():
    from ds_jax.recipe import schema_check

    for draft in schema_keywords.DRAFTS:
        assert set(draft.keywords.values()) <= set(schema_check._CHECKS)


def test_deep_and_long_schemas_are_read():
    schema: object = {}
    for _ in range(60):
        schema = {"properties": {"a": schema}}
    assert first_error(schema) is None
    assert (
        first_error({"enum": list(range(100_000)), "required": list(map(str, range(100_000)))})
        is None
    )


KEYWORDS = sorted({word for draft in schema_keywords.DRAFTS for word in draft.keywords})
VALUES = st.sampled_from(
    [None, True, 0, -1, 1.5, "a", "object", "[", "#/$defs/a", "#a", "x y", [], ["a"], [1], [{}], {}]
)
SCHEMAS = st.recursive(
    st.dictionaries(st.sampled_from(KEYWORDS), VALUES, max_size=2),
    lambda inner: st.dictionaries(
        st.sampled_from(KEYWORDS),
        inner | VALUES | st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner),
        max_size=3,
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_any_value_is_judged_without_exception(schema):
    json.dumps(first_error(schema))


@pytest.mark.parametrize(
    "text",
    ["", "^a$", "a{1,2}?", "(?:a|b)+", r"\d{4}-\d{2}", "[^]a]", "[a-z-9]", "(?<n>a)", r"(a)\1",
     "a*+", r"^[\w.-]+@[\w-]+$", "(?i)a", "(?!x).*", r"\p{L}+", r"\u{1F600}", "x{1, 2}", "[[a]",
     "}"],
)  # fmt: skip
def test_regular_expressions(text):
    assert is_regex(text)


@pytest.mark.parametrize(
    "text",
    ["(", ")", "[", "[]", "*", "a**", "a{2,1}", "{", "a{", "(?", "(?<1>a)", "\\", r"\e", r"\1",
     "[z-a]", r"[\d-z]", r"\uD800", "(?=a)*", "(?P=n)", "(?#c)", "a{999999999}", "(a{1000}){1000}",
     "(" * 64 + ")" * 64],
)  # fmt: skip
def test_texts_that_are_no_regular_expressions(text):
    assert not is_regex(text)


@settings(max_examples=500)
@given(st.text("()[]{}*+?|^$.-,\\<=!:ab01dwpLu", max_size=40))
def test_any_text_is_a_regular_expression_or_not(text):
    assert is_regex(text) in (True, False)
