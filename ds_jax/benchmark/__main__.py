"""Measures speed on this machine.

    python -m ds_jax.benchmark [--parts=machine,decode,host]    compiled steps alone
    python -m ds_jax.benchmark prefill --step_tokens=128,512    the engine in one phase
    python -m ds_jax.benchmark decode --batches=1,8,32 --context=512
    python -m ds_jax.benchmark serve --rate=2 --requests=100    arrivals with shared prefixes
    python -m ds_jax.benchmark gains                            overlap, batches, cached prefixes
    python -m ds_jax.benchmark drafts --batches=1,8,32          drafts of which some are verified

Decides flags and the order of parts. Never measures itself. In: flags. Out: a table on stdout, and
files where --out, --plot and --profile say; exit code 2 and one line for a user's mistake.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from ds_jax import command
from ds_jax.errors import ConfigError

if TYPE_CHECKING:
    from ds_jax.benchmark.commands import Replicas

_COMMANDS = ("prefill", "decode", "serve", "gains", "drafts")
_PARTS = ("machine", "prefill", "decode", "host", "start")

_WHICH = flags.DEFINE_list("parts", list(_PARTS), f"What to measure, of {', '.join(_PARTS)}.")
_CONFIG = flags.DEFINE_string(
    "config",
    str(pathlib.Path(__file__).parents[2] / "configs" / "bench_21m.json"),
    "The model's config; its weights are random. Commands use it where it is given.",
)
_NUMERICS = flags.DEFINE_enum("numerics", "float32", ["released", "float32"], "Rounding policy.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8"], "Sequences at once.")
_PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 512, "Tokens a prompt.", lower_bound=1)
_NEW_TOKENS = flags.DEFINE_integer("new_tokens", 32, "Decode steps of a run.", lower_bound=1)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs; the median counts.", lower_bound=1)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "tiny", "What start and commands load.")
_MESH = flags.DEFINE_string("mesh", "ep1", "Devices of a command, such as ep8.")
_CONTEXT = flags.DEFINE_integer("context", 512, "Tokens a prompt, of prefill and decode.", 1)
_NEXTN = flags.DEFINE_integer("nextn", 5, "drafts: drafts a sequence and step.", 1)
_STEP_TOKENS = flags.DEFINE_list("step_tokens", ["512"], "prefill: tokens of a step.")
_CHUNK_TOKENS = flags.DEFINE_list(
    "chunk_tokens", [], "Lengths of prefill chunks; a pipeline's own where none are given."
)
_OVERLAP = flags.DEFINE_bool("overlap", True, "Plan and launch a step while another runs.")
_SEQUENCES = flags.DEFINE_integer("sequences", 8, "serve: sequences at once.", 1)
_REQUESTS = flags.DEFINE_integer("requests", 100, "serve: requests of the trace.", 1)
_RATE = flags.DEFINE_float("rate", 2.0, "serve: requests a second.")
_PREFIXES = flags.DEFINE_integer("prefixes", 4, "serve: beginnings that prompts share.", 1)
_SHARED_TOKENS = flags.DEFINE_integer("shared_tokens", 512, "serve: tokens of each.", 1)
_OWN_TOKENS = flags.DEFINE_integer("own_tokens", 64, "serve: tokens behind it, at most.", 1)
_SEED = flags.DEFINE_integer("seed", 0, "serve: of the trace.")
_PLOT = flags.DEFINE_string(
    "plot",
    None,
    "Also draw throughput and speed a user there, as SVG; drafts: what became of each, beside it.",
)
_PROFILE = flags.DEFINE_string("profile", None, "Folder for a trace of the run, for Perfetto.")
_OUT = flags.DEFINE_string("out", None, "Also write every figure there, as JSON.")
_PROGRAM_CACHE = flags.DEFINE_string(
    "program_cache", "~/.cache/ds_jax/programs", "Folder of compiled programs; empty: none."
)


def main(arguments: list[str]) -> None:
    """Runs one of the commands, or measures the chosen parts."""
    match arguments:
        case []:
            _measure(_parts())
        case [command] if command in _COMMANDS:
            _run(command)
        case _:
            raise ConfigError(
                f"unexpected argument {arguments[0]!r}; choose with --parts, or give one of "
                f"{', '.join(_COMMANDS)}"
            )


def _run(name: str) -> None:
    from ds_jax.benchmark import commands, workload

    replicas = _replicas()
    batches, repeats = _sizes(_BATCHES), _REPEATS.value
    if name == "prefill":
        sizes = _sizes(_STEP_TOKENS)
        report = commands.prefill(replicas, batches, _CONTEXT.value, sizes, repeats)
    elif name == "decode":
        report = commands.decode(replicas, batches, _CONTEXT.value, _NEW_TOKENS.value, repeats)
    elif name == "serve":
        asked = workload.Sizes(
            _REQUESTS.value,
            _RATE.value,
            _PREFIXES.value,
            _SHARED_TOKENS.value,
            _OWN_TOKENS.value,
            _NEW_TOKENS.value,
        )
        report = commands.serve(replicas, asked, _SEQUENCES.value, _SEED.value)
    elif name == "drafts":
        sizes = (batches, _NEXTN.value, _NEW_TOKENS.value, repeats)
        report = commands.drafting(replicas, *sizes)
    else:
        report = commands.gains(replicas, repeats)
    print(report.text)
    if _OUT.value:
        command.write_json(_OUT.value, report.values)
    if _PLOT.value:
        command.write_text(_PLOT.value, report.picture())
        path = pathlib.Path(_PLOT.value)
        for end, picture in report.pictures.items():
            command.write_text(str(path.with_stem(path.stem + end)), picture)


def _replicas() -> Replicas:
    from ds_jax.benchmark import commands
    from ds_jax.pipeline import CHUNK_TOKENS

    lengths = tuple(sorted(_sizes(_CHUNK_TOKENS))) if _CHUNK_TOKENS.value else CHUNK_TOKENS
    return commands.Replicas(
        source=_CONFIG.value if flags.FLAGS["config"].present else _CHECKPOINT.value,
        mesh=_MESH.value,
        numerics=_NUMERICS.value,
        overlap=_OVERLAP.value,
        chunk_tokens=lengths,
        program_cache=_PROGRAM_CACHE.value or None,
        profile=_PROFILE.value,
    )


def _measure(parts: Sequence[str]) -> None:
    import jax

    from ds_jax import config
    from ds_jax.benchmark import host, machine, offline, report, start, turn
    from ds_jax.engine import platforms

    model = config.load_model(_CONFIG.value)
    workload = offline.Workload(
        _PROMPT_TOKENS.value, _NEW_TOKENS.value, _sizes(_BATCHES), _REPEATS.value
    )
    platforms.keep_programs(_PROGRAM_CACHE.value or None)
    starts: dict[str, Any] | None = None
    if "start" in parts:  # before this process takes memory and cores
        cold, warm = start.first_token_s(_CHECKPOINT.value)
        starts = {"checkpoint": _CHECKPOINT.value, "cold_s": cold, "warm_s": warm}
    limits = machine.measure() if "machine" in parts else None
    timings: list[offline.Timing] = []
    numerics = config.numerics_preset(_NUMERICS.value)
    if "prefill" in parts or "decode" in parts:
        runner = offline.make_runner(model, workload, _NUMERICS.value)
        numerics = runner.context.numerics
        for batch in workload.batches:
            if "prefill" in parts:
                timings.append(offline.prefill(runner, workload, batch, all_logits=True))
                timings.append(offline.prefill(runner, workload, batch, all_logits=False))
            if "decode" in parts:
                timings.append(offline.decode(runner, workload, batch))
    lines = [report.line(model, numerics, workload, timing, limits) for timing in timings]
    print(report.table(lines, limits, starts))
    hosts = [host.decode_step(n) for n in host.SEQUENCES] if "host" in parts else []
    turns = [turn.decode_step(n) for n in host.SEQUENCES] if "host" in parts else []
    if hosts:
        print(host.table(hosts))
        print(host.table(turns, "whole turn of the loop, mock device"))
    if _OUT.value:
        about = {
            "config": _CONFIG.value,
            "numerics": _NUMERICS.value,
            "prompt_tokens": workload.prompt_tokens,
            "new_tokens": workload.new_tokens,
            "jax": jax.__version__,
            "python": sys.version.split()[0],
        }
        figures = report.record(lines, limits, starts, about)
        figures["host"] = [dataclasses.asdict(timing) for timing in hosts]
        figures["turn"] = [dataclasses.asdict(timing) for timing in turns]
        command.write_json(_OUT.value, figures)


def _parts() -> list[str]:
    chosen = [part for part in _WHICH.value if part]
    if not chosen or any(part not in _PARTS for part in chosen):
        raise ConfigError(
            f"--parts={','.join(chosen)}: must be some of {', '.join(_PARTS)}, with commas between"
        )
    return chosen


def _sizes(flag: flags.FlagHolder[list[str]]) -> tuple[int, ...]:
    sizes = [int(text) for text in flag.value if text.isdecimal()]
    if len(sizes) != len(flag.value) or not sizes or min(sizes) < 1:
        raise ConfigError(
            f"--{flag.name}={','.join(flag.value)}: must be numbers above 0 with commas between"
        )
    return tuple(sizes)


if __name__ == "__main__":
    command.start("ds_jax.benchmark", main)
