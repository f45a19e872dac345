"""The strict subset of JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ds_jax.recipe import strict_schema


def normal(schema: Any, *, may_be_empty: bool = True) -> Any:
    return strict_schema.normalize(
        schema, prefix="P: ", top="function parameters", may_be_empty=may_be_empty
    )


def refused(schema: Any, **how: Any) -> str:
    with pytest.raises(strict_schema.StrictSchemaError) as caught:
        normal(schema, **how)
    return str(caught.value)


def members(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_keys_are_fixed_in_kind_and_order():
    schema = {
        "description": "d",
        "$def": {"q": {"type": "null", "title": "t"}},
        "title": "t",
        "$defs": {"r": {"type": "null"}},
        "additionalProperties": False,
        "properties": {
            "b": {"enum": ["x"], "type": "string", "minLength": 1, "pattern": "p"},
            "a": {"multipleOf": 2, "type": "integer", "const": 4},
            "c": {"type": ["string", "null"], "enum": [1], "description": "d"},
            "e": {"anyOf": [{"type": "boolean", "const": True}], "$ref": "#", "description": "d"},
            "f": {"$ref": "#/$def/q", "description": "d"},
            "g": {"type": "array", "items": {"type": "number", "minimum": -0.0}, "minItems": 1},
        },
        "required": ["g", "f", "e", "c", "b", "a"],
        "type": "object",
    }
    assert json.dumps(normal(schema)) == json.dumps(
        {
            "type": "object",
            "properties": {
                "b": {"type": "string", "pattern": "p", "enum": ["x"]},
                "a": {"type": "integer", "const": 4, "multipleOf": 2},
                "c": {"type": ["string", "null"], "description": "d"},
                "e": {"anyOf": [{"type": "boolean"}], "description": "d"},
                "f": {"$ref": "#/$def/q"},
                "g": {"type": "array", "items": {"type": "number", "minimum": -0.0}},
            },
            "additionalProperties": False,
            "required": ["b", "a", "c", "e", "f", "g"],
            "description": "d",
            "$def": {"q": {"type": "null"}},
        }
    )


def test_given_schema_stays_as_it_is():
    schema = members(a={"type": "string"})
    normal(schema)["properties"]["b"] = 1
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema, message",
    [
        (5, "P: one of `type`, `anyOf`, `$ref` field is required"),
        ({}, "P: one of `type`, `anyOf`, `$ref` field is required"),
        ({"type": "string"}, "The top level of the function parameters schema must be an object."),
        ({"$ref": "#"}, "The top level of the function parameters schema must be an object."),
        (
            {"type": "x"},
            "P: unknown variant `x`, expected one of `object`, `string`, `number`, `integer`,"
            " `boolean`, `array`, `null`",
        ),
        ({"type": None}, "P: invalid type: null, expected variant identifier"),
        (
            {"type": ["array"]},
            "P: field `type`: unknown variant `array`, expected one of `string`, `number`,"
            " `integer`, `boolean`, `null`",
        ),
        (
            {"type": ["null"], "description": 1},
            "P: field `description`: invalid type: integer `1`, expected a string",
        ),
        ({"anyOf": [{}]}, "P: field `anyOf`: missing field `type`"),
        (members(a={}), "P: one of `type`, `anyOf`, `$ref` field is required"),
        (members(a={"type": "array"}), "P: missing field `items`"),
        (
            members(a={"type": "integer", "minimum": 1.5}),
            "P: invalid type: floating point `1.5`, expected i64",
        ),
        (members(a={"type": "object"}), "An object with no properties is not allowed."),
        ({"type": "object", "required": ["a"]}, "Required property 'a' not found in object"),
        (
            {**members(a={"type": "null"}), "required": ["a", "a"]},
            "Duplicate required property 'a'",
        ),
        (
            {**members(a={"type": "null"}), "required": []},
            "Required properties must match all properties in the object",
        ),
        (
            {**members(a={"type": "null"}), "additionalProperties": True},
            "additionalProperties should not be true",
        ),
        (
            {"type": "object", "additionalProperties": {}},
            "P: invalid type: map, expected a boolean",
        ),
    ],
)
def test_refusal_says_why(schema, message):
    assert refused(schema) == message


def test_inner_objects_are_judged_first():
    inner = {**members(x={"type": "null"}), "additionalProperties": True}
    outer = {**members(a=inner), "required": ["q"]}
    assert refused(outer) == "additionalProperties should not be true"


def test_only_parameters_may_be_an_empty_object():
    assert normal({"type": "object"}) == dict(strict_schema.EMPTY_PARAMETERS)
    assert refused({"type": "object"}, may_be_empty=False) == (
        "An object with no properties is not allowed."
    )
