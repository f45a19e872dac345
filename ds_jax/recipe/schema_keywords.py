"""The keywords of JSON Schema and what their values must be.

Decides which drafts are known, which keywords each has and what kind of value each wants. Never
checks anything. In: a `$schema` URI. Out: a `Draft`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

_SUBSCHEMA_KINDS = frozenset(
    {"schema", "schemas", "schema or schemas", "schemas by name", "schemas by pattern"}
    | {"schemas or names by name"}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """One version of JSON Schema.

    Attributes:
      uri: the URI of its meta-schema.
      keywords: keyword to kind of value, in the order in which they are checked.
      booleans: whether true and false are schemas.
      id_keyword: what names a schema's URI.
      ref_alone: whether keywords beside `$ref` have no effect.
      references: the keywords that refer to another schema.
      late_patterns: whether regular expressions are looked at only in schemas that are in use.
      rank: the place of each keyword in that order.
      subschemas: the keywords that hold schemas, with their kinds.
    """

    uri: str
    keywords: Mapping[str, str]
    booleans: bool = True
    id_keyword: str = "$id"
    ref_alone: bool = False
    references: tuple[str, ...] = ("$ref",)
    late_patterns: bool = False

    rank: Mapping[str, int] = dataclasses.field(init=False)
    subschemas: Mapping[str, str] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        rank = {keyword: index for index, keyword in enumerate(self.keywords)}
        object.__setattr__(self, "rank", rank)
        subschemas = {key: kind for key, kind in self.keywords.items() if kind in _SUBSCHEMA_KINDS}
        object.__setattr__(self, "subschemas", subschemas)


def draft_of(uri: object) -> Draft | None:
    """The draft that a `$schema` value names; None if unknown.

    The newest if it is no text, and if it names the schema itself.
    """
    if not isinstance(uri, str):
        return NEWEST
    document, _, fragment = uri.partition("#")
    if "#" in fragment:
        return None
    return NEWEST if document in _ITSELF else _BY_URI.get(_without_scheme(document))


def is_known_document(uri: str) -> bool:
    """Whether a URI without fragment names a meta-schema, to which any schema may refer."""
    return _without_scheme(uri) in _BY_URI


def _without_scheme(uri: str) -> str | None:
    for scheme in ("http://", "https://"):
        if uri.startswith(scheme):
            return uri.removeprefix(scheme)
    return None


def _kinds(**kinds: str) -> dict[str, str]:
    """A table from kind to keywords, turned around."""
    return {
        keyword: kind.replace("_", " ")
        for kind, words in kinds.items()
        for keyword in words.split()
    }


_BOUNDS = _kinds(
    positive="multipleOf",
    number="maximum exclusiveMaximum minimum exclusiveMinimum",
    count="maxLength minLength",
    regex="pattern",
)
_SIZES = _kinds(count="maxItems minItems", boolean="uniqueItems")
_PROPERTIES = {
    **_kinds(schema="additionalProperties"),
    **_kinds(schemas_by_name="properties patternProperties"),
}
_LOGIC = {**_kinds(schema="if then else", schemas="allOf anyOf oneOf"), **_kinds(schema="not")}

_DRAFT_7 = {
    **_kinds(text="$id $schema $ref $comment title description", boolean="readOnly writeOnly"),
    **_kinds(array="examples"),
    **_BOUNDS,
    "additionalItems": "schema",
    "items": "schema or schemas",
    **_SIZES,
    **_kinds(schema="contains", count="maxProperties minProperties", names="required"),
    "additionalProperties": "schema",
    **_kinds(schemas_by_name="definitions properties", schemas_by_pattern="patternProperties"),
    "dependencies": "schemas or names by name",
    **_kinds(schema="propertyNames", array="enum", types="type"),
    **_kinds(text="format contentMediaType contentEncoding"),
    **_LOGIC,
}
_DRAFT_6 = {
    keyword: kind
    for keyword, kind in _DRAFT_7.items()
    if keyword not in ("$comment", "readOnly", "writeOnly", "if", "then", "else")
}
_DRAFT_4 = {
    **{key: kind for key, kind in _DRAFT_6.items() if key not in ("contains", "propertyNames")},
    **_kinds(text="id", boolean="exclusiveMaximum exclusiveMinimum"),
    **_kinds(some_names="required", some_values="enum"),
    **_kinds(boolean_or_schema="additionalItems additionalProperties"),
}
for _word in ("$id", "examples", "contentMediaType", "contentEncoding"):
    _DRAFT_4.pop(_word, None)

_VALIDATION = {
    **_kinds(types="type", array="enum"),
    **_BOUNDS,
    "pattern": "text",
    **_SIZES,
    **_kinds(count="maxContains minContains maxProperties minProperties", names="required"),
    "dependentRequired": "names by name",
}
_ANNOTATIONS = {
    **_kinds(text="title description", boolean="deprecated readOnly writeOnly", array="examples"),
    **_kinds(text="format contentEncoding contentMediaType", schema="contentSchema"),
}
_DRAFT_2019 = {
    **_kinds(id="$id", text="$schema", anchor="$anchor"),
    **_kinds(text="$ref $recursiveRef", boolean="$recursiveAnchor", vocabulary="$vocabulary"),
    **_kinds(text="$comment", schemas_by_name="$defs"),
    **_kinds(schema="additionalItems unevaluatedItems"),
    "items": "schema or schemas",
    "contains": "schema",
    "additionalProperties": "schema",
    "unevaluatedProperties": "schema",
    **_PROPERTIES,
    **_kinds(schemas_by_name="dependentSchemas", schema="propertyNames"),
    **_LOGIC,
    **_VALIDATION,
    **_ANNOTATIONS,
    "definitions": "schemas by name",
    "dependencies": "schemas or names by name",
}
_DRAFT_2020 = {
    **_kinds(id="$id", text="$schema $ref", anchor="$anchor"),
    **_kinds(text="$dynamicRef"),
    "$dynamicAnchor": "anchor",
    **_kinds(vocabulary="$vocabulary", text="$comment", schemas_by_name="$defs"),
    **_kinds(schemas="prefixItems", schema="items contains"),
    **_PROPERTIES,
    **_kinds(schemas_by_name="dependentSchemas", schema="propertyNames"),
    **_LOGIC,
    **_kinds(schema="unevaluatedItems unevaluatedProperties"),
    **_VALIDATION,
    **_ANNOTATIONS,
    "definitions": "schemas by name",
    "dependencies": "schemas or names by name",
    "$recursiveAnchor": "anchor",
    "$recursiveRef": "text",
}
_HTTP, _HTTPS = "http://json-schema.org/", "https://json-schema.org/"
DRAFTS = (
    Draft(f"{_HTTP}draft-04/schema", _DRAFT_4, False, "id", True),
    Draft(f"{_HTTP}draft-06/schema", _DRAFT_6, ref_alone=True),
    Draft(f"{_HTTP}draft-07/schema", _DRAFT_7, ref_alone=True),
    Draft(f"{_HTTPS}draft/2019-09/schema", _DRAFT_2019, late_patterns=True),
    Draft(
        f"{_HTTPS}draft/2020-12/schema",
        _DRAFT_2020,
        references=("$ref", "$dynamicRef"),
        late_patterns=True,
    ),
)
NEWEST = DRAFTS[-1]
"""What a schema without `$schema` is read as."""
ROOT = "json-schema:///"
"""The URI of a schema that does not name its own."""
_ITSELF = ("", "/", ROOT)
_BY_URI: dict[str | None, Draft] = {
    **{_without_scheme(draft.uri): draft for draft in DRAFTS},
    "json-schema.org/schema": NEWEST,
}
