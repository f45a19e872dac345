"""The pipeline: results, streams, errors that say what to do."""

from __future__ import annotations

import json
import pathlib
import shutil
from typing import Any

import numpy as np
import pytest

from ds_jax import Pipeline, SamplingParams
from ds_jax.config import LayerKind
from ds_jax.errors import CheckpointError, ConfigError, RequestError
from ds_jax.records import FinishReason

SMALL: dict[str, Any] = {
    "numerics": "float32",
    "program_cache": None,
    "max_sequences": 2,
    "max_context": 64,
    "chunk_tokens": (24,),
}
GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(golden: pathlib.Path) -> pathlib.Path:
    """Three window layers with a tokenizer of 384 ids."""
    return golden / "model" / "swa_only"


@pytest.fixture(scope="module")
def pipeline(folder: pathlib.Path) -> Pipeline:
    return Pipeline.from_checkpoint(folder, **SMALL)


def test_more_prompts_than_slots_come_back_in_order(pipeline: Pipeline) -> None:
    prompts = [[0, 5 + n] * (n + 1) for n in range(5)]
    results = pipeline.generate(prompts, GREEDY)
    for prompt, result in zip(prompts, results, strict=True):
        assert result.usage.prompt_tokens == len(prompt)
        assert result.usage.completion_tokens == len(result.token_ids) == 6
        assert result.finish_reason is FinishReason.LENGTH
        assert pipeline.generate([prompt], GREEDY)[0].token_ids == result.token_ids


def test_text_prompts_start_with_the_begin_token(pipeline: Pipeline) -> None:
    (by_text,) = pipeline.generate("ab", GREEDY)
    ids = pipeline.token_ids("ab")
    assert ids[0] == pipeline.model.bos_token_id
    assert pipeline.generate([ids], GREEDY)[0] == by_text


def test_pieces_of_a_stream_join_to_the_text(pipeline: Pipeline) -> None:
    params = SamplingParams(max_tokens=24, temperature=1.5, seq_seed=3, ignore_eos=True)
    pieces = list(pipeline.stream("ab", params))
    assert "".join(pieces) == pipeline.generate("ab", params)[0].text
    assert all(pieces)


def test_a_stop_token_ends_a_sequence_and_is_left_out(pipeline: Pipeline) -> None:
    full = pipeline.generate([[0, 7]], GREEDY)[0].token_ids
    stop = next(t for i, t in enumerate(full) if i and t not in full[:i])
    params = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True, stop_token_ids=(stop,))
    (result,) = pipeline.generate([[0, 7]], params)
    assert result.token_ids == full[: full.index(stop)]
    assert result.finish_reason is FinishReason.STOP


def test_output_ends_where_the_context_ends(pipeline: Pipeline) -> None:
    room = pipeline.runner.engine.max_context
    params = SamplingParams(max_tokens=50, temperature=0, ignore_eos=True)
    (result,) = pipeline.generate([[0, *[5] * (room - 4)]], params)
    assert len(result.token_ids) == 3
    assert result.finish_reason is FinishReason.LENGTH


def test_a_seed_fixes_the_tokens_and_no_seed_does_not(pipeline: Pipeline) -> None:
    seeded = SamplingParams(max_tokens=12, temperature=2.0, seq_seed=9, ignore_eos=True)
    free = SamplingParams(max_tokens=12, temperature=2.0, ignore_eos=True)
    first, second = (pipeline.generate([[0, 5]], seeded)[0].token_ids for _ in range(2))
    assert first == second
    drawn = {pipeline.generate([[0, 5]], free)[0].token_ids for _ in range(3)}
    assert len(drawn) > 1


def test_score_gives_float32_logits_of_every_token(pipeline: Pipeline) -> None:
    ids = [0, 9, 8, 7]
    logits = pipeline.score(ids)
    assert logits.dtype == np.float32
    assert logits.shape == (4, pipeline.model.vocab_size)
    assert int(logits[-1].argmax()) == pipeline.generate([ids], GREEDY)[0].token_ids[0]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "prompt 1 is empty"),
        ("", "prompt 1 is empty"),
        ([0, 384], "token id 384 is out of range; ids go from 0 to 383"),
        ([0, -1], "token id -1 is out of range"),
        ([5] * 64, "64 tokens, the context holds 64 with 1 left for the output"),
    ],
)
def test_bad_prompts_are_refused_by_number(
    pipeline: Pipeline, prompt: list[int] | str, message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        pipeline.generate([[0, 5], prompt], GREEDY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mesh": "ep3"}, "8 experts cannot be split over 3 devices"),
        ({"mesh": "xx3"}, "is not an axis and a size"),
        ({"platform": "ascend"}, "--platform=ascend"),
        ({"numerics": "fp64"}, "numerics='fp64'"),
        ({"weights": "int8"}, "weights='int8'"),
        ({"max_context": 10**9}, "max_position_embeddings"),
        ({"cache_format": "zip"}, "cache_format='zip'"),
    ],
)
def test_bad_options_are_refused(
    folder: pathlib.Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Pipeline.from_checkpoint(folder, program_cache=None, **options)


def test_the_embedded_model_has_every_kind_of_layer() -> None:
    one = Pipeline.from_checkpoint("tiny", program_cache=None, max_sequences=1)
    kinds = {one.model.kind(number) for number in range(one.model.num_hidden_layers)}
    assert kinds == set(LayerKind)
    assert one.tokenizer is not None
    assert one.tokenizer.decode(one.chat_prompt("Hello"), skip_control=True) == "Hello"


def copy(folder: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    shutil.copytree(folder, into / "copy")
    return into / "copy"


def test_a_checkpoint_without_tokenizer_works_with_ids(
    folder: pathlib.Path, tmp_path: pathlib.Path, pipeline: Pipeline
) -> None:
    bare = copy(folder, tmp_path)
    (bare / "tokenizer.json").unlink()
    one = Pipeline.from_checkpoint(bare, **SMALL)
    (result,) = one.generate([[0, 7]], GREEDY)
    assert result.token_ids == pipeline.generate([[0, 7]], GREEDY)[0].token_ids
    assert result.text == ""
    with pytest.raises(RequestError, match=r"no tokenizer\.json"):
        one.generate("text", GREEDY)


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(
    folder: pathlib.Path, golden: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    bad = copy(folder, tmp_path)
    shutil.copy(golden / "recipe" / "tokenizer_514.json", bad / "tokenizer.json")
    with pytest.raises(ConfigError, match=r"514 tokens, the model only vocab_size=384"):
        Pipeline.from_checkpoint(bad, program_cache=None)


def test_engram_without_any_token_map_is_refused(
    golden: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    bad = copy(golden / "model" / "release_numerics", tmp_path)
    for name in ("tokenizer.json", "engram_token_map.json"):
        (bad / name).unlink()
    with pytest.raises(ConfigError, match=r"add tokenizer.json or engram_token_map.json"):
        Pipeline.from_checkpoint(bad, program_cache=None)


def test_the_token_map_is_derived_where_none_is_written(
    golden: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    case = golden / "model" / "release_numerics"
    bare = copy(case, tmp_path)
    (bare / "engram_token_map.json").unlink()
    tables = [
        Pipeline.from_checkpoint(f, program_cache=None, max_sequences=1).runner.tables
        for f in (case, bare)
    ]
    assert tables[0] is not None and tables[1] is not None
    np.testing.assert_array_equal(tables[0].products, tables[1].products)


def test_missing_tensors_are_named(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    bad = copy(folder, tmp_path)
    data = json.loads((bad / "config.json").read_text())
    data["text_config"]["n_routed_experts"] += 1
    (bad / "config.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=r"missing tensors"):
        Pipeline.from_checkpoint(bad, program_cache=None)
    with pytest.raises(ConfigError, match="is not a folder"):
        Pipeline.from_checkpoint(tmp_path / "nowhere")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_failed_engine_is_replaced_on_the_same_weights(folder: pathlib.Path) -> None:
    pipeline = Pipeline.from_checkpoint(folder, **SMALL)
    expected = pipeline.generate([[0, 7]], GREEDY)[0].token_ids

    def fail(*_: object) -> None:
        raise ZeroDivisionError("broken on purpose")

    old = pipeline.engine
    pipeline.loop.turn = fail  # type: ignore[method-assign]
    (failed,) = pipeline.generate([[0, 7]], GREEDY)
    assert old.failure is not None
    assert failed.finish_reason is FinishReason.ERROR
    assert "broken on purpose" in str(failed.error)
    assert pipeline.restart() is pipeline.engine is not old
    assert pipeline.engine.failure is None
    assert pipeline.generate([[0, 7]], GREEDY)[0].token_ids == expected
