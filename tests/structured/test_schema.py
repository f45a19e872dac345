"""JSON Schema: refusals by name and place, emptiness, tagged unions, blanks, size."""

from __future__ import annotations

import json

import pytest

from ds_jax import errors, structured
from ds_jax.structured import schema_keywords
from ds_jax.structured.limits import Limits
from ds_jax.structured.matcher import GrammarFault


def grammar(schema, **options):
    return structured.compile("json_schema", json.dumps(schema), **options)


def refusal(schema, **options) -> str:
    with pytest.raises(errors.RequestError) as caught:
        grammar(schema, **options)
    assert caught.value.status == 400
    assert caught.value.param == "json_schema"
    return str(caught.value)


@pytest.mark.parametrize("keyword", sorted(schema_keywords.REFUSED))
def test_every_unsupported_keyword_is_refused_by_name_and_place(keyword):
    value = (
        {"a": ["b"]} if "dependent" in keyword or keyword == "dependencies" else {"type": "null"}
    )
    value = {"uniqueItems": True, "minContains": 1, "maxContains": 1}.get(keyword, value)
    message = refusal({"type": "object", "properties": {"x/y": {"items": {keyword: value}}}})
    assert f"'{keyword}'" in message
    assert f"#/properties/x~1y/items/{keyword}" in message


@pytest.mark.parametrize(
    ("keyword", "value"),
    [(keyword, value) for keyword, all_ in schema_keywords.HARMLESS.items() for value in all_],
)
def test_keywords_that_ask_for_nothing_are_dropped(keyword, value):
    assert grammar({"type": "integer", keyword: value}).accepts("3")


def test_annotations_and_unknown_keywords_do_no_harm():
    known = {"title": 3, "x-guidance": {"lenient": True}, "foo": {"not": {}}, "$comment": 1}
    assert "'not'" in refusal(known | {"not": {}})
    compiled = grammar(known | {"type": "string", "$id": "http://a/b", "default": 1})
    assert compiled.accepts('"a"') and not compiled.accepts("1")
    unused = {"$defs": {"a": {"not": {}, "type": 3}}, "type": "null"}
    assert grammar(unused).accepts("null")


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strin"}, "#/type"),
        ({"enum": []}, "#/enum"),
        ({"minLength": 1.5}, "#/minLength: 1.5: must be a whole number"),
        ({"multipleOf": 0}, "#/multipleOf"),
        ({"minimum": True}, "#/minimum"),
        ({"minimum": 2**60}, "beyond 2**53"),
        ({"items": 3}, "#/items"),
        ({"anyOf": []}, "#/anyOf"),
        ({"properties": {"a": 1}}, "#/properties/a"),
        ({"required": [1]}, "#/required"),
        ({"pattern": "a\\"}, "#/pattern"),
        ({"pattern": "(?=a)"}, "look-around"),
        ({"patternProperties": {"\\": {}}}, "#/patternProperties/\\"),
        ({"format": "iri"}, "'iri' cannot be enforced"),
        ({"$ref": "http://a/b"}, "nothing is fetched"),
        ({"$ref": "#/$defs/a"}, "#/$ref: nothing stands at #/$defs/a"),
        ({"$ref": "#/items/7", "items": [{}]}, "nothing stands"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "unknown $schema"),
        ({"properties": {"a": {"$id": "x"}}}, "'$id'"),
        ({"minItems": 2**40}, "more than any output holds"),
        (False, "no value satisfies"),
        ({"$ref": "#"}, "no value satisfies"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}}, "no value satisfies"),
        ({"anyOf": [False, {"allOf": [{}, False]}]}, "no value satisfies"),
        (
            {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
            "no value satisfies",
        ),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "no value satisfies"),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, "no value"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "oneOf"),
        ([], "#: []: must be a schema"),
        (7, "must be a schema"),
    ],
)
def test_wrong_schemas_are_refused_with_reason_and_place(schema, reason):
    assert reason in refusal(schema)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1: no JSON"),
        ('{"a":}', "line 1, column 6"),
        ('{"minimum": NaN}', "NaN is no JSON number"),
        ('{"minimum": 1e999}', "out of range"),
        ('{"const": ' + "9" * 5000 + "}", "no JSON"),
        ("[" * 100_000, "nested deeper"),
        ('{"items":' * 300 + "{}" + "}" * 300, "nested deeper than 96 levels"),
        ('{"type": "\ud800"}', "lone surrogate"),
    ],
)
def test_text_that_is_no_json_is_refused_with_its_place(text, reason):
    with pytest.raises(errors.RequestError) as caught:
        structured.compile("json_schema", text)
    assert reason in str(caught.value)


def test_no_output_can_walk_into_a_part_without_a_value():
    endless = {"type": "object", "properties": {"n": {"$ref": "#/$defs/e"}}, "required": ["n"]}
    schema = {
        "$defs": {"e": endless},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/e"}, "b": {"type": "array", "items": endless}},
        "additionalProperties": False,
    }
    compiled = grammar(schema)
    assert compiled.accepts("{}") and compiled.accepts('{"b":[]}')
    for start in ('{"a', '{"b":[{'):
        assert compiled.matcher().count_valid(list(start.encode())) == len(start) - 1


def test_recursive_schemas_are_taken_where_the_recursion_can_end():
    tree = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["v"],
        "additionalProperties": False,
    }
    compiled = grammar(tree)
    assert compiled.accepts('{"v":1,"next":{"v":2,"next":{"v":3}}}')
    assert not compiled.accepts('{"v":1,"next":{"next":{"v":3}}}')


def test_tagged_unions_and_different_types_are_taken_as_one_of():
    def branch(tag, **properties):
        return {
            "type": "object",
            "properties": {"kind": {"const": tag}, **properties},
            "required": ["kind"],
        }

    compiled = grammar(
        {
            "$defs": {"b": branch(2, y={"type": "string"})},
            "oneOf": [branch(1, x={"type": "integer"}), {"$ref": "#/$defs/b"}, {"type": "null"}],
        }
    )
    assert compiled.accepts('{"kind":1,"x":3}') and compiled.accepts('{"kind":2,"y":"a"}')
    assert compiled.accepts("null")
    assert not compiled.accepts('{"kind":3}') and not compiled.accepts('{"kind":2,"y":1}')
    assert "oneOf" in refusal({"oneOf": [branch(1), branch(1.0)]})
    assert "oneOf" in refusal({"oneOf": [branch(True), {"type": "object"}]})


def test_strict_forbids_undeclared_properties():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object"}, "b": {"properties": {"c": {}}}},
    }
    assert grammar(schema).accepts('{"z":1}')
    strict = grammar(schema, strict=True)
    assert strict.accepts('{"a":{"free":1},"b":{"c":1}}')
    assert not strict.accepts('{"z":1}') and not strict.accepts('{"b":{"z":1}}')
    merged = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}], "type": "object"}
    assert grammar(merged, strict=True).accepts('{"a":1,"b":2}')


def test_blanks_are_bounded():
    compiled = grammar({"type": "object"})
    assert compiled.accepts("{" + " " * 8 + "}")
    assert compiled.matcher().count_valid([ord("{"), *[32] * 20]) == 9
    none = grammar({"type": "object"}, max_blanks=0)
    assert none.accepts('{"a":1,"b":[1,2]}') and not none.accepts('{"a": 1}')
    assert "max_blanks" in str(_error(max_blanks=-1)) and "max_blanks" in str(
        _error(max_blanks="1")
    )


def _error(**options) -> errors.RequestError:
    with pytest.raises(errors.RequestError) as caught:
        grammar({}, **options)
    return caught.value


def test_unknown_options_and_kinds_are_refused():
    assert "unknown option 'lenient'" in str(_error(lenient=True))
    assert "strict" in str(_error(strict=1))
    with pytest.raises(errors.RequestError, match="json_schema, json_object, regex, ebnf, lark"):
        structured.compile("yaml", "")
    with pytest.raises(errors.RequestError, match="give its text"):
        structured.compile("regex", b"a")  # type: ignore[arg-type]


def link(i: int) -> dict:
    return {"$ref": f"#/$defs/r{i + 1}"}


def deep(levels: int, build) -> dict:
    last = {f"r{levels}": {"type": "string"}}
    return {"$ref": "#/$defs/r0", "$defs": {f"r{i}": build(i) for i in range(levels)} | last}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "maxItems": 2**64},
        {"type": "array", "minItems": 10**6},
        {"type": "string", "minLength": 10**9, "maxLength": 2**70},
        {"enum": [f"value {i}" for i in range(40_000)]},
        {"type": "object", "properties": {f"p{i}": {} for i in range(1_000)}},
        {"type": "object", "properties": {f"p{i}": {} for i in range(2_000)}},
        {"anyOf": [{"type": "object", "properties": {f"p{i}": {}}} for i in range(2_000)]},
        {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": ["b"]}]} for i in range(40)]},
        deep(3_000, lambda i: {"type": "object", "properties": {"a": link(i)}}),
        deep(5_000, link),
        deep(40, lambda i: {"allOf": [link(i)] * 2}),
        deep(40, lambda i: {"anyOf": [link(i)] * 2}),
        deep(40, lambda i: {"oneOf": [link(i), {"type": "null"}]}),
        {"type": "string", "pattern": "(a{1,1000}){1,1000}"},
        {"type": "string", "pattern": "[ab]*a[ab]{18}c"},
        {"type": "string", "pattern": "(" * 5_000},
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)  # fmt: skip
def test_large_schemas_compile_or_are_refused_in_bounded_time(schema, bounded):
    with bounded(seconds=20):
        try:
            compiled = grammar(schema)
            compiled.matcher().count_valid(list(b'{"p1":1,"p7":'))
        except (errors.RequestError, GrammarFault) as error:
            assert str(error)


def test_a_text_of_50_megabytes_is_refused_at_once(bounded):
    text = json.dumps({"enum": ["x" * (50 * 2**20)]})
    for kind in ("json_schema", "regex", "ebnf", "lark", "tool_calls"):
        with (
            bounded(seconds=0.5),
            pytest.raises(errors.RequestError, match="at most 1048576 bytes"),
        ):
            structured.compile(kind, text)


def test_limits_are_arguments():
    with pytest.raises(errors.RequestError, match="more than 3 subschemas"):
        grammar({"anyOf": [{}] * 5}, limits=Limits(schema_nodes=3))


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        ("^.$", ["a", "é"], ["\n", "\r", "\u2028"]),
        ("^\\s$", ["\ufeff", " ", "\u00a0"], ["\x85", "a"]),
        ("^\\S$", ["a", "\x85"], ["\ufeff", " "]),
        ("^[\\s]$", ["\ufeff"], ["\x85"]),
        ("^[^\\s]$", ["\x85"], ["\ufeff"]),
        ("^[\\S]$", ["\x85"], ["\ufeff", "\u2028"]),
        ("^[^\\S]$", ["\ufeff"], ["\x85"]),
        ("^[[&&~]$", ["[", "&", "~"], ["a"]),
        ("^[a-c&&[b]]$", ["a]", "[]", "&]"], ["b", "a"]),
        ("^\\d\\w$", ["1a"], ["١a", "1é"]),
        ("b", ["abc", "\nb"], ["a"]),
    ],
)
def test_patterns_have_the_meaning_of_the_standard(pattern, accepted, refused):
    compiled = grammar({"type": "string", "pattern": pattern})
    for text in accepted + refused:
        spelled = json.dumps(text, ensure_ascii=False)
        assert compiled.accepts(spelled) == (text in accepted), text


@pytest.mark.parametrize("pattern", ["[]", "[^]a", "a{,3}", "[+--]"])
def test_patterns_that_are_read_differently_are_refused(pattern):
    assert "cannot be enforced; spell it out" in refusal({"pattern": pattern})


@pytest.mark.parametrize("pattern", ["\\b", "(a)\\1", "(?!a)", "(?<=a)b"])
def test_patterns_the_library_cannot_enforce_are_refused(pattern):
    assert "not supported" in refusal({"pattern": pattern})


def test_formats_are_never_wider_than_the_standard():
    dated = grammar({"type": "string", "format": "date", "pattern": "^2"})
    assert dated.accepts('"2024-02-29"') and dated.accepts('"2000-02-29"')
    for text in ("2023-02-29", "2100-02-29", "1999-01-01", "2024-04-31"):
        assert not dated.accepts(json.dumps(text)), text
    host = grammar({"format": "hostname"})
    assert host.accepts('"a-b.example"') and host.accepts("3")
    assert not host.accepts('"' + "a" * 64 + '"')
    assert host.accepts('"a--b.c"') and not host.accepts('"ab--c"')


def test_formats_take_every_form_of_an_address_and_a_time():
    address = grammar({"type": "string", "format": "ipv6"})
    for text in ("1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4", "::ffff:1.2.3.4"):
        assert address.accepts(json.dumps(text)), text
    for text in ("1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.256", "1::2::3", "1:2:3:4:5:6:7::8"):
        assert not address.accepts(json.dumps(text)), text
    moment = grammar({"type": "string", "format": "date-time"})
    assert moment.accepts('"1963-06-19t08:30:06.999999999999999z"')
