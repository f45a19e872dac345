"""Seconds from starting the command line to its first token, with and without kept programs.

Decides how a start is timed: a new process, until the first character arrives on stdout. Never
loads a model here. In: a checkpoint. Out: seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from ds_jax.errors import ConfigError

PROMPT = "What is 17 + 25?"


def first_token_s(checkpoint: str, warm_starts: int = 3) -> tuple[float, list[float]]:
    """(seconds with an empty folder of programs, seconds of each later start).

    Raises:
      ConfigError: the command line failed.
    """
    with tempfile.TemporaryDirectory() as programs:
        cold = _start(checkpoint, programs)
        return cold, [_start(checkpoint, programs) for _ in range(warm_starts)]


def _start(checkpoint: str, programs: str) -> float:
    command = [sys.executable, "-m", "ds_jax.run", f"--checkpoint={checkpoint}", "--chat"]
    command += [f"--prompt={PROMPT}", "--max_tokens=8", "--temperature=0"]
    command += [f"--program_cache={programs}"]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None, "both are pipes"
        process.stdout.read(1)
        elapsed = time.perf_counter() - start
        _, said = process.communicate()
    if process.returncode:
        raise ConfigError(f"{' '.join(command)} failed: {said.decode()[-500:].strip()}")
    return elapsed
