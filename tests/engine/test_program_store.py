"""Lowered programs survive the process that made them, and only as long as they are the same."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ds_jax import Pipeline
from ds_jax.engine import program_store, step
from ds_jax.engine.program_store import ProgramStore
from ds_jax.testing import prompt
from tests.engine import replicas

PROMPTS = [prompt(n, seed=n) for n in (5, 21, 13)]
ONE = jax.sharding.SingleDeviceSharding(jax.devices()[0])


def open_store(folder: pathlib.Path) -> ProgramStore:
    return ProgramStore(folder, jax.devices()[:1])


def compiled(store: ProgramStore, name: Any, made: list[Any], scale: float = 2) -> Any:
    """The program of (x, state) -> {"sum": ..., "state": ...}; notes its making."""

    def make() -> Any:
        made.append(name)
        return jax.jit(
            lambda x, state: {"sum": scale * x.sum(), "state": [s + 1 for s in state]},
            donate_argnums=1,
        )

    arguments = (jnp.ones(3), [jnp.zeros(5)])
    return store.compile(name, make, arguments, out_shardings=ONE, donate=1)


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("steps-*/*"))


def test_a_kept_program_is_not_made_again_and_gives_the_same(tmp_path: pathlib.Path) -> None:
    made: list[Any] = []
    for _ in range(2):
        state = [jnp.zeros(5)]
        out = compiled(open_store(tmp_path), ("a", 1), made)(jnp.arange(3.0), state)
        assert out["sum"] == 6
        np.testing.assert_array_equal(out["state"][0], np.ones(5))
        assert state[0].is_deleted()
    assert made == [("a", 1)]
    compiled(open_store(tmp_path), ("a", 2), made)
    assert made == [("a", 1), ("a", 2)]
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"x" * 100, None], ids=["empty", "other", "cut off"])
def test_a_damaged_file_is_made_again(tmp_path: pathlib.Path, damage: bytes | None) -> None:
    made: list[Any] = []
    compiled(open_store(tmp_path), "a", made)
    (file,) = files(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] if damage is None else damage)
    assert compiled(open_store(tmp_path), "a", made)(jnp.ones(3), [jnp.zeros(5)])["sum"] == 6
    assert made == ["a", "a"]
    compiled(open_store(tmp_path), "a", made)
    assert made == ["a", "a"]


def test_other_sources_or_settings_have_programs_of_their_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    compiled(open_store(tmp_path), "a", made)
    old = jax.config.values["jax_default_matmul_precision"]
    jax.config.update("jax_default_matmul_precision", "highest")
    try:
        compiled(open_store(tmp_path), "a", made)
    finally:
        jax.config.update("jax_default_matmul_precision", old)
    source = tmp_path / "package"
    source.mkdir()
    (source / "model.py").write_text("changed = 1")
    monkeypatch.setattr(program_store, "PACKAGE", source)
    compiled(open_store(tmp_path), "a", made)
    assert made == ["a"] * 3


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: pathlib.Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    made: list[Any] = []
    for _ in range(2):
        compiled(open_store(blocked), "a", made)
    assert made == ["a", "a"]
    assert blocked.read_text() == "no folder"


def test_what_nobody_uses_is_removed(tmp_path: pathlib.Path) -> None:
    long_ago = time.time() - (program_store.UNUSED_DAYS + 1) * 24 * 3600
    for name in ("steps-old", "steps-new", "others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.bin").write_bytes(b"")
    for name in ("steps-old", "others"):
        os.utime(tmp_path / name, (long_ago, long_ago))
    open_store(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["others", "steps-new"]


@pytest.mark.parametrize("mesh", ["ep1", "ep2"])
def test_steps_from_a_folder_give_the_same_tokens_in_place(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mesh: str
) -> None:
    def tokens(**options: Any) -> tuple[list[Any], Pipeline]:
        pipeline = replicas.one_layer(
            max_sequences=2, max_context=32, page_tokens=32, mesh=mesh, **options
        )
        found = replicas.run(pipeline, replicas.requests(PROMPTS, replicas.SAMPLED))
        pipeline.close()
        return [replicas.tokens(events) for events in found], pipeline

    plain, _ = tokens()
    assert tokens(program_store=tmp_path)[0] == plain

    def build(*_: Any) -> Any:
        raise AssertionError("traced again")

    monkeypatch.setattr(step, "build", build)
    again, pipeline = tokens(program_store=tmp_path)
    assert again == plain
    runner = pipeline.runner
    state = sum(a.nbytes for a in jax.tree.leaves(runner.state)) // runner.ranks
    keys = runner.buckets.keys()
    for key in keys:
        if runner.programs.is_ready(key):
            memory = runner.programs.get(key).memory_analysis()
            assert memory is not None and memory.alias_size_in_bytes == state
