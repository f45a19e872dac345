"""Lowered programs in a folder, found again by what they were made from.

Decides what a program depends on and where it is kept. Never runs one. In: a function and what
identifies it. Out: its compiled program.

jax keeps compiled programs itself, but finds them by the lowered program: every process would trace
and lower again, which takes longer than loading. Here the name is made of the sources and the
arguments of the build, and what is kept is the lowered program; jax still keeps the compiled one.
The structure of its results is kept by pickle: the folder must be as trusted as the package.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import pathlib
import pickle
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
from absl import logging
from jax import export

PACKAGE = pathlib.Path(__file__).parents[1]
UNUSED_DAYS = 30  # after which programs of other sources are removed
CHECK = hashlib.sha256().digest_size


class ProgramStore:
    """Programs of this version of the package in a folder; several processes may share it.

    Args:
      folder: made if needed.
      devices: that programs run on.
    """

    def __init__(self, folder: pathlib.Path, devices: Sequence[Any]):
        self._folder = folder / f"steps-{_digest(_surroundings(devices))[:16]}"
        _touch(self._folder)
        _remove_unused(folder)

    def compile(
        self,
        name: Hashable,
        make: Callable[[], Any],
        arguments: Sequence[Any],
        *,
        out_shardings: Any,
        donate: int,
    ) -> jax.stages.Compiled:
        """The compiled program of a name.

        Args:
          make: gives the jitted function; called only if the folder does not have the program.
          arguments: trees of arrays, or of their shapes, dtypes and shardings.
          out_shardings: a prefix of the tree of results.
          donate: number of the donated argument.
        """
        path = self._folder / f"{_digest(name)}.bin"
        kept = _read(path)
        if kept is None:
            kept = _lower(make(), arguments)
            _write(path, kept)
        exported, results = kept

        def call(*trees: Any) -> Any:
            return jax.tree.unflatten(results, exported.call(*jax.tree.leaves(trees)))

        jitted = jax.jit(call, donate_argnums=donate, out_shardings=out_shardings)
        return jitted.lower(*arguments).compile()


def _lower(function: Any, arguments: Sequence[Any]) -> tuple[export.Exported, Any]:
    """The lowered function of flat lists of arrays, and the tree of its results."""
    leaves, tree = jax.tree.flatten(tuple(arguments))
    results: Any = None

    def flat(*leaves: Any) -> list[Any]:
        nonlocal results
        out, results = jax.tree.flatten(function(*jax.tree.unflatten(tree, leaves)))
        return out

    return export.export(jax.jit(flat))(*leaves), results


def _read(path: pathlib.Path) -> tuple[export.Exported, Any] | None:
    """What a file holds; None if there is none, or none that can be used."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    try:
        if hashlib.sha256(found[CHECK:]).digest() != found[:CHECK]:
            raise ValueError("it was cut off or changed")
        results, module = pickle.loads(found[CHECK:])
        return export.deserialize(bytearray(module)), results
    except Exception as error:
        logging.warning("%s: not usable, made again: %s", path, error)
        return None


def _write(path: pathlib.Path, kept: tuple[export.Exported, Any]) -> None:
    """Keeps a program; where that is impossible, says so and goes on."""
    exported, results = kept
    try:
        body = pickle.dumps((results, bytes(exported.serialize())))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(part, path)  # others see all of it or nothing
    except Exception as error:
        logging.warning("%s: program not kept: %s", path, error)


def _surroundings(devices: Sequence[Any]) -> tuple[Any, ...]:
    """What any program depends on besides its own arguments."""
    settings = {k: v for k, v in jax.config.values.items() if "cache" not in k}
    flags = {k: os.environ.get(k) for k in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
    return (
        [
            (str(path.relative_to(PACKAGE)), hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(PACKAGE.rglob("*.py"))
        ],
        (jax.__version__, importlib.metadata.version("jaxlib"), platform.python_version()),
        sorted((k, repr(v)) for k, v in settings.items()),
        sorted((k, v or "") for k, v in flags.items()),
        devices[0].client.platform_version,
        [(d.id, d.process_index, d.device_kind) for d in devices],
        jax.process_index(),
    )


def _digest(what: Hashable) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()


def _touch(folder: pathlib.Path) -> None:
    try:
        os.utime(folder)
    except OSError as error:  # not there yet, or of somebody else
        logging.debug("%s: %s", folder, error)


def _remove_unused(folder: pathlib.Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 24 * 3600
    for other in folder.glob("steps-*"):
        try:
            if other.stat().st_mtime < oldest:
                shutil.rmtree(other)
        except OSError as error:  # another process was faster
            logging.debug("%s: %s", other, error)
