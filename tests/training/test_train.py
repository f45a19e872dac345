"""Gradients arrive everywhere, what is trained is what is shipped, and training lowers the loss."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib

import jax
import numpy as np
import optax.tree_utils
import pytest

import ds_jax
from ds_jax import config, errors, testing
from ds_jax.checkpoint import loader, quantize
from ds_jax.models import deepseek_v41, engram, memory, token_map
from ds_jax.models.context import Context
from ds_jax.pallas_kernels import matmul
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.sharding.params import QuantArray
from ds_jax.training import export, loss, rows, tasks, text, train

TOKENIZER = pathlib.Path(ds_jax.__file__).parent / "assets" / "tiny" / "tokenizer.json"
WIDTH = 65  # tokens of a row, the first of which nothing predicts
BATCH = 8
RECIPE = train.Recipe(steps=50, batch_rows=BATCH, warmup=5)
WITHOUT_GRADIENT = {"bias", "bias_vl"}  # moved by the loads, not by the loss


@pytest.fixture(autouse=True)
def as_in_a_run():
    """Optax mixes integers and floats; compiled without optimisation, updates turn to NaN."""
    kept = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jax.config.update("jax_disable_most_optimizations", kept)


def small_model() -> config.Model:
    """One layer of each kind, the embedded model's vocabulary, FP8/FP4 weights."""
    return testing.tiny_model(
        vocab_size=3072,
        num_hidden_layers=4,
        compress_ratios=(0, 2, 2, 2),
        kv_source_layer_ids=(1,),
        index_source_layer_ids=(1, 3),
        candidate_source_layer_id=1,
        engram_num_embeddings=(128,),
        engram_max_ngram_size=2,
        engram_compressed_vocab_size=2317,
        hc_mult=2,
        quantization=config.Quantization(),
    )


def two_layers() -> config.Model:
    """Window-only and full, quantised."""
    return testing.tiny_model(
        num_hidden_layers=2,
        compress_ratios=(0, 2),
        kv_source_layer_ids=(1,),
        index_source_layer_ids=(1,),
        candidate_source_layer_id=None,
        quantization=config.Quantization(),
    )


def dialogue_rows(count: int) -> rows.Rows:
    """Rows of one short dialogue each."""
    tokenizer = Tokenizer.from_file(TOKENIZER)
    tokens = np.full((count, WIDTH), 2, np.int32)
    weights = np.zeros((count, WIDTH), np.float32)
    encoded = (tasks.encode(d, tokenizer) for d in tasks.generate(0, "train"))
    fitting = ((ids, mask) for ids, mask in encoded if len(ids) <= WIDTH)
    for row, (ids, mask) in enumerate(itertools.islice(fitting, count)):
        tokens[row, : len(ids)] = ids
        weights[row, : len(ids)] = np.where(mask, 1.0, 0.1)
    return rows.Rows(tokens, weights, {})


def tables_of(model: config.Model) -> engram.HashTables:
    return engram.hash_tables(model, token_map.for_model(TOKENIZER, model))


def test_gradients_reach_every_trainable_parameter():
    model = small_model()
    step = train.make_step(model, config.RELEASED, RECIPE, tables_of(model))
    data = dialogue_rows(BATCH)
    state, measures = step(train.init(model, RECIPE), data.tokens, data.weights, np.float32(1e-3))
    assert np.isfinite(measures.loss)
    # Muon and AdamW hold the first moments of their own parameters each.
    found = optax.tree_utils.tree_get_all_with_path(state.optimizer, "mu")
    moments = [leaf for _, tree in found for leaf in jax.tree_util.tree_leaves_with_path(tree)]
    assert len(moments) == len(jax.tree.leaves(state.params))
    without = {
        jax.tree_util.keystr(path, simple=True, separator=".")
        for path, moment in moments
        if not np.any(moment)
    }
    assert {name.rsplit(".", 1)[-1] for name in without} <= WITHOUT_GRADIENT, sorted(without)
    assert {name.rsplit(".", 1)[-1] for name in without} == WITHOUT_GRADIENT


def test_trained_forward_is_the_shipped_forward(tmp_path):
    model = two_layers()
    state = train.init(model, train.Recipe(steps=1))
    export.writer.save(tmp_path / "out", model, state.params)
    spec = deepseek_v41.spec(model)
    trained = quantize.fake_quantize(spec, state.params)
    shipped = loader.load(tmp_path / "out", model, dtype=np.float32)
    expanded = jax.tree.map(
        lambda a: matmul.dequantize(a, np.dtype("float32")),
        shipped,
        is_leaf=lambda a: isinstance(a, QuantArray),
    )
    jax.tree.map(np.testing.assert_array_equal, trained, expanded)

    numerics = dataclasses.replace(config.RELEASED, storage="float32")
    ctx = Context(model, numerics, moe_path="dense")
    tables = engram.hash_tables(model, np.arange(model.vocab_size, dtype=np.int32))
    ids = np.array([testing.prompt(24)], np.int32)

    @jax.jit
    def forward(params):
        batch = loss.whole_rows(model, jax.numpy.asarray(ids))
        _, out, _ = deepseek_v41.forward(ctx, memory.Access(None, True), params, tables, batch)
        return deepseek_v41.logits(ctx, params, out.hidden[0])

    np.testing.assert_array_equal(forward(trained), forward(shipped))


def test_export_writes_the_released_layout(tmp_path):
    model = two_layers()
    model = dataclasses.replace(model, vocab_size=3072, engram_compressed_vocab_size=2317)
    state = train.init(model, train.Recipe(steps=1))
    size = export.export(state, model, TOKENIZER, tmp_path / "out")
    files = {file.name for file in (tmp_path / "out").iterdir()}
    assert files == {"config.json", "model.safetensors", "tokenizer.json"}
    assert size == sum(file.stat().st_size for file in (tmp_path / "out").iterdir())
    assert config.load_model(tmp_path / "out" / "config.json") == model
    with pytest.raises(errors.CheckpointError, match="already exists"):
        export.export(state, model, TOKENIZER, tmp_path / "out")
    with pytest.raises(errors.ConfigError, match="no such tokenizer"):
        export.export(state, model, tmp_path / "tokenizer.json", tmp_path / "other")


def test_rows_of_another_vocabulary_are_refused(tmp_path):
    data = dialogue_rows(BATCH)
    recipe = train.Recipe(steps=1, batch_rows=BATCH)
    with pytest.raises(errors.ConfigError, match="vocab_size=96"):
        text.train_text(two_layers(), config.RELEASED, recipe, data, TOKENIZER, tmp_path)
    with pytest.raises(errors.ConfigError, match="batch_rows=9"):
        recipe = train.Recipe(steps=1, batch_rows=9)
        text.train_text(two_layers(), config.RELEASED, recipe, data, TOKENIZER, tmp_path)
    assert not list(tmp_path.iterdir())


def test_batches_are_a_function_of_seed_and_step():
    tokens, weights = np.arange(10)[:, None], np.ones((10, 1))
    whole = list(itertools.islice(train.batches(tokens, weights, 4, 3, 0), 6))
    resumed = list(itertools.islice(train.batches(tokens, weights, 4, 3, 3), 3))
    for (a, _), (b, _) in zip(whole[3:], resumed, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_loss_falls_in_fifty_steps(tmp_path):
    model = small_model()
    data = dialogue_rows(200)
    state = text.train_text(
        model, config.RELEASED, RECIPE, data, TOKENIZER, tmp_path, save_every=50
    )
    lines = [json.loads(line) for line in (tmp_path / text.LOG).read_text().splitlines()]
    losses = [line["loss"] for line in lines]
    assert len(losses) == 50 and int(state.step) == 50
    assert np.mean(losses[-5:]) < 0.6 * np.mean(losses[:5])
    again = export.restore(tmp_path / "step50", model)
    jax.tree.map(np.testing.assert_array_equal, state.params, again.params)
    with pytest.raises(errors.ConfigError, match="holds a run already"):
        text.train_text(model, config.RELEASED, RECIPE, data, TOKENIZER, tmp_path)
