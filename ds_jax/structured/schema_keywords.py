"""The keywords of JSON Schema that can be enforced, and those that cannot.

Decides what kind of value a keyword takes and which keywords are refused by name. Never looks at a
schema. In: nothing. Out: tables.

A keyword in no table is an annotation: it is dropped, as the standard says.
"""

from __future__ import annotations

from typing import Any

SCHEMA = "a schema (an object, true or false)"
SCHEMAS = "a list of schemas"
SOME_SCHEMAS = "a list of at least one schema"
SCHEMAS_BY_NAME = "an object of schemas"
ITEMS = "a schema or a list of schemas"
TYPES = "one of array, boolean, integer, null, number, object, string, or a list of them"
NAMES = "a list of strings"
COUNT = "a whole number from 0"
NUMBER = "a number"
POSITIVE = "a number above 0"
TEXT = "a string"
VALUES = "a list of at least one value"
ANY = "any value"

TYPE_NAMES = ("array", "boolean", "integer", "null", "number", "object", "string")

ENFORCED = {
    "$ref": TEXT,
    "type": TYPES,
    "enum": VALUES,
    "const": ANY,
    "allOf": SOME_SCHEMAS,
    "anyOf": SOME_SCHEMAS,
    "oneOf": SOME_SCHEMAS,
    "properties": SCHEMAS_BY_NAME,
    "patternProperties": SCHEMAS_BY_NAME,
    "additionalProperties": SCHEMA,
    "required": NAMES,
    "minProperties": COUNT,
    "maxProperties": COUNT,
    "items": ITEMS,
    "prefixItems": SCHEMAS,
    "additionalItems": SCHEMA,
    "minItems": COUNT,
    "maxItems": COUNT,
    "minLength": COUNT,
    "maxLength": COUNT,
    "pattern": TEXT,
    "format": TEXT,
    "minimum": NUMBER,
    "maximum": NUMBER,
    "exclusiveMinimum": NUMBER,
    "exclusiveMaximum": NUMBER,
    "multipleOf": POSITIVE,
}
"""Keyword to what its value must be."""

NUMBERS = tuple(name for name, wanted in ENFORCED.items() if wanted in (NUMBER, POSITIVE))
"""Keywords whose value is a number."""

REFUSED = {
    "not": "spell out what is allowed",
    "if": "use anyOf",
    "then": "use anyOf",
    "else": "use anyOf",
    "uniqueItems": "leave it out",
    "contains": "use items or prefixItems",
    "minContains": "leave it out",
    "maxContains": "leave it out",
    "propertyNames": "use patternProperties with additionalProperties: false",
    "dependentRequired": "use anyOf",
    "dependentSchemas": "use anyOf",
    "dependencies": "use anyOf",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items behind prefixItems",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
    "$vocabulary": "leave it out",
}
"""Keywords of the standard that cannot be enforced, each with what to do instead."""

HARMLESS: dict[str, tuple[Any, ...]] = {
    "not": (False,),
    "uniqueItems": (False,),
    "propertyNames": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedProperties": (True, {}),
    "unevaluatedItems": (True, {}),
}
"""Values of refused keywords that ask for nothing; they are dropped."""

_NEW_DRAFTS = ("draft/2019-09/schema", "draft/2020-12/schema")
DRAFTS = tuple(
    f"{scheme}://json-schema.org/{draft}"
    for scheme in ("http", "https")
    for draft in ("schema", "draft-06/schema", "draft-07/schema", *_NEW_DRAFTS)
)
"""Known values of `$schema`, without the `#` at the end."""

UNBOUNDED = 2**31
"""No output holds that many items or characters: such a maximum says nothing."""
