"""Drafters of checkpoints that are not what they should be are refused by name."""

from __future__ import annotations

import json
import pathlib
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import config, pipeline
from ds_jax.checkpoint import loader, writer
from ds_jax.errors import CheckpointError, ConfigError
from ds_jax.training import dspark_report


@pytest.fixture
def folder(golden: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return pathlib.Path(shutil.copytree(golden / "model" / "dspark", tmp_path / "dspark"))


def test_renamed_drafter_tensor_is_named(folder: pathlib.Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(
        path.read_bytes().replace(b"mtp.0.main_norm.weight", b"mtp.0.main_nope.weight")
    )
    model = config.load_model(folder)
    with pytest.raises(CheckpointError, match=r"missing tensors[\s\S]*mtp\.0\.main_norm\.weight"):
        loader.load(folder, model, drafter=True)
    assert loader.load(folder, model).drafter is None  # plain decoding does not need it


def test_drafter_comes_back_as_it_was_written(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    model = config.load_model(folder)
    params = loader.load(folder, model, weights="dequantized", dtype=jnp.float32, drafter=True)
    writer.save(tmp_path / "again", model, params, quantize=False)
    found = loader.load(
        tmp_path / "again", model, weights="dequantized", dtype=jnp.float32, drafter=True
    )
    assert params.drafter is not None and found.drafter is not None
    for name in ("main_proj", "markov_embed", "confidence"):
        np.testing.assert_array_equal(getattr(found.drafter, name), getattr(params.drafter, name))


def test_calibration_with_too_few_temperatures_is_refused(folder: pathlib.Path) -> None:
    path = folder / pipeline.CALIBRATION
    assert pipeline.calibrated(folder, 3) == ()
    path.write_text(json.dumps({"confidence_temperatures": [1.5, 2.0]}))
    assert pipeline.calibrated(folder, 1) == (1.5,)
    with pytest.raises(ConfigError, match=r"has 2 confidence_temperatures for nextn=3"):
        pipeline.calibrated(folder, 3)
    path.write_text("[]")
    with pytest.raises(ConfigError, match="holds no confidence_temperatures"):
        pipeline.calibrated(folder, 1)


def test_figures_of_a_report_follow_from_blocks() -> None:
    sure = np.tile(np.array([[0.9, 0.5], [0.4, 0.6]]), (50, 1))
    accepted = np.tile(np.array([2, 0]), 50)
    report = dspark_report.form(sure, accepted)
    assert report.blocks == 100 and report.accepted_length == 2.0
    assert report.reached == (0.5, 0.5) and report.accepted == (0.5, 1.0)
    assert report.auc[0] == 1.0 and report.auc_all > 0.6
    assert "2.00 tokens a step" in report.table()
