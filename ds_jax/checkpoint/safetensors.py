"""One safetensors file: header, memory-mapped slices, streaming writer.

Decides what a well-formed file is. Never interprets tensor names, never holds a whole file.
In: a path. Out: numpy views of tensors and slices; or a new file, complete or not there at all.

Layout: 8-byte little-endian header length, JSON header {name: {dtype, shape, data_offsets}},
tensor bytes without gaps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ds_jax.errors import CheckpointError

DTYPES: dict[str, np.dtype[Any]] = {
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E8M0": np.dtype(np.uint8),  # exponent bytes
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "I8": np.dtype(np.int8),
    "U8": np.dtype(np.uint8),
    "I32": np.dtype(np.int32),
    "I64": np.dtype(np.int64),
}
_MAX_HEADER = 100_000_000


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """One tensor as the header describes it."""

    name: str
    dtype: str  # key of DTYPES
    shape: tuple[int, ...]
    offset: int = 0  # of the first byte, from the start of the file

    @property
    def num_bytes(self) -> int:
        """Stored size."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class Reader:
    """A memory-mapped file; only the pages that are touched are read."""

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        self.tensors: dict[str, TensorInfo] = _read_header(self.path)
        self._bytes = np.memmap(self.path, np.uint8, "r")

    def read(self, name: str) -> np.ndarray:
        """Read-only view of a tensor; slice it to read only that part of the file."""
        info = self.tensors[name]
        raw = self._bytes[info.offset : info.offset + info.num_bytes]
        return raw.view(DTYPES[info.dtype]).reshape(info.shape)


def write(
    path: str | pathlib.Path,
    tensors: Iterable[TensorInfo],
    fetch: Callable[[str], np.ndarray],
) -> None:
    """Writes a file, one tensor in memory at a time.

    Args:
      path: the file; replaced only when the new one is complete.
      tensors: what the header announces, in file order (offsets are computed here).
      fetch: returns the values of a tensor by name.
    """
    path = pathlib.Path(path)
    tensors = list(tensors)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    position = 0
    for t in tensors:
        offsets = [position, position + t.num_bytes]
        header[t.name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": offsets}
        position += t.num_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for t in tensors:
            values = np.asarray(fetch(t.name), order="C")
            if (values.shape, values.dtype.itemsize) != (t.shape, DTYPES[t.dtype].itemsize):
                given = f"{values.dtype} {list(values.shape)}"
                raise ValueError(f"{t.name}: {given} is not {t.dtype} {list(t.shape)}")
            file.write(values.reshape(-1).view(np.uint8).data)


@contextlib.contextmanager
def atomic_file(path: pathlib.Path) -> Iterator[Any]:
    """A binary file that appears under its name only after the block ended without an error."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise


def _read_header(path: pathlib.Path) -> dict[str, TensorInfo]:
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > min(size - 8, _MAX_HEADER):
                raise CheckpointError(
                    f"{path}: {size} bytes do not hold a header"
                    + (f" of {length} bytes" if len(start) == 8 else "")
                    + "; the file is truncated or not a safetensors file, copy it again"
                )
            text = file.read(length)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        header = json.loads(text)
        if not isinstance(header, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise CheckpointError(f"{path}: the header is not a JSON object ({error})") from error
    header.pop("__metadata__", None)
    tensors = [_entry(path, name, entry, 8 + length) for name, entry in header.items()]
    _check_layout(path, tensors, 8 + length, size)
    return {t.name: t for t in tensors}


def _entry(path: pathlib.Path, name: str, entry: Any, base: int) -> TensorInfo:
    try:
        dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        numbers = (*shape, begin, end)
        if not all(type(n) is int and n >= 0 for n in numbers):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{path}: {name}: header entry {json.dumps(entry)[:200]} must hold dtype, shape and "
            "data_offsets [begin, end]"
        ) from None
    if dtype not in DTYPES:
        raise CheckpointError(
            f"{path}: {name}: dtype {dtype!r} is not supported; supported are {', '.join(DTYPES)}"
        )
    info = TensorInfo(name, dtype, shape, base + begin)
    if end - begin != info.num_bytes:
        raise CheckpointError(
            f"{path}: {name}: {dtype} {list(shape)} needs {info.num_bytes} bytes, "
            f"data_offsets [{begin}, {end}] hold {end - begin}"
        )
    return info


def _check_layout(path: pathlib.Path, tensors: list[TensorInfo], base: int, size: int) -> None:
    """Tensors must follow each other without overlap or gap up to the end of the file."""
    position, previous = base, "the header"
    for t in sorted(tensors, key=lambda t: (t.offset, t.num_bytes)):
        if t.offset != position:
            what = "overlaps" if t.offset < position else "leaves a gap after"
            raise CheckpointError(
                f"{path}: {t.name} starts at byte {t.offset} and {what} {previous}, "
                f"which ends at {position}"
            )
        position, previous = t.offset + t.num_bytes, t.name
    if position > size:
        raise CheckpointError(
            f"{path}: truncated: the header describes {position} bytes, the file has {size}; "
            "copy it again"
        )
    if position < size:
        raise CheckpointError(f"{path}: {size - position} bytes after the last tensor {previous}")
