"""The benchmark times the engine's own steps and relates them to the machine."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import ds_jax
from ds_jax import config, testing
from ds_jax.benchmark import machine, offline, report

ROOT = pathlib.Path(ds_jax.__file__).parents[1]
MACHINE = machine.Machine("cpu", 2, matmul_flops=1e9, read_bytes=1e9)


def two_layers() -> config.Model:
    return testing.tiny_model(
        num_hidden_layers=2,
        compress_ratios=(0, 2),
        kv_source_layer_ids=(1,),
        index_source_layer_ids=(1,),
        candidate_source_layer_id=None,
        engram_layer_ids=(),
        engram_num_embeddings=(),
    )


def test_steps_are_timed_at_every_batch():
    workload = offline.Workload(prompt_tokens=16, new_tokens=3, batches=(2,), repeats=2)
    runner = offline.make_runner(two_layers(), workload)
    filled = offline.prefill(runner, workload, 2, all_logits=False)
    decoded = offline.decode(runner, workload, 2)
    assert (filled.tokens, decoded.tokens) == (32, 6)
    assert len(filled.seconds) == len(decoded.seconds) == 2
    assert 0 < filled.tokens_per_s <= filled.best_tokens_per_s
    assert np.any(np.asarray(runner.state.recent)[:2]), "tokens were fed back on the device"


def test_fraction_is_work_over_time_over_the_limit():
    workload = offline.Workload(prompt_tokens=16, new_tokens=4, batches=(1,))
    timing = offline.Timing("prefill", 1, 16, (2.0, 1.0, 4.0))
    line = report.line(two_layers(), config.FLOAT32, workload, timing, MACHINE)
    assert timing.tokens_per_s == 8 and timing.best_tokens_per_s == 16
    assert line.fraction == pytest.approx(line.work / 2.0 / 1e9)
    assert line.limit == "matmul peak"
    decoding = offline.Timing("decode", 1, 4, (0.5,))
    line = report.line(two_layers(), config.FLOAT32, workload, decoding, MACHINE)
    assert line.limit == "bandwidth" and line.fraction == pytest.approx(line.work / 0.5 / 1e9)


def test_table_and_record_hold_every_figure():
    workload = offline.Workload(prompt_tokens=16, new_tokens=4, batches=(1,))
    timing = offline.Timing("decode", 1, 4, (0.5,))
    lines = [report.line(two_layers(), config.FLOAT32, workload, timing, MACHINE)]
    starts = {"checkpoint": "tiny", "cold_s": 30.0, "warm_s": [4.0, 5.0]}
    text = report.table(lines, MACHINE, starts)
    assert "| decode | 1 | 8.0 (8.0) |" in text and "30.0 s" in text and "4.0, 5.0 s" in text
    values = json.loads(json.dumps(report.record(lines, MACHINE, starts, {"jax": "x"})))
    assert values["lines"][0]["tokens_per_s"] == 8.0
    assert report.table(lines, None, None).count("\n") == 2


def test_limits_of_the_machine_are_above_zero():
    found = machine.measure(size=64, read_mib=1, repeats=1)
    assert found.matmul_flops > 0 and found.read_bytes > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--parts=speed"], "--parts=speed: must be some of machine"),
        (["--parts=prefill", "--batches=1,x"], "--batches=1,x"),
        (["--parts=prefill", "--config=nowhere.json"], "nowhere.json"),
        (["now"], "unexpected argument"),
    ],
)
def test_mistakes_of_a_user_are_one_line(arguments, message):
    command = [sys.executable, "-m", "ds_jax.benchmark", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1
