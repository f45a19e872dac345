"""Grammars compile beside the engine: nobody waits, equal ones are shared, late ones refused."""

from __future__ import annotations

import builtins
import importlib
import threading
import time

import pytest

from ds_jax import errors, grammar_request
from ds_jax.structured import backend, deep_stack, kinds, trigger
from ds_jax.structured.compiler import Compiler
from ds_jax.structured.limits import Limits


@pytest.fixture
def gate(monkeypatch):
    """Compilations of the text `slow` wait until it is set; counts all."""
    event, counts = threading.Event(), []
    compile_ = kinds.compile

    def slowly(kind, text, *args, **options):
        counts.append(text)
        if text.startswith("slow"):
            assert event.wait(60)
        return compile_(kind, text, *args, **options)

    monkeypatch.setattr(kinds, "compile", slowly)
    event.counts = counts
    yield event
    event.set()


@pytest.fixture
def make(tiny):
    made = []

    def build(**options):
        made.append(Compiler(tiny, **options))
        return made[-1]

    yield build
    for compiler in made:
        compiler.close()


def test_a_grammar_is_ready_later_and_kept(make, gate):
    compiler = make()
    pending = compiler.submit("regex", "slow [a-z]+")
    again = compiler.submit("regex", "slow [a-z]+")
    assert pending.poll() is None and again.poll() is None
    gate.set()
    grammar = pending.result()
    assert again.result() is grammar and pending.poll() is grammar
    assert compiler.submit("regex", "slow [a-z]+").poll() is grammar
    assert gate.counts == ["slow [a-z]+"]
    assert grammar.accepts("slow abc")
    assert compiler.submit("regex", "slow [a-z]+", forced=True).result() is not grammar


def test_others_are_served_while_one_compiles(make, gate):
    compiler = make(workers=2)
    slow = compiler.submit("regex", "slow")
    assert compiler.submit("regex", "fast").result().accepts("fast")
    assert slow.poll() is None


def test_a_broken_grammar_is_refused_when_it_is_asked_for_and_not_kept(make, gate):
    compiler = make()
    for _ in range(2):
        pending = compiler.submit("json_schema", '{"not": {}}')
        with pytest.raises(errors.RequestError, match="'not' cannot be enforced"):
            pending.result()
        with pytest.raises(errors.RequestError, match="'not' cannot be enforced"):
            pending.poll()
    assert len(gate.counts) == 2


def test_a_late_grammar_is_refused_and_the_pool_goes_on(make, gate):
    now = [0.0]
    compiler = make(limits=Limits(seconds=5), workers=1, clock=lambda: now[0])
    late = compiler.submit("regex", "slow")
    behind = compiler.submit("regex", "b")
    now[0] = 4.9
    assert late.poll() is None
    now[0] = 5.0
    for pending in (late, behind):
        with pytest.raises(errors.RequestError, match="not compiled within 5 s"):
            pending.poll()
        with pytest.raises(errors.RequestError, match="not compiled within 5 s"):
            pending.result()
    gate.set()
    assert compiler.submit("regex", "c").result().accepts("c")
    assert "b" not in gate.counts  # nobody wanted it any more


def test_the_time_of_preparing_the_vocabulary_is_not_the_grammars(tiny):
    now, ready = [0.0], threading.Event()

    def prepare():
        assert ready.wait(60)
        return tiny

    compiler = Compiler(prepare, Limits(seconds=5), clock=lambda: now[0])
    pending = compiler.submit("regex", "a+")
    now[0] = 1000.0
    assert pending.poll() is None
    ready.set()
    assert pending.result().accepts("aa")
    compiler.close()


def test_too_many_waiting_are_refused_at_once(make, gate):
    compiler = make(workers=1, most_waiting=2)
    compiler.submit("regex", "slow 1")
    compiler.submit("regex", "slow 2")
    compiler.submit("regex", "slow 2")  # shared
    with pytest.raises(errors.RequestError, match="try again later") as caught:
        compiler.submit("regex", "slow 3")
    assert caught.value.status == 503
    with pytest.raises(errors.RequestError, match="at most"):
        compiler.submit("regex", "a" * 2**21)


def test_the_cache_is_bounded_in_number_and_text(make, gate):
    compiler = make(kept_grammars=2)
    for text in ("a", "b", "a", "c"):
        compiler.submit("regex", text).result()
    settled(compiler, "c")
    compiler.submit("regex", "a").result()
    assert gate.counts == ["a", "b", "c"]
    compiler.submit("regex", "b").result()
    assert gate.counts == ["a", "b", "c", "b"]
    small = make(kept_bytes=3)
    for text in ("xx", "yy", "xx"):
        small.submit("regex", text).result()
        settled(small, text)
    assert gate.counts[4:] == ["xx", "yy", "xx"]


def settled(compiler, text):
    """Waits until a finished compilation is in the cache."""
    deadline = time.monotonic() + 10
    while compiler.submit("regex", text).poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_requests_of_the_other_form_are_compiled_with_their_options(make):
    request = grammar_request.from_so_args(
        {"schema_type": "json", "schema": '{"type":"object","properties":{"a":{}}}'}
        | {"trigger_token_ids": [7, 8], "bound_token_id": 9}
    )
    grammar = make().submit_request(request).result()
    assert not grammar.accepts('{"b":1}') and grammar.accepts('{"a":1}')
    matcher = grammar.matcher(trigger.of(request))
    matcher.accept_while_valid([7, 7, 8])
    assert not matcher.is_waiting


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "must be an object"),
        ({}, "schema_type"),
        ({"schema_type": "yaml", "schema": ""}, "must be one of json, regex, ebnf"),
        ({"schema_type": ["json"], "schema": ""}, "schema_type"),
        ({"schema_type": "regex"}, "schema=None: must be text"),
        ({"schema_type": "regex", "schema": "a", "x": 1}, "unknown key"),
        ({"schema_type": "regex", "schema": "a", "bound_token_id": 1}, "needs trigger_token_ids"),
        ({"schema_type": "regex", "schema": "a", "trigger_token_ids": 1}, "must be a list"),
        ({"schema_type": "regex", "schema": "a", "trigger_token_ids": [-1]}, "-1"),
        ({"schema_type": "regex", "schema": "a", "trigger_token_ids": ["1"]}, "'1'"),
        (
            {"schema_type": "regex", "schema": "a", "trigger_token_ids": [1]}
            | {"bound_token_id": [2]},
            "bound_token_id=[2]: must be one",
        ),
    ],
)
def test_wrong_fields_of_the_other_form_are_refused_by_name(value, reason):
    with pytest.raises(errors.RequestError) as caught:
        grammar_request.from_so_args(value)
    assert reason in str(caught.value)


def test_schema_values_and_empty_triggers_of_the_other_form_are_read():
    request = grammar_request.from_so_args({"schema_type": "json", "schema": {"type": "null"}})
    assert request.text == '{"type": "null"}' and request.trigger_token_ids == ()
    request = grammar_request.from_so_args(
        {"schema_type": "ebnf", "schema": "x", "trigger_token_ids": []}
    )
    assert (request.kind, request.options, trigger.of(request)) == ("ebnf", (), None)


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    import_module = importlib.import_module

    def without(name, *args):
        if name == "llguidance":
            raise ImportError("No module named 'llguidance'")
        return import_module(name, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    backend.library.cache_clear()
    try:
        with pytest.raises(errors.ConfigError, match=r"install ds_jax\[structured\]"):
            backend.library()
    finally:
        backend.library.cache_clear()
    assert issubclass(backend.MissingLibraryError, builtins.ImportError)


def test_functions_on_a_deep_stack_return_and_raise():
    before = threading.stack_size()
    assert deep_stack.run(lambda: 3) == 3
    with pytest.raises(KeyError):
        deep_stack.run(lambda: {}["a"])

    def panic():
        raise SystemExit("panic")

    with pytest.raises(RuntimeError, match="panic"):
        deep_stack.run(panic)
    assert threading.stack_size() == before
