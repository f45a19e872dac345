"""What Prometheus reads, read as Prometheus does; and the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openapi_spec_validator
import pytest
from prometheus_client.parser import text_string_to_metric_families

from ds_jax.serving import app, openapi
from tests.serving.running import Running, chat, running

COUNTERS = (
    *("vllm:prompt_tokens", "vllm:prompt_tokens_cached", "vllm:prompt_tokens_by_source"),
    *("vllm:generation_tokens", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"),
    *("vllm:external_prefix_cache_queries", "vllm:external_prefix_cache_hits"),
    *("vllm:request_success", "vllm:num_preemptions", "vllm:admission_rejections"),
)
GAUGES = (
    *("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"),
    *("vllm:num_requests_waiting_by_reason", "vllm:cache_config_info"),
)
HISTOGRAMS = (
    *("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"),
    *("vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds"),
    *("vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds"),
    *("vllm:request_decode_time_seconds", "vllm:request_inference_time_seconds"),
    *("vllm:request_prompt_tokens", "vllm:request_generation_tokens"),
    *("vllm:iteration_tokens_total",),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as found:
        yield found


def scrape(server: Running) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by sample name and by the labels that differ."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(server.http.get("/metrics").text):
        for sample in family.samples:
            labels = tuple(v for k, v in sorted(sample.labels.items()) if k != "model_name")
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def total(found: dict[tuple[str, ...], float]) -> float:
    return sum(found.values())


def test_every_name_is_there(server: Running) -> None:
    server.http.post("/v1/chat/completions", json=chat("hi"))
    families = {
        family.name: family.type
        for family in text_string_to_metric_families(server.http.get("/metrics").text)
    }
    for names, kind in ((COUNTERS, "counter"), (GAUGES, "gauge"), (HISTOGRAMS, "histogram")):
        for name in names:
            assert families.get(name) == kind, name


def test_counters_move_by_the_right_numbers(server: Running) -> None:
    body = chat("k l m " * 150)
    before = scrape(server)
    usages = [server.http.post("/v1/chat/completions", json=body).json()["usage"] for _ in range(2)]
    after = scrape(server)

    def moved(name: str) -> float:
        return total(after[name]) - total(before.get(name, {}))

    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_cache_hit_tokens"] for usage in usages)
    done = sum(usage["completion_tokens"] for usage in usages)
    assert cached > 128
    assert moved("vllm:prompt_tokens_total") == prompt
    assert moved("vllm:prompt_tokens_cached_total") == cached
    assert moved("vllm:prompt_tokens_by_source_total") == prompt
    assert moved("vllm:prefix_cache_queries_total") == prompt
    assert moved("vllm:prefix_cache_hits_total") == cached
    assert moved("vllm:generation_tokens_total") == done
    assert moved("vllm:request_success_total") == 2
    assert moved("vllm:time_to_first_token_seconds_count") == 2
    assert moved("vllm:e2e_request_latency_seconds_count") == 2
    assert moved("vllm:inter_token_latency_seconds_count") >= done - 2
    by_reason = after["vllm:request_success_total"]
    assert ("0", "stop") in by_reason


def test_answers_are_counted_by_path_and_status(server: Running) -> None:
    server.http.get("/made/up/path")
    server.http.get("/v1/models/tiny")
    found = scrape(server)["ds_jax:http_requests_total"]
    assert ("other", "404") in found
    assert ("/v1/models", "200") in found
    assert all("made" not in label for labels in found for label in labels)


def test_load_says_what_is_under_way(server: Running) -> None:
    found = server.http.get("/load").json()
    assert (found["server_load"], found["running"], found["waiting"]) == (0, 0, 0)
    assert found["max_running"] == 20


def test_the_openapi_document_is_valid_and_complete(server: Running) -> None:
    document: Any = server.http.get("/openapi.json").json()
    openapi_spec_validator.validate(document)
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in app.make(server.service)._routes.routes  # type: ignore[attr-defined]
        for method in route.methods - {"HEAD"}
    }
    named = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert named == routes - {("/", "get"), ("/openapi.json", "get")}


def test_the_document_knows_the_fields_that_count(server: Running) -> None:
    from ds_jax.serving import extras

    paths = openapi.document(server.service)["paths"]
    for endpoint, path in (
        *(("chat", "/v1/chat/completions"), ("completions", "/v1/completions")),
        *(("responses", "/v1/responses"), ("messages", "/v1/messages")),
    ):
        content = paths[path]["post"]["requestBody"]["content"]
        properties = set(content["application/json"]["schema"]["properties"])
        assert properties <= extras.KNOWN[endpoint], path
    json.dumps(paths)
