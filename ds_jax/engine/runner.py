"""Holds a replica's parameters, cache and compiled steps, and launches them.

Decides which programs exist and keeps at most one of each. Never plans, never waits for a result.
In: packed rows and a `StepKey`. Out: `StepOutput` whose arrays may still be computed.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ds_jax import config
from ds_jax.engine import batch as batches
from ds_jax.engine import controls, judge, limits, memory, sampler, states, step
from ds_jax.engine.buckets import Buckets, StepKey
from ds_jax.engine.plan import Copy
from ds_jax.engine.program_store import ProgramStore
from ds_jax.engine.programs import Programs
from ds_jax.models import cache as caches
from ds_jax.models import deepseek_v41, engram
from ds_jax.models.context import Context
from ds_jax.sampling import logprobs
from ds_jax.sharding import params as parameters
from ds_jax.sharding import rules

COPIES = 8  # states copied by one program run; a plan with more of them runs it again


def make_context(model: config.Model, numerics: config.Numerics, mesh: Any) -> Context:
    """The static arguments of a step over a mesh."""
    return Context(
        model=model,
        numerics=numerics,
        expert_axis="ep" if mesh.shape["ep"] > 1 else None,
        row_axes=tuple(mesh.axis_names) if mesh.size > 1 else (),
    )


def make_layout(engine: config.Engine, cache: config.Cache) -> caches.Layout:
    """Sizes of one rank's cache.

    Rows of one sequence that share a flat step are written before any of them reads: the rings are
    wider by so many.
    """
    together = engine.canonical_rows if engine.canonical else 1 + engine.nextn
    return caches.Layout(
        num_slots=engine.max_sequences,
        num_pages=limits.pages(engine, cache),
        page_tokens=cache.page_tokens,
        backtrack=cache.max_backtrack + together,
        packed=cache.format == "packed",
        drafts=engine.nextn,
        confidence_temperatures=engine.confidence_temperatures,
        keeps=cache.keep_tokens if cache.replay == "compact" else 0,
    )


def param_specs(model: config.Model, params: deepseek_v41.Params) -> Any:
    """PartitionSpecs with the structure of the parameters, held as they are."""
    return rules.partition_like(_declared(model, params), params)


def _declared(model: config.Model, params: deepseek_v41.Params) -> deepseek_v41.Params:
    """Declarations of the parameters, stacked as they are."""
    tree = deepseek_v41.spec(model, drafter=params.drafter is not None)
    if any(deepseek_v41.stacked_depth(p) for p in params.layers):
        tree = deepseek_v41.stack_spec(model, tree)
    return tree


class Runner:
    """One replica on its mesh. Mutates itself: every launch replaces the state.

    Args:
      params: parameters already on the mesh; stacked layers are scanned over.
      tables: hash constants of Engram, or None.
      store: folder that keeps compiled steps across processes; None: every process builds them.
    """

    def __init__(
        self,
        model: config.Model,
        numerics: config.Numerics,
        mesh: Mesh,
        params: deepseek_v41.Params,
        tables: engram.HashTables | None,
        engine: config.Engine,
        cache: config.Cache,
        store: pathlib.Path | None = None,
    ):
        self.context = make_context(model, numerics, mesh)
        self.layout = make_layout(engine, cache)
        self.buckets = Buckets.plan(engine, cache)
        self.engine = engine
        self.cache = cache
        self.mesh = mesh
        self.params = params
        self.tables = tables
        self.ranks = mesh.size
        self.back = step.look_back(self.context)
        self.specs = param_specs(model, params)
        rings = limits.replay_rule(model, cache).layers
        if rings == model.num_hidden_layers:  # with the drafter's, where all layers' are stored
            rings = self.layout.rings(model)
        self._make_state = step.state_maker(self.context, self.layout, mesh)
        with memory.named(engine, cache, self.layout, self.ranks):
            self.state = self._make_state()
            self.sampler = sampler.Sampler(mesh, self.layout.num_slots, model.vocab_size)
            self.states = states.StateStore(
                mesh,
                limits.snapshots(engine, cache),
                rings,
                self.state,
                most=min(engine.max_sequences, COPIES),
            )
        self._packed_sharding = NamedSharding(mesh, step.SPLIT)
        self._score = jax.jit(logprobs.report)
        self._kept: dict[Hashable, Any] = {}
        self._folder = store
        self._store = store and ProgramStore(store, list(mesh.devices.flat))
        self._state_shape = jax.tree.map(_described, self.state)
        self.programs: Programs[StepKey, jax.stages.Compiled] = Programs(self._build)

    def with_one_slot(self) -> Runner:
        """A runner of the same model with a cache of its own, for one sequence at a time."""
        engine = dataclasses.replace(
            self.engine, max_sequences=1, nextn=0, varlen_verify=False, confidence_temperatures=()
        )
        cache = dataclasses.replace(self.cache, pages=None, snapshots=0)
        model, numerics = self.context.model, self.context.numerics
        mesh, store = self.mesh, self._folder
        return Runner(model, numerics, mesh, self.params, self.tables, engine, cache, store)

    def reset(self) -> None:
        """A zeroed state, after a step has failed: whatever the device held is lost.

        The old arrays go first: memory holds them once.
        """
        for array in jax.tree.leaves(self.state):
            array.delete()
        self.state = self._make_state()
        self.states.reset()
        self.sampler.reset()

    def pages_of(self, slot: int) -> range:
        """Pages of a slot where steps are driven by hand: an equal share for every slot."""
        each = self.layout.num_pages // self.layout.num_slots
        return range(slot * each, (slot + 1) * each)

    def launch(
        self, key: StepKey, rows: Sequence[batches.Row]
    ) -> tuple[step.StepOutput, list[int]]:
        """Starts a step; returns its output and the place of each row in it. Compiles a new key."""
        packed, places = batches.pack(rows, key, self.ranks, self.back)
        output = self.start(key, packed)
        return (output if key.all_logits else self.resample(output, rows, places)), places

    def start(self, key: StepKey, packed: np.ndarray) -> step.StepOutput:
        """Starts a step on packed rows. Compiles a new key."""
        run = self.programs.get(key)
        placed = jax.device_put(packed, self._packed_sharding)
        self.state, output = run(self.params, self.tables, self.state, placed)
        return output

    def resample(
        self, output: step.StepOutput, rows: Sequence[batches.Row], places: Sequence[int]
    ) -> step.StepOutput:
        """Draws again for rows that ask for more than the step does; the others keep their token.

        Args:
          rows: of the step; places: theirs.
        """
        pairs = zip(rows, places, strict=True)
        asked = [(r, p) for r, p in pairs if r.samples and r.params.drawn_again]
        if not asked:
            return output
        for row, _ in asked:
            if row.history is not None and row.params.counts_tokens:
                self.sampler.remember(row.rank, row.slot, *row.history)
        words = controls.pack_full(
            [row.params for row, _ in asked],
            [row.seed for row, _ in asked],
            [row.slot for row, _ in asked],
            [row.start + len(row.token_ids) for row, _ in asked],
            [place for _, place in asked],
            len(output.tokens),
        )
        recent, (tokens, report, newest) = self.sampler.sample(
            output.logits, output.tokens, self.state.recent, words
        )
        self.state = dataclasses.replace(self.state, recent=recent)
        newest = self._told(newest)
        return dataclasses.replace(output, tokens=tokens, report=report, newest=newest)

    def _told(self, newest: jax.Array) -> jax.Array:
        """What is told of all slots, with tokens drawn again: rows that are have one token."""
        if self.state.drafts is None:
            return newest
        again = self.kept("told", lambda: jax.jit(_told_again))
        kept, told = again(self.state.drafts.told, newest)
        drafts = dataclasses.replace(self.state.drafts, told=kept)
        self.state = dataclasses.replace(self.state, drafts=drafts)
        return told

    def draw_masked(
        self, output: step.StepOutput, places: np.ndarray, words: np.ndarray, rows: np.ndarray
    ) -> tuple[jax.Array, jax.Array]:
        """Draws rows of a step again, under masks (`Sampler.sample_masked`).

        Returns: their report, and the newest token of every slot.
        """
        recent, drawn = self.sampler.sample_masked(
            output.logits, self.state.recent, places, words, rows
        )
        self.state = dataclasses.replace(self.state, recent=recent)
        report, newest = drawn
        return report, self._told(newest)

    def judge(
        self, output: step.StepOutput, places: np.ndarray, words: np.ndarray, rows: np.ndarray
    ) -> jax.Array:
        """Judges drafts of a step again, under masks (`judge`).

        Args:
          places: int32 [ranks * N], place of each sequence among those of its rank.
          words: theirs; rows: their mask rows, nextn + 1 each.

        Returns: the words told of every slot.
        """
        state = self.state
        assert output.judged is not None and state.drafts is not None, "the step verified drafts"
        places, words, rows = jax.device_put((places, words, rows), self._packed_sharding)
        judged = output.judged
        pick = self._picking(len(judged.logits), len(judged.first), len(places))
        run = self._judging(len(places))
        given = self.params, state.cache, state.recent, state.drafts
        recent, drafts, told = run(*given, pick(judged, places), words, rows)
        self.state = dataclasses.replace(state, recent=recent, drafts=drafts)
        return told

    @functools.cached_property
    def _judges(self) -> tuple[Any, Any]:
        return judge.build(self.context, self.layout, self.mesh, self.specs, self._state_shape)

    def _split(self, *shape: int, dtype: Any = jnp.int32) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self._packed_sharding)

    def _judged(self, logits: tuple[int, ...], sequences: int) -> judge.Judged:
        """Shapes of it."""
        one, line = self._split(sequences), self.back + 1 + self.layout.drafts
        values = self._split(*logits, self.context.model.vocab_size, dtype=jnp.float32)
        return judge.Judged(values, one, one, one, self._split(sequences, line))

    def _picking(self, rows: int, sequences: int, total: int) -> Callable[..., Any]:
        """The program that picks so many sequences out of a step, of all ranks together."""

        def make() -> Callable[..., Any]:
            judged = self._judged((rows,), sequences)
            return self._judges[0].lower(judged, self._split(total)).compile()

        return self.kept(("pick", rows, sequences, total), make)

    def _judging(self, total: int) -> Callable[..., Any]:
        """The program that judges so many sequences, of all ranks together."""

        def make() -> Callable[..., Any]:
            width, state = self.layout.drafts + 1, self._state_shape
            given = self.params, state.cache, state.recent, state.drafts
            judged = self._judged((total, width), total)
            words = self._split(total, judge.words(width - 1))
            rows = self._split(total * width, self.sampler.mask_words)
            return self._judges[1].lower(*given, judged, words, rows).compile()

        return self.kept(("judge", total), make)

    def score_rows(
        self, logits: jax.Array, next_ids: Sequence[int], places: Sequence[int]
    ) -> jax.Array:
        """`sampling.logprobs` of the ids behind the rows at these places: int32 [B words]."""
        follow = np.zeros(len(logits), np.int32)
        follow[list(places)] = next_ids
        return self._score(logits, jax.device_put(follow, self._packed_sharding))

    def load_states(self, copies: Sequence[Copy]) -> None:
        """Copies stored states into slots, before whatever is launched next."""
        self.state = self.states.load(self.state, copies)

    def save_states(self, copies: Sequence[Copy]) -> None:
        """Copies states out of slots, behind whatever was launched."""
        self.states.save(self.state, copies)

    def _build(self, key: StepKey) -> jax.stages.Compiled:
        """The compiled step of a key, kept from an earlier process or made anew."""

        def make() -> Any:
            return step.build(self.context, self.layout, key, self.mesh, self.specs)

        rows = batches.pack([], key, self.ranks, self.back)[0]
        packed = jax.device_put(rows, self._packed_sharding)
        arguments = (self.params, self.tables, self._state_shape, packed)
        if self._store is None:
            return make().lower(*arguments).compile()
        return self._store.compile(
            (self.context, self.layout, key, self.mesh.shape_tuple, self._described_arguments),
            make,
            arguments,
            out_shardings=(
                jax.tree.map(lambda x: x.sharding, self._state_shape),
                self._packed_sharding,
            ),
            donate=2,
        )

    @functools.cached_property
    def _described_arguments(self) -> str:
        """Structure, shapes, dtypes and shardings of what every step is given."""
        given = (self.params, self.tables, self._state_shape)
        leaves = jax.tree.leaves_with_path(given)
        return repr([(jax.tree_util.keystr(path), str(_described(x))) for path, x in leaves])

    def kept(self, name: Hashable, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """The program of a name, made on first use."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def warm_up(self, keys: Sequence[StepKey] | None = None, *, masked: bool = False) -> int:
        """Compiles programs without running them; returns how many steps there are.

        Every number of rows also has its sampling program, and if `masked` what draws under masks.
        """
        keys = self.buckets.keys() if keys is None else keys
        self.programs.ask(keys)
        for key in keys:
            self.programs.get(key)
        for rows in sorted({key.sequences for key in keys if not key.all_logits}):
            self.sampler.warm_up(rows, self.state.recent)
        if masked:
            sizes = {key.sequences for key in keys if not key.all_logits}
            self.sampler.warm_up_masked(self.state.recent, sorted(sizes))
            for size in self.sampler.mask_buckets if self.layout.drafts else ():
                self._judging(self.ranks * size)
                for shape in {(key.verify_rows, key.sequences) for key in keys if key.verify_rows}:
                    self._picking(*(self.ranks * n for n in (*shape, size)))
        if self.layout.drafts:
            assert self.state.drafts is not None, "a runner with drafts keeps them"
            told = jax.tree.map(jnp.copy, self.state.drafts.told)
            newest = jax.jit(lambda a: a[:, -1])(self.state.recent)
            self.kept("told", lambda: jax.jit(_told_again))(told, newest)
        self.states.warm_up(self.state)
        if self.buckets.flat_rows:
            zeros = [0] * self.buckets.flat_rows * self.ranks
            vocab = self.context.model.vocab_size
            logits = jax.device_put(
                np.zeros((len(zeros), vocab), np.float32), self._packed_sharding
            )
            self.score_rows(logits, zeros, range(len(zeros)))
        return len(keys)


def _told_again(told: jax.Array, newest: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Words of slots with the tokens that were drawn again: to keep, and to tell."""
    told = told.at[:, 1].set(jnp.where(told[:, 0] == 1, newest, told[:, 1]))
    return told, told


def _described(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)


def place_params(
    model: config.Model, params: deepseek_v41.Params, mesh: Mesh, *, stacked: bool
) -> deepseek_v41.Params:
    """Parameters on the mesh in their sharding, stacked for scanning if asked.

    On a CPU, plain matrices that are only multiplied are held input-first: a copy, which other
    devices need not have.
    """
    params = pad_rows(params, rules.row_multiple(mesh))
    if stacked and len(deepseek_v41.runs(model)) < len(params.layers):
        params = deepseek_v41.stack_layers(model, params)
    if mesh.devices.flat[0].platform == "cpu":
        params = jax.tree.map(parameters.input_first, _declared(model, params), params)
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        param_specs(model, params),
        is_leaf=lambda x: isinstance(x, P),
    )
    return jax.device_put(params, shardings)


def pad_rows(params: deepseek_v41.Params, multiple: int) -> deepseek_v41.Params:
    """Engram tables filled up with zero rows, so that every device holds equally many."""

    def pad(a: jax.Array) -> jax.Array:
        return jnp.pad(a, ((0, -a.shape[0] % multiple), (0, 0)))

    def layer(p: Any) -> Any:
        if p.engram is None:
            return p
        table = jax.tree.map(pad, p.engram.table)
        return dataclasses.replace(p, engram=dataclasses.replace(p.engram, table=table))

    if multiple == 1:
        return params
    return dataclasses.replace(params, layers=tuple(layer(p) for p in params.layers))


def scans_by_default(model: config.Model) -> bool:
    """Deep models compile much faster when scanned; shallow ones run faster unrolled."""
    return model.num_hidden_layers > 16
