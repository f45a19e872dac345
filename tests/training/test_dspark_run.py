"""A drafter from the command line: trained, gone on with, exported, drafting."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import ds_jax
from ds_jax import Pipeline, SamplingParams, config, testing
from ds_jax.checkpoint import reader, writer
from ds_jax.models import deepseek_v41
from ds_jax.sharding import params as parameters
from ds_jax.training import dspark, prepare, rows

TOKENIZER = pathlib.Path(ds_jax.__file__).parent / "assets" / "tiny" / "tokenizer.json"
ROW = 33


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A checkpoint without drafter, whose config has its sizes; and packed rows."""
    folder = tmp_path_factory.mktemp("dspark")
    model = testing.smallest_drafting_model(vocab_size=3072, quantization=config.Quantization())
    params = parameters.initialize(deepseek_v41.spec(model), 0)
    files = {"tokenizer.json": TOKENIZER.read_bytes()}
    writer.save(folder / "target", model, params, quantize=True, files=files)
    ids = np.random.default_rng(0).integers(100, 3000, (4, ROW)).astype(np.int32)
    packed = rows.Rows(ids, np.ones(ids.shape, np.float32), {"prose": ids.size})
    prepare.save_rows(folder / "rows.npz", packed)
    return folder


def _run(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    checkpoint = folder / "target"
    command = [sys.executable, "-m", "ds_jax.training", *arguments]
    command += [f"--checkpoint={checkpoint}", f"--config={checkpoint / 'config.json'}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_drafter_is_trained_resumed_and_exported(target: pathlib.Path):
    run, out = target / "run", target / "with_drafter"
    common = (f"--rows={target / 'rows.npz'}", f"--out={run}", "--batch_rows=2", "--anchors=2")
    trained = _run(target, "dspark", *common, "--steps=2", "--save_every=2")
    assert trained.returncode == 0, trained.stderr
    again = _run(target, "dspark", *common, "--steps=3")
    assert again.returncode == 2 and "holds a run already" in again.stderr
    resume = f"--resume={run / 'step2'}"
    resumed = _run(target, "dspark", *common, "--steps=4", "--save_every=2", resume)
    assert resumed.returncode == 0, resumed.stderr
    log = [json.loads(line) for line in (run / dspark.LOG).read_text().splitlines()]
    assert [line["step"] for line in log] == [0, 1, 2, 3]
    measured = ("cross_entropy", "l1", "confidence", "length")
    assert all(np.isfinite(line[name]) for line in log for name in measured)

    exported = _run(target, "dspark_export", f"--state={run / 'step4'}", f"--out={out}")
    assert exported.returncode == 0, exported.stderr
    assert "after 4 steps" in exported.stdout
    plain, drafting = reader.Checkpoint(target / "target"), reader.Checkpoint(out)
    assert any(name.startswith("mtp.0.") for name in drafting.tensors)
    kept = [name for name in drafting.tensors if not name.startswith("mtp.")]
    assert sorted(kept) == sorted(plain.tensors)

    greedy = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
    sizes = {"max_sequences": 1, "max_context": 64, "program_cache": None}
    told = [
        Pipeline.from_checkpoint(str(folder), nextn=nextn, **sizes).generate([[5, 6, 7]], greedy)
        for folder, nextn in ((target / "target", 0), (out, 5))
    ]
    assert told[0][0].token_ids == told[1][0].token_ids


def test_a_config_without_drafter_is_refused(target: pathlib.Path):
    tiny = TOKENIZER.parent / "config.json"
    given = json.loads(tiny.read_text())
    text = given["text_config"]
    text["num_nextn_predict_layers"] = 0
    text["compress_ratios"] = text["compress_ratios"][: text["num_hidden_layers"]]
    for name in [n for n in text if n.startswith("dspark_")]:
        del text[name]
    path = target / "plain.json"
    path.write_text(json.dumps(given))
    command = [sys.executable, "-m", "ds_jax.training", "dspark", f"--config={path}"]
    command += [f"--rows={target / 'rows.npz'}", f"--out={target / 'nothing'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "the config has no drafter" in done.stderr
    assert not (target / "nothing").exists()
