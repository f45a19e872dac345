"""The guide names every setting, endpoint and metric as it is."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

from ds_jax.serving.settings import HELP, Settings
from tests.serving.running import running

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def row(field: dataclasses.Field[object]) -> str:
    """A line of the table of settings."""
    default = field.default
    shown = ",".join(default) if isinstance(default, tuple) else default
    return f"| `--{field.name}` | {'' if default is None else shown} | {HELP[field.name]} |"


def test_the_guide_has_a_row_for_each_setting() -> None:
    text = (DOCS / "serving.md").read_text(encoding="utf-8")
    found = [line for line in text.splitlines() if line.startswith("| `--")]
    assert found == [row(field) for field in dataclasses.fields(Settings)]
    assert set(HELP) == {field.name for field in dataclasses.fields(Settings)}


def test_the_guide_names_each_endpoint() -> None:
    text = (DOCS / "serving.md").read_text(encoding="utf-8")
    with running() as server:
        paths = server.http.get("/openapi.json").json()["paths"]
    for path in paths:
        if "{" not in path:
            assert f"`{path}`" in text, path


def test_the_dashboard_reads_metrics_that_are_there() -> None:
    board = json.loads((DOCS / "serving" / "grafana.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"(?:vllm|ds_jax):\w+", target["expr"])
    }
    with running() as server:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
        server.http.post("/v1/chat/completions", json=body)
        text = server.http.get("/metrics").text
    # a family with labels of its own has no sample before the first event
    there = set(re.findall(r"^(\S+?)\{", text, re.MULTILINE)) | {
        f"{name}_total" for name in re.findall(r"^# TYPE (\S+?)_total counter", text, re.MULTILINE)
    }
    assert len(asked) > 12
    assert asked <= there, asked - there


def test_the_page_needs_nothing_from_elsewhere() -> None:
    with running() as server:
        answer = server.http.get("/")
        without = server.http.get("/metrics")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.findall(r"(?:src|href)=|https?://|@import", answer.text)
    assert "/v1/chat/completions" in answer.text
    assert without.status_code == 200
    with running(page=False) as server:
        assert server.http.get("/").status_code == 404
