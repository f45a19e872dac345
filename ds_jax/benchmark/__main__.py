"""Measures speed on this machine: python -m ds_jax.benchmark [--parts=machine,decode,host]

Decides flags and the order of parts. Never measures itself. In: flags. Out: a table on stdout, and
JSON where --out says; exit code 2 and one line for a user's mistake.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from ds_jax import command
from ds_jax.errors import ConfigError

_PARTS = ("machine", "prefill", "decode", "host", "start")

_WHICH = flags.DEFINE_list("parts", list(_PARTS), f"What to measure, of {', '.join(_PARTS)}.")
_CONFIG = flags.DEFINE_string(
    "config",
    str(pathlib.Path(__file__).parents[2] / "configs" / "bench_21m.json"),
    "The model's config; its weights are random.",
)
_NUMERICS = flags.DEFINE_enum("numerics", "float32", ["released", "float32"], "Rounding policy.")
_BATCHES = flags.DEFINE_list("batches", ["1", "8"], "Sequences at once.")
_PROMPT_TOKENS = flags.DEFINE_integer("prompt_tokens", 512, "Tokens a prompt.", lower_bound=1)
_NEW_TOKENS = flags.DEFINE_integer("new_tokens", 32, "Decode steps of a run.", lower_bound=1)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs; the median counts.", lower_bound=1)
_CHECKPOINT = flags.DEFINE_string("checkpoint", "tiny", "start: what the command line loads.")
_OUT = flags.DEFINE_string("out", None, "Also write every figure there, as JSON.")
_PROGRAM_CACHE = flags.DEFINE_string(
    "program_cache", "~/.cache/ds_jax/programs", "Folder of compiled programs; empty: none."
)


def main(arguments: list[str]) -> None:
    """Measures the chosen parts."""
    if arguments:
        raise ConfigError(f"unexpected argument {arguments[0]!r}; choose with --parts")
    _measure(_parts())


def _measure(parts: Sequence[str]) -> None:
    import jax

    from ds_jax import config
    from ds_jax.benchmark import host, machine, offline, report, start
    from ds_jax.engine import platforms

    model = config.load_model(_CONFIG.value)
    workload = offline.Workload(_PROMPT_TOKENS.value, _NEW_TOKENS.value, _sizes(), _REPEATS.value)
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
    if hosts:
        print(host.table(hosts))
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
        command.write_json(_OUT.value, figures)


def _parts() -> list[str]:
    chosen = [part for part in _WHICH.value if part]
    if not chosen or any(part not in _PARTS for part in chosen):
        raise ConfigError(
            f"--parts={','.join(chosen)}: must be some of {', '.join(_PARTS)}, with commas between"
        )
    return chosen


def _sizes() -> tuple[int, ...]:
    sizes = [int(text) for text in _BATCHES.value if text.isdecimal()]
    if len(sizes) != len(_BATCHES.value) or not sizes or min(sizes) < 1:
        raise ConfigError(
            f"--batches={','.join(_BATCHES.value)}: must be numbers above 0 with commas between"
        )
    return tuple(sizes)


if __name__ == "__main__":
    command.start("ds_jax.benchmark", main)
