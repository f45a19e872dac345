"""Spans of requests: under the client's trace, with sizes, without text."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from ds_jax.errors import ConfigError
from ds_jax.serving.tracing import Tracer
from tests.serving.running import chat, running

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_request_is_a_span_of_its_callers_trace() -> None:
    exporter = InMemorySpanExporter()
    with running() as server:
        server.service.tracer = Tracer("http://nowhere.invalid", exporter)
        parent = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        body = chat("a secret [[A thought.</think>Hello.]]")
        answer = server.http.post("/v1/chat/completions", json=body, headers=parent)
        server.http.post("/v1/chat/completions", json={**body, "model": "none"})
        left_out = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
        server.http.post("/v1/chat/completions", json=body, headers=left_out)
        server.http.get("/v1/anything")
    spans: list[Any] = list(exporter.get_finished_spans())
    assert [span.name for span in spans] == [
        *["POST /v1/chat/completions"] * 2,
        "GET other",
    ]
    first, second, _ = spans
    assert format(first.context.trace_id, "032x") == TRACE
    assert format(first.parent.span_id, "016x") == SPAN
    assert second.parent is None
    assert first.kind is SpanKind.SERVER
    usage = answer.json()["usage"]
    told = first.attributes
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert told["http.response.status_code"] == 200
    assert told["ds_jax.request_id"] == answer.headers["x-request-id"]
    assert first.end_time > first.start_time
    assert second.attributes["http.response.status_code"] == 404
    assert second.attributes["error.type"] == "model_not_found"
    assert second.status.status_code is StatusCode.UNSET
    assert "secret" not in "".join(span.to_json() for span in spans)


def test_without_the_extra_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"ds_jax\[otel\]"):
        Tracer("http://localhost:4318/v1/traces")
