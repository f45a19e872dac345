"""The recorded cases: whole texts, broken grammars, exact masks, forbidden ids, cut drafts."""

from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from ds_jax import errors, structured

_FILE = pathlib.Path(__file__).parents[1] / "golden" / "grammar" / "cases.jsonl"
CASES = [json.loads(line) for line in _FILE.read_text(encoding="utf-8").splitlines()]
_FIELDS = {"json_schema": "schema", "regex": "regex", "ebnf": "ebnf"}


def of(*kinds: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["kind"] in kinds]


def text(kind: str, source: Any) -> str:
    return json.dumps(source) if kind == "json_schema" else source


def allowed(matcher) -> list[int]:
    row = np.zeros(matcher.vocabulary.words, np.int32)
    matcher.fill_row(row)
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize("case", of("json_schema", "regex", "ebnf"))
def test_texts_are_accepted_and_rejected_as_recorded(case):
    kind = case["kind"]
    try:
        grammar = structured.compile(kind, text(kind, case[_FIELDS[kind]]))
    except errors.RequestError as error:
        assert case["may_refuse"], error
        return
    assert [each for each in case["must_accept"] if not grammar.accepts(each)] == []
    assert [each for each in case["must_reject"] if grammar.accepts(each)] == []


@pytest.mark.parametrize("case", of("ebnf"))
def test_lark_twins_agree(case):
    # `item~2..4` is written item{2,4} in the library's dialect.
    lark = case["lark"].replace("~2..4", "{2,4}")
    grammar = structured.compile("lark", lark)
    assert [each for each in case["must_accept"] if not grammar.accepts(each)] == []
    assert [each for each in case["must_reject"] if grammar.accepts(each)] == []


@pytest.mark.parametrize(
    "case", of("bad_ebnf", "bad_json_schema", "bad_regex", "unsat_json_schema")
)
def test_broken_and_unsatisfiable_grammars_are_refused(case):
    kind = case["kind"].removeprefix("bad_").removeprefix("unsat_")
    with pytest.raises(errors.RequestError, match=kind) as caught:
        structured.compile(kind, text(kind, case[_FIELDS[kind]]))
    assert caught.value.status == 400


@pytest.mark.parametrize("case", of("token_mask"))
def test_masks_allow_exactly_the_recorded_ids(case, released):
    grammar = structured.compile("regex", case["regex"], released)
    ids = allowed(grammar.matcher(committed=released.encode(case["prefix"])))
    assert len(ids) == case["n_allowed"]
    assert (released.eos_id in ids) == case["eos_allowed"]
    digest = hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()
    assert digest == case["allowed_sha256"]


@pytest.mark.parametrize("case", of("token_forbidden"))
def test_control_tokens_never_stand_inside_strings(case, released):
    grammar = structured.compile("json_schema", json.dumps(case["schema"]), released)
    ids = set(allowed(grammar.matcher(committed=released.encode(case["prefix"]))))
    assert not ids & set(case["must_forbid"])
    assert not ids & set(released.tokenizer.control_ids)


@pytest.mark.parametrize("case", of("draft_prefix"))
def test_drafts_are_cut_at_the_first_refused_token(case, released):
    grammar = structured.compile(
        case["source_kind"], text(case["source_kind"], case["source"]), released
    )
    matcher = grammar.matcher(committed=case["prefix_ids"])
    before = allowed(matcher)
    rows = np.zeros((1 + len(case["draft_ids"]), released.words), np.int32)
    assert matcher.fill_rows(case["draft_ids"], rows) == case["n_valid"]
    assert matcher.count_valid(case["draft_ids"]) == case["n_valid"]
    assert allowed(matcher) == before
