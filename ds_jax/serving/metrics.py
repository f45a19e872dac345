"""What Prometheus reads.

Decides names, labels and buckets. Names are vLLM's, so that its dashboards and balancers work here;
what vLLM does not have begins with `ds_jax:`. Never decides what happens. In: observations, and an
engine's numbers when they are asked for. Out: the text of `/metrics`.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ds_jax.errors import ConfigError

try:
    import prometheus_client as prometheus
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
except ImportError as error:
    raise ConfigError(
        "the service needs prometheus-client; install the extra: pip install 'ds_jax[serve]'"
    ) from error

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5)
FIRST_TOKEN_BUCKETS = (*_SHORT, 10, 20, 40, 80, 160, 640, 2560)
TOKEN_BUCKETS = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    10,
)
REQUEST_BUCKETS = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
SIZE_BUCKETS = tuple(float(2**n) for n in range(0, 21))

GAUGES = {
    "vllm:num_requests_running": ("running", "Sequences the engine works on."),
    "ds_jax:pages_held": ("pages_held", "Pages of running sequences."),
    "ds_jax:pages_cached": ("pages_cached", "Pages kept for later prompts."),
}
COUNTERS = {
    "vllm:num_preemptions": ("preemptions_total", "Sequences that lost their pages."),
    "vllm:prefix_cache_queries": ("prefix_query_tokens_total", "Prompt tokens looked up."),
    "vllm:prefix_cache_hits": ("prefix_hit_tokens_total", "Prompt tokens found."),
    "ds_jax:engine_steps": ("steps_total", "Steps planned."),
    "ds_jax:pages_evicted": ("pages_evicted_total", "Cached pages dropped."),
    "vllm:spec_decode_num_drafts": ("drafting_rounds_total", "Rounds of drafting."),
    "vllm:spec_decode_num_draft_tokens": ("drafts_verified_total", "Drafts verified."),
    "vllm:spec_decode_num_accepted_tokens": ("drafts_accepted_total", "Drafts accepted."),
}


class Histogram:
    """A histogram that is cheap to add to: the library's takes six times as long.

    `observe` mutates it.
    """

    def __init__(self, name: str, help_text: str, buckets: Iterable[float]):
        self._name, self._help = name, help_text
        self._buckets = tuple(map(float, buckets))
        self._counts = [0] * (len(self._buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """One more value, or several that are alike."""
        self._counts[bisect.bisect_left(self._buckets, value)] += times
        self._sum += value * times

    def collect(self, labels: Mapping[str, str]) -> Metric:
        """What Prometheus reads."""
        family = HistogramMetricFamily(self._name, self._help, labels=list(labels))
        below, cumulative = 0, list[tuple[str, float]]()
        for bound, count in zip((*map(str, self._buckets), "+Inf"), self._counts, strict=True):
            below += count
            cumulative.append((bound, float(below)))
        family.add_metric(list(labels.values()), cumulative, self._sum)
        return family


class Metrics:
    """Observations of one server. Methods mutate it.

    Args:
      model: label `model_name`.
      engine: the engine's numbers, read when metrics are.
      waiting: requests that wait for a place in front of the engine.
      page_tokens: tokens of a cache page.
    """

    def __init__(
        self,
        model: str,
        engine: Callable[[], Mapping[str, int | float]],
        waiting: Callable[[], int],
        page_tokens: int,
    ):
        self.registry = prometheus.CollectorRegistry()
        self._labels = {"model_name": model, "engine": "0"}
        self._engine, self._waiting, self._page_tokens = engine, waiting, page_tokens
        labelled = self._labelled
        count = prometheus.Counter
        self.prompt_tokens = labelled(count, "vllm:prompt_tokens", "Prompt tokens.")
        self.prompt_tokens_cached = labelled(
            count, "vllm:prompt_tokens_cached", "Prompt tokens that were cached."
        )
        by_source = count(
            "vllm:prompt_tokens_by_source",
            "Prompt tokens by where their rows came from.",
            [*self._labels, "source"],
            registry=self.registry,
        )
        self.prompt_tokens_by_source = {
            source: by_source.labels(**self._labels, source=source)
            for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
        }
        self.generated = 0  # tokens; a plain number, for it grows with every token
        for name, help_text in (
            ("external_prefix_cache_queries", "Tokens looked up in a tier outside the device."),
            ("external_prefix_cache_hits", "Tokens found there."),
        ):
            labelled(count, f"vllm:{name}", help_text)
        self._histograms: list[Histogram] = []
        times = self._histogram
        self.first_token_s = times(
            "vllm:time_to_first_token_seconds", "To the first token.", FIRST_TOKEN_BUCKETS
        )
        self.inter_token_s = times(
            "vllm:inter_token_latency_seconds", "Between tokens.", TOKEN_BUCKETS
        )
        self.per_token_s = times(
            "vllm:request_time_per_output_token_seconds",
            "Mean time of a token behind the first, a request.",
            TOKEN_BUCKETS,
        )
        self.request_s, self.queue_s, self.prefill_s, self.decode_s, self.inference_s = (
            times(f"vllm:{name}_seconds", help_text, REQUEST_BUCKETS)
            for name, help_text in (
                ("e2e_request_latency", "Whole requests."),
                ("request_queue_time", "In front of the engine."),
                ("request_prefill_time", "From the engine to the first token."),
                ("request_decode_time", "From the first token to the last."),
                ("request_inference_time", "In the engine."),
            )
        )
        self.prompt_size = times(
            "vllm:request_prompt_tokens", "Prompt tokens of a request.", SIZE_BUCKETS
        )
        self.output_size = times(
            "vllm:request_generation_tokens", "Tokens of an answer.", SIZE_BUCKETS
        )
        self.batch_tokens = times(
            "vllm:iteration_tokens_total", "Tokens that came at once.", SIZE_BUCKETS
        )
        self._success = self._family("vllm:request_success", "Requests.", "finished_reason")
        self._rejections = self._family("vllm:admission_rejections", "Sent away.", "reason")
        self._http = count(
            "ds_jax:http_requests",
            "Answers by path and status.",
            ["path", "status"],
            registry=self.registry,
        )
        self.cancelled = labelled(count, "ds_jax:requests_cancelled", "Clients that went away.")
        self.slow_readers = labelled(count, "ds_jax:slow_readers_cut", "Clients too slow to read.")
        self.restarts = labelled(count, "ds_jax:engine_restarts", "Engines replaced.")
        self._children: dict[object, Any] = {}  # found by labels once, for that takes long
        self.registry.register(self)  # type: ignore[arg-type]

    def succeeded(self, reason: str) -> None:
        """A sequence has ended."""
        child = self._children.get(reason)
        if child is None:
            child = self._success.labels(**self._labels, finished_reason=reason)
            self._children[reason] = child
        child.inc()

    def rejected(self, reason: str) -> None:
        """A request was sent away."""
        self._rejections.labels(**self._labels, reason=reason).inc()

    def answered(self, path: str, status: int) -> None:
        """An answer was sent."""
        child = self._children.get((path, status))
        if child is None:
            child = self._http.labels(path=path, status=str(status))
            self._children[path, status] = child
        child.inc()

    def text(self) -> bytes:
        """Everything in the Prometheus text format."""
        return prometheus.generate_latest(self.registry)

    def collect(self) -> Iterable[Metric]:
        """The engine's numbers; called by the registry."""
        labels, stats = self._labels, self._engine()
        names, values = list(labels), list(labels.values())
        for name, (key, help_text) in GAUGES.items():
            yield _gauge(name, help_text, labels, float(stats.get(key, 0)))
        capacity = self._waiting() + stats.get("waiting", 0)
        yield _gauge("vllm:num_requests_waiting", "Requests that wait.", labels, float(capacity))
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Requests that wait.", labels=[*names, "reason"]
        )
        by_reason.add_metric([*values, "capacity"], float(capacity))
        by_reason.add_metric([*values, "deferred"], 0.0)
        yield by_reason
        pages = stats.get("pages", 0)
        used = stats.get("pages_held", 0) / pages if pages else 0.0
        yield _gauge("vllm:kv_cache_usage_perc", "Share of pages in use, 0 to 1.", labels, used)
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Sizes of the cache.",
            labels=[*names, "block_size", "num_gpu_blocks"],
        )
        info.add_metric([*values, str(self._page_tokens), str(int(pages))], 1.0)
        yield info
        for histogram in self._histograms:
            yield histogram.collect(labels)
        done = CounterMetricFamily("vllm:generation_tokens", "Tokens generated.", labels=names)
        done.add_metric(values, float(self.generated))
        yield done
        for name, (key, help_text) in COUNTERS.items():
            if key in stats:
                family = CounterMetricFamily(name, help_text, labels=names)
                family.add_metric(values, float(stats[key]))
                yield family

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: the engine need not be there yet."""
        return ()

    def _family(self, name: str, help_text: str, label: str) -> Any:
        names = [*self._labels, label]
        return prometheus.Counter(name, help_text, names, registry=self.registry)

    def _labelled(self, kind: Any, name: str, help_text: str) -> Any:
        family = kind(name, help_text, list(self._labels), registry=self.registry)
        return family.labels(**self._labels)

    def _histogram(self, name: str, help_text: str, buckets: Iterable[float]) -> Histogram:
        self._histograms.append(Histogram(name, help_text, buckets))
        return self._histograms[-1]


def _gauge(name: str, help_text: str, labels: Mapping[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
