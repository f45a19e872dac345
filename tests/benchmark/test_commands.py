"""The commands drive the engine: phases stay apart, figures have their places in files."""

from __future__ import annotations

import gzip
import json
import pathlib
import xml.etree.ElementTree

import pytest

from ds_jax import config, testing
from ds_jax.benchmark import commands, gains, machine, phases, replica, serve, workload
from ds_jax.pipeline import Pipeline
from tests.engine import replicas

MACHINE = machine.Machine("cpu", 2, matmul_flops=1e9, read_bytes=1e9)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return replicas.one_layer(max_sequences=4, max_context=64, page_tokens=16)


def test_prefill_computes_every_token_of_every_prompt_and_decodes_none(pipeline: Pipeline) -> None:
    found = phases.prefill(pipeline, MACHINE, batch=3, context=20, repeats=1)
    assert (found.phase, found.batch, found.nextn, found.mbu) == ("prefill", 3, 0, None)
    assert 0 < found.step_tokens <= pipeline.loop.scheduler.limits.step_tokens
    assert found.tokens_per_s == pytest.approx(60 / (found.step_s * found.steps))
    assert found.user_tokens_per_s == pytest.approx(found.tokens_per_s / 3)
    assert found.mfu > 0 and found.host_s > 0 and 0 <= found.idle < 1


def test_decode_counts_steps_of_all_sequences_alone(pipeline: Pipeline) -> None:
    found = phases.decode(pipeline, MACHINE, batch=4, context=20, steps=6, repeats=1)
    assert (found.phase, found.step_tokens, found.nextn) == ("decode", 4, 0)
    assert 1 < found.steps <= 6 + phases.SETTLING
    assert found.tokens_per_s == pytest.approx(4 / found.step_s)
    assert found.mbu is not None and found.mbu > 0
    text = phases.table([found])
    assert "| decode | 4 | 20 | 4 | 0 |" in text


def test_a_served_trace_hits_what_it_can(pipeline: Pipeline) -> None:
    sizes = workload.Sizes(12, 50.0, 2, shared_tokens=32, own_tokens=6, new_tokens=5)
    trace = workload.poisson(sizes, 96)
    served = serve.serve(pipeline, trace)
    assert served.cached_tokens == served.ideal_tokens > 0
    assert served.new_tokens == sum(a.new_tokens for a in trace)
    assert len(served.first_token_s) == 12
    assert len(served.between_s) == served.new_tokens - 12
    assert min(served.first_token_s) > 0
    text = serve.table(served)
    assert f"{served.hit_rate:.2%}, {served.ideal_rate:.2%}" in text and "p99" in text
    again = serve.serve(pipeline, trace[:3])
    assert again.cached_tokens > again.ideal_tokens, "the cache knows them all"


def test_gains_are_ratios_of_what_was_measured(pipeline: Pipeline) -> None:
    idle = gains.overlap(pipeline, requests=3, repeats=1)
    faster = gains.batching(pipeline, sequences=4, new_tokens=6, repeats=2)
    cached = gains.prefix(pipeline, tokens=40, repeats=1)
    assert pipeline.loop.overlap
    assert len(faster.having) == len(faster.lacking) == 2
    assert cached.ratio == cached.having[0] / cached.lacking[0]
    assert gains.table([idle, faster, cached]).count("\n") == 4


def test_a_command_writes_json_a_plot_and_a_trace(tmp_path: pathlib.Path) -> None:
    model = testing.tiny_model(
        num_hidden_layers=1,
        compress_ratios=(0,),
        kv_source_layer_ids=(),
        index_source_layer_ids=(),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )
    source = tmp_path / "config.json"
    source.write_text(config.dump(model), encoding="utf-8")
    same = commands.Replicas(str(source), chunk_tokens=(16,), profile=str(tmp_path / "trace"))
    report = commands.prefill(same, (1,), context=12, step_tokens=(16, 32), repeats=1)
    values = json.loads(json.dumps(report.values))
    assert [one["step_tokens"] for one in values["phases"]] == [12, 12]
    assert values["about"]["source"] == str(source)
    drawn = xml.etree.ElementTree.fromstring(report.picture())
    assert len(drawn.findall("{*}circle")) == 2
    trace = replica.trace_file(str(tmp_path / "trace"))
    assert str(trace) in report.text
    assert json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
