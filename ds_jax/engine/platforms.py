"""What a platform decides: number of virtual devices, dtypes, formats, kept programs.

Never computes. In: names given by a user. Out: settings of jax, made before its first use of a
device, and plain values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from ds_jax import config
from ds_jax.errors import ConfigError
from ds_jax.sharding import mesh as meshes

DEFAULT_CACHE = "~/.cache/ds_jax/programs"


@dataclasses.dataclass(frozen=True)
class Choices:
    """What follows from the platform and what the user left open.

    Attributes:
      numerics: the preset with the storage the platform is fast with.
      weights: "quantized" or "dequantized".
      dtype: dtype of plain weights.
      cache_format: "packed" or "dequantized".
    """

    numerics: config.Numerics
    weights: str
    dtype: Any
    cache_format: str


def open_mesh(text: str, platform: str | None) -> tuple[meshes.MeshSpec, Mesh]:
    """The mesh over the devices of a platform; on CPU as many virtual devices as it needs.

    Raises:
      ConfigError: bad grammar, unknown platform, too few devices.
    """
    spec = meshes.MeshSpec.parse(text)
    if spec.devices > 1:
        # only counts where the platform is CPU and no device was used before
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", spec.devices)
    return spec, meshes.build(spec, platform)


def choose(mesh: Mesh, numerics: str | config.Numerics, weights: str, cache_format: str) -> Choices:
    """Fills in "auto". CPUs compute in float32 and hold weights and caches unpacked."""
    preset = config.numerics_preset(numerics) if isinstance(numerics, str) else numerics
    cpu = mesh.devices.flat[0].platform == "cpu"
    if isinstance(numerics, str):
        preset = dataclasses.replace(preset, storage="float32" if cpu else "bfloat16")
    _one_of("weights", weights, ("auto", "quantized", "dequantized"))
    _one_of("cache_format", cache_format, ("auto", "packed", "dequantized"))
    loose = "dequantized" if cpu else None
    return Choices(
        numerics=preset,
        weights=(loose or "quantized") if weights == "auto" else weights,
        dtype=jnp.float32 if cpu else jnp.bfloat16,
        cache_format=(loose or "packed") if cache_format == "auto" else cache_format,
    )


def keep_programs(folder: str | pathlib.Path | None) -> pathlib.Path | None:
    """Keeps compiled programs, small ones too, in a folder across processes. None: no change.

    Returns: the folder, which is there, for what else is kept.
    """
    if folder is None:
        return None
    path = pathlib.Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot keep compiled programs there ({error.strerror}); give another folder "
            "or none"
        ) from None
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name}={value!r}: must be one of {', '.join(allowed)}")
