"""Inspects and converts checkpoints.

python -m ds_jax.checkpoint inspect PATH    what a checkpoint (or a config.json alone) holds
python -m ds_jax.checkpoint convert SRC DST [--quantize | --dequantize] [--max_shard_gib=5]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from absl import app, flags

from ds_jax.checkpoint import convert, inspect
from ds_jax.errors import DsJaxError

_QUANTIZE = flags.DEFINE_bool("quantize", False, "convert: write FP8 and FP4 weights")
_DEQUANTIZE = flags.DEFINE_bool("dequantize", False, "convert: write bf16 weights")
_SHARD = flags.DEFINE_float("max_shard_gib", 5.0, "convert: size of one file", lower_bound=0.0)


def main(argv: Sequence[str]) -> None:
    """Runs one of the two commands; a user's mistake ends with one line and exit code 1."""
    try:
        _run(list(argv[1:]))
    except (DsJaxError, OSError) as error:
        sys.exit(f"error: {error}")


def _run(arguments: list[str]) -> None:
    match arguments:
        case ["inspect", path]:
            title, tensors = inspect.tensors_of(path)
            print(title)
            print(inspect.table(tensors))
        case ["convert", source, target]:
            if _QUANTIZE.value and _DEQUANTIZE.value:
                raise app.UsageError("--quantize and --dequantize exclude each other; keep one")
            chosen = _QUANTIZE.value or (False if _DEQUANTIZE.value else None)
            size = int(_SHARD.value * 2**30)
            convert.convert(source, target, quantize=chosen, max_shard_bytes=size)
        case _:
            given = " ".join(arguments) or "nothing"
            raise app.UsageError(f"{given!r} given; use `inspect PATH` or `convert SRC DST`")


if __name__ == "__main__":
    app.run(main)
