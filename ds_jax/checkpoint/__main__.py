"""Inspects and converts checkpoints.

python -m ds_jax.checkpoint inspect PATH    what a checkpoint (or a config.json alone) holds
python -m ds_jax.checkpoint convert SRC DST [--quantize | --dequantize] [--max_shard_gib=5]
"""

from __future__ import annotations

from absl import flags

from ds_jax import command
from ds_jax.checkpoint import convert, inspect
from ds_jax.errors import ConfigError

_QUANTIZE = flags.DEFINE_bool("quantize", False, "convert: write FP8 and FP4 weights")
_DEQUANTIZE = flags.DEFINE_bool("dequantize", False, "convert: write bf16 weights")
_SHARD = flags.DEFINE_float("max_shard_gib", 5.0, "convert: size of one file", lower_bound=0.0)


def main(arguments: list[str]) -> None:
    """Runs one of the two commands; a full disk or a missing permission is a user's mistake."""
    try:
        _run(arguments)
    except OSError as error:
        raise ConfigError(str(error)) from None


def _run(arguments: list[str]) -> None:
    match arguments:
        case ["inspect", path]:
            title, tensors = inspect.tensors_of(path)
            print(title)
            print(inspect.table(tensors))
        case ["convert", source, target]:
            if _QUANTIZE.value and _DEQUANTIZE.value:
                raise ConfigError("--quantize and --dequantize exclude each other; keep one")
            chosen = _QUANTIZE.value or (False if _DEQUANTIZE.value else None)
            size = int(_SHARD.value * 2**30)
            convert.convert(source, target, quantize=chosen, max_shard_bytes=size)
        case _:
            given = " ".join(arguments) or "nothing"
            raise ConfigError(f"{given!r} given; use `inspect PATH` or `convert SRC DST`")


if __name__ == "__main__":
    command.start("ds_jax.checkpoint", main)
