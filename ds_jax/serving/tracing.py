"""Requests as spans of OpenTelemetry.

Decides what a span says: names, times, sizes and outcomes, never text. A span is made when its
request has ended, under the trace that the client's `traceparent` names. Never samples on its own:
what the client's trace leaves out is left out. In: exchanges. Out: spans, sent by OTLP over HTTP
from a thread of the library.

The library is imported only where an endpoint is given.
"""

from __future__ import annotations

import time
from typing import Any

import ds_jax
from ds_jax.errors import ConfigError
from ds_jax.serving.exchange import Exchange

_NOTES = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "ds_jax.cached_tokens",
    "ttft_ms": "ds_jax.ttft_ms",
    "finish_reason": "ds_jax.finish_reason",
    "error": "error.type",
}
"""Attributes, by their names in the log."""


class Tracer:
    """Methods mutate it.

    Args:
      endpoint: URL that takes OTLP traces, such as `http://localhost:4318/v1/traces`.
      exporter: instead of one that sends to `endpoint`.

    Raises: ConfigError: the extra is not installed.
    """

    def __init__(self, endpoint: str, exporter: Any = None):
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise ConfigError(
                f"--otlp_endpoint={endpoint}: spans need {error.name}; install the extra: "
                "pip install 'ds_jax[otel]'"
            ) from error
        about = {"service.name": "ds_jax", "service.version": ds_jax.__version__}
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        exporter = exporter or OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ds_jax.serving")
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._trace = trace

    def record(self, exchange: Exchange, route: str, seconds: float) -> None:
        """The span of a request that has just ended.

        Args:
          route: its path without names of things.
          seconds: how long it took.
        """
        parent = exchange.headers.get(b"traceparent", b"").decode("latin-1")
        end_ns, trace = time.time_ns(), self._trace
        status = exchange.status or 499
        attributes: dict[str, Any] = {
            "http.request.method": exchange.scope["method"],
            "http.route": route,
            "http.response.status_code": status,
            "ds_jax.request_id": exchange.request_id,
            "ds_jax.key": exchange.principal.name,
        }
        for note, name in _NOTES.items():
            value = exchange.notes.get(note)
            if value is not None:
                attributes[name] = value
        span = self._tracer.start_span(
            f"{exchange.scope['method']} {route}",
            context=self._propagator.extract({"traceparent": parent}),
            kind=trace.SpanKind.SERVER,
            start_time=end_ns - int(seconds * 1e9),
            attributes=attributes,
        )
        if status >= 500:
            span.set_status(trace.StatusCode.ERROR)
        span.end(end_time=end_ns)

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()
