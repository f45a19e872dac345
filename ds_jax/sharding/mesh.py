"""Device meshes: the grammar `ep64`, `ep2,dp8`, and the mesh that is built from it.

Decides how many devices a replica uses and how they are arranged. Never places an array.
In: the text of `--mesh`. Out: a `MeshSpec`, a Mesh over real devices, or an AbstractMesh.

dp data-parallel attention ranks, cp context-parallel devices a rank, ep devices that share the
experts; devices = dp * cp and ep divides it. The jax mesh has the axes ("replica", "ep"): attention
is data-parallel over both together, experts are split over "ep", Engram rows over both.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from ds_jax import config
from ds_jax.errors import ConfigError

AXES = ("replica", "ep")
_GRAMMAR = "use axis names with sizes, such as ep8 or ep2,dp8 (axes: dp, cp, ep)"
_PLUGINS = (
    "a PJRT plugin is registered by a module in the namespace package jax_plugins, by an entry "
    "point of the group jax_plugins, or by PJRT_NAMES_AND_LIBRARY_PATHS=name:path"
)


@dataclasses.dataclass(frozen=True)
class MeshSpec:
    """Sizes of a replica's mesh; an impossible one cannot be built."""

    dp: int
    cp: int
    ep: int

    def __post_init__(self):
        if self.devices % self.ep:
            choices = _divisors(self.devices)
            raise ConfigError(
                f"--mesh={self}: ep={self.ep} must divide dp * cp = {self.devices} devices; "
                f"use ep {_nearest(choices, self.ep)}"
            )
        if self.cp > 1:
            raise ConfigError(
                f"--mesh={self}: cp={self.cp}: context parallelism is not available in this "
                f"version; leave cp out, such as ep{self.ep}"
            )

    def __str__(self) -> str:
        sizes = f"ep{self.ep}"
        if self.cp != 1:
            sizes += f",cp{self.cp}"
        return sizes if self.dp == max(1, self.ep // self.cp) else f"{sizes},dp{self.dp}"

    @classmethod
    def parse(cls, text: str) -> MeshSpec:
        """Reads `ep64`, `ep2,dp8`, ...; dp defaults to max(1, ep // cp), cp and ep to 1."""
        sizes: dict[str, int] = {}
        for part in text.replace(" ", "").split(","):
            match = re.fullmatch(r"(dp|cp|ep)([0-9]{1,6})", part)
            if not match:
                raise ConfigError(f"--mesh={text}: {part!r} is not an axis and a size; {_GRAMMAR}")
            name, size = match[1], int(match[2])
            if name in sizes:
                raise ConfigError(f"--mesh={text}: {name} is given twice; keep one")
            if not size:
                raise ConfigError(f"--mesh={text}: {name} must be at least 1")
            sizes[name] = size
        ep, cp = sizes.get("ep", 1), sizes.get("cp", 1)
        return cls(sizes.get("dp", max(1, ep // cp)), cp, ep)

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.dp * self.cp

    @property
    def shape(self) -> tuple[int, int]:
        """Sizes of the axes ("replica", "ep")."""
        return self.devices // self.ep, self.ep

    def check(self, model: config.Model) -> None:
        """Raises ConfigError if the model's experts cannot be split evenly."""
        experts = model.n_routed_experts
        if experts % self.ep:
            raise ConfigError(
                f"--mesh={self}: {experts} experts cannot be split over {self.ep} devices; "
                f"use a divisor of {experts} such as {_nearest(_divisors(experts), self.ep)}"
            )


def build(spec: MeshSpec, platform: str | None = None) -> Mesh:
    """The mesh over the first devices of a platform (None: the one jax chose).

    Raises:
      ConfigError: the platform is not there, or has too few devices.
    """
    devices = find_devices(platform)
    if len(devices) < spec.devices:
        kind, there = devices[0].platform, len(devices)
        virtual = f"; for virtual CPU devices set JAX_NUM_CPU_DEVICES={spec.devices}"
        raise ConfigError(
            f"--mesh={spec}: needs {spec.devices} devices, there are {there} of platform {kind}; "
            f"use a smaller mesh such as ep{there}" + (virtual if kind == "cpu" else "")
        )
    chosen = devices[: spec.devices]
    return jax.make_mesh(spec.shape, AXES, axis_types=(AxisType.Auto,) * 2, devices=chosen)


def abstract(spec: MeshSpec) -> AbstractMesh:
    """The same mesh without devices, for shapes and lowering."""
    return AbstractMesh(spec.shape, AXES, axis_types=(AxisType.Auto,) * 2)


def find_devices(platform: str | None = None) -> list[Any]:
    """The `jax.Device`s of a platform, verified to be of that platform.

    A plugin that fails to load may leave jax on another platform without an error, hence the check.
    """
    if platform is None:
        return jax.devices()
    try:
        devices = jax.devices(platform)
    except RuntimeError as error:
        raise ConfigError(_not_there(platform, str(error).splitlines()[0])) from None
    names = ("gpu", "cuda", "rocm") if platform in ("gpu", "cuda", "rocm") else (platform,)
    if devices[0].platform not in names:
        raise ConfigError(_not_there(platform, f"jax answered with {devices[0].platform}"))
    return devices


def _not_there(platform: str, reason: str) -> str:
    found = sorted({d.platform for d in jax.devices()} | {"cpu"})
    return f"--platform={platform}: {reason}; found {', '.join(found)}; {_PLUGINS}"


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _nearest(choices: list[int], wanted: int) -> str:
    """The nearest choice on either side, as `48 or 64`."""
    below = [c for c in choices if c <= wanted][-1:]
    above = [c for c in choices if c > wanted][:1]
    return " or ".join(map(str, below + above))
