"""How a program of this package starts and how it ends.

Decides exit codes and the form of a user's mistake: one line on stderr and code 2, never a
traceback; code 130 when interrupted. Never decides flags. In: the program's name and its main
function. Out: the process ends.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from absl import app, flags, logging

from ds_jax.errors import ConfigError, DsJaxError


def start(program: str, main: Callable[[list[str]], None]) -> None:
    """Parses the flags of this process and runs `main` with the arguments behind them."""

    def fail(message: str) -> int:
        print(f"{program}: {message}", file=sys.stderr)
        return 2

    def parse(argv: list[str]) -> list[str]:
        try:
            return flags.FLAGS(argv)
        except flags.Error as error:
            sys.exit(fail(" ".join(str(error).split())))

    def run(argv: Sequence[str]) -> None:
        logging.set_verbosity(logging.WARNING)  # libraries tell of platforms and files they see
        try:
            main(list(argv[1:]))
        except DsJaxError as error:
            sys.exit(fail(str(error)))
        except KeyboardInterrupt:
            sys.exit(130)

    app.run(run, flags_parser=parse)


def adopt(own: flags.FlagValues) -> None:
    """Makes flags that a module keeps to itself those of this process, which runs that module."""
    flags.FLAGS.append_flag_values(own)
    for name in own:
        flags.FLAGS.register_key_flag_for_module(sys.argv[0], own[name])  # --help shows it
    own.mark_as_parsed()  # the process parses them with its own


def needed(flag: flags.FlagHolder[str | None]) -> str:
    """The value of a flag that a command cannot do without.

    Raises:
      ConfigError: it was not given.
    """
    if not flag.value:
        raise ConfigError(f"--{flag.name} is missing: {flags.FLAGS[flag.name].help}")
    return flag.value


def write_json(path: str | pathlib.Path, values: dict[str, Any]) -> None:
    """Writes a report.

    Raises:
      ConfigError: the file cannot be written.
    """
    write_text(path, json.dumps(values, indent=2) + "\n")


def write_text(path: str | pathlib.Path, text: str) -> None:
    """Writes a file.

    Raises:
      ConfigError: it cannot be written.
    """
    try:
        pathlib.Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror})") from None
