"""What each command of the benchmark measures, and what it shows.

Decides how large a replica is for it, and which points a plot has. Never reads flags. In: sizes.
Out: a `Report`.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from typing import Any

import jax

from ds_jax.benchmark import drafts, machine, phases, plot, replica, workload
from ds_jax.benchmark import gains as comparisons
from ds_jax.benchmark import serve as serving
from ds_jax.errors import ConfigError
from ds_jax.pipeline import CHUNK_TOKENS, Pipeline
from ds_jax.training import evaluate

MARGIN = 16  # positions behind what is measured
ANSWER_CONTEXT = 512  # positions of a dialogue and its answer
PREPARING = 6  # traces at most that compile what the timed one needs
DIALOGUES = 24  # answered at least: one alone says little about what is accepted


@dataclasses.dataclass(frozen=True)
class Replicas:
    """What all replicas of a command have in common.

    Attributes:
      source: folder of a checkpoint, "tiny", or a config file for random weights.
      mesh, numerics, overlap, chunk_tokens, program_cache: as for `Pipeline`.
      profile: folder of a trace of what is timed, or None.
    """

    source: str = "tiny"
    mesh: str = "ep1"
    numerics: str = "float32"
    overlap: bool = True
    chunk_tokens: tuple[int, ...] = CHUNK_TOKENS
    program_cache: str | None = None
    profile: str | None = None

    def make(
        self, *, sequences: int, context: int, step_tokens: int | None = None, **more: Any
    ) -> Pipeline:
        """A replica for so many sequences of so many positions; `more`: as for `Pipeline`."""
        options: dict[str, Any] = {
            "mesh": self.mesh,
            "numerics": self.numerics,
            "program_cache": self.program_cache,
            "max_sequences": sequences,
            "max_context": context,
            "chunk_tokens": self.chunk_tokens,
            "engine": {"overlap": self.overlap, "step_tokens": step_tokens},
        }
        return replica.load(self.source, options | more)


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command found: a table, JSON values, points to draw, and further pictures by the end
    of their file's name.
    """

    text: str
    values: dict[str, Any]
    points: dict[str, list[plot.Point]] = dataclasses.field(default_factory=dict)
    pictures: dict[str, str] = dataclasses.field(default_factory=dict)

    def picture(self) -> str:
        """Throughput against what one user sees.

        Raises:
          ConfigError: there is nothing to draw.
        """
        if not self.points:
            raise ConfigError("--plot: only prefill, decode and drafts have points to draw")
        title = "throughput and speed of one sequence; batch beside each point"
        return plot.svg(self.points, title, "tokens/s of one sequence", "tokens/s of all")


def prefill(
    replicas: Replicas,
    batches: Sequence[int],
    context: int,
    step_tokens: Sequence[int],
    repeats: int,
) -> Report:
    """Every batch at every number of tokens a step."""
    limits = machine.measure()
    found: dict[str, list[phases.Phase]] = {}
    for tokens in step_tokens:
        most = {"sequences": max(batches), "context": context + MARGIN}
        pipeline = replicas.make(**most, step_tokens=tokens)
        with replica.profile(replicas.profile):
            found[f"prefill, {tokens} a step"] = [
                phases.prefill(pipeline, limits, batch, context, repeats) for batch in batches
            ]
        pipeline.close()
    return _phases(replicas, limits, found)


def decode(
    replicas: Replicas, batches: Sequence[int], context: int, steps: int, repeats: int
) -> Report:
    """Every batch; prompts advance together, so that all decode at once."""
    limits = machine.measure()
    most = max(batches)
    positions = context + steps + phases.SETTLING + MARGIN
    step_tokens = most * (min(context, replicas.chunk_tokens[-1]) + 1)
    pipeline = replicas.make(sequences=most, context=positions, step_tokens=step_tokens)
    with replica.profile(replicas.profile):
        found = [
            phases.decode(pipeline, limits, batch, context, steps, repeats) for batch in batches
        ]
    pipeline.close()
    return _phases(replicas, limits, {"decode": found})


def serve(replicas: Replicas, sizes: workload.Sizes, sequences: int, seed: int) -> Report:
    """A trace, after others of the same sizes until one of them waited for no program."""
    pipeline = replicas.make(sequences=sequences, context=sizes.context + MARGIN)
    vocab = pipeline.model.vocab_size
    for before in range(1, 1 + PREPARING):
        if not serving.serve(pipeline, workload.poisson(sizes, vocab, seed + before)).compile_s:
            break
    with replica.profile(replicas.profile):
        served = serving.serve(pipeline, workload.poisson(sizes, vocab, seed))
    pipeline.close()
    values = {
        "about": _about(replicas),
        "sizes": dataclasses.asdict(sizes),
        "served": dataclasses.asdict(served)
        | {"hit_rate": served.hit_rate, "ideal_rate": served.ideal_rate},
    }
    return Report(serving.table(served) + _trace(replicas), values)


def gains(replicas: Replicas, repeats: int) -> Report:
    """Ratios of pairs of runs."""
    with replica.profile(replicas.profile):
        found = comparisons.measure(replicas.make, repeats)
    values = {
        "about": _about(replicas),
        "gains": [dataclasses.asdict(gain) | {"ratio": gain.ratio} for gain in found],
    }
    return Report(comparisons.table(found) + _trace(replicas), values)


def drafting(
    replicas: Replicas, batches: Sequence[int], nextn: int, new_tokens: int, repeats: int
) -> Report:
    """Held-out dialogues answered without drafts, with all verified, and with those that pay."""
    found: list[drafts.Comparison] = []
    with replica.profile(replicas.profile):
        for batch in batches:
            sizes = {"sequences": batch, "context": ANSWER_CONTEXT}
            sizes["step_tokens"] = batch * ANSWER_CONTEXT
            plain = replicas.make(**sizes)
            count = -(-max(DIALOGUES, batch) // batch) * batch
            asked = evaluate.prompt_ids(plain, evaluate.held_out_dialogues(count))
            quick = replicas.make(**sizes, nextn=nextn, varlen_verify=True)
            drafts.learn(quick, batch)
            found.append(drafts.compare(plain, quick, asked, batch, new_tokens, repeats))
            plain.close()
            quick.close()
    values = {"about": _about(replicas), "nextn": nextn}
    values["comparisons"] = [dataclasses.asdict(c) for c in found]
    pictures = {"_positions": drafts.positions(found)}
    return Report(drafts.table(found) + _trace(replicas), values, drafts.points(found), pictures)


def _phases(
    replicas: Replicas, limits: machine.Machine, found: dict[str, list[phases.Phase]]
) -> Report:
    every = [phase for line in found.values() for phase in line]
    values = {
        "about": _about(replicas),
        "machine": dataclasses.asdict(limits),
        "phases": [
            dataclasses.asdict(p) | {"user_tokens_per_s": p.user_tokens_per_s} for p in every
        ],
    }
    points = {
        name: [(p.user_tokens_per_s, p.tokens_per_s, str(p.batch)) for p in line]
        for name, line in found.items()
    }
    return Report(phases.table(every) + _trace(replicas), values, points)


def _trace(replicas: Replicas) -> str:
    if replicas.profile is None:
        return ""
    return f"\n\ntrace: {replica.trace_file(replicas.profile)} (open it at ui.perfetto.dev)"


def _about(replicas: Replicas) -> dict[str, Any]:
    """What figures depend on."""
    return dataclasses.asdict(replicas) | {
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }
