"""A name for everything that cached rows depend on beside tokens.

Decides what counts: model, numerics, the cache's form, canonical mode, weights. Never reads tensors
whole. In: configs and a name of the weights. Out: bytes, equal for equal replicas only.
"""

from __future__ import annotations

import hashlib
import pathlib

from ds_jax import config

SAMPLE_BYTES = 1 << 16  # read of a shard at its start, its middle and its end


def of(
    model: config.Model,
    numerics: config.Numerics,
    engine: config.Engine,
    cache: config.Cache,
    weights: bytes,
) -> bytes:
    """The fingerprint that page keys start from."""
    parts = [
        config.dump(model).encode(),
        repr(numerics).encode(),
        f"{cache.format} {cache.page_tokens} {cache.replay} {cache.keep_tokens} "
        f"{cache.bounded_replay}".encode(),
        f"{engine.canonical_rows if engine.canonical else 0}".encode(),
        weights,
    ]
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def of_files(folder: pathlib.Path) -> bytes:
    """A name of a checkpoint's weights: names and sizes of its shards, their headers and samples.

    With the headers every tensor's name, type and place counts.
    """
    digest = hashlib.blake2b(digest_size=32)
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
            digest.update(file.read(header))
            for at in (0, size // 2, max(size - SAMPLE_BYTES, 0)):
                file.seek(at)
                digest.update(file.read(SAMPLE_BYTES))
    return digest.digest()
