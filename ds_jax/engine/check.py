"""The report of `--check`: what a model needs on a mesh, and what does not fit, without devices.

Decides nothing at run time. Never allocates, never compiles.
In: model, mesh, engine and cache sizes. Out: text.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence

from ds_jax import config, config_rules
from ds_jax.engine import footprint, traffic
from ds_jax.engine.footprint import Footprint
from ds_jax.engine.traffic import Collective
from ds_jax.sharding.mesh import MeshSpec

GIB = 2**30
# Published sizes in 10^9 bytes: what the vendors' data sheets give for one device.
DEVICE_MEMORY: Mapping[str, float] = types.MappingProxyType(
    {
        "H100": 80e9,
        "H200": 141e9,
        "B200": 180e9,
        "Ascend 950PR": 128e9,
        "Ascend 950DT": 144e9,
    }
)
ON_ACCELERATORS = config.Numerics(storage="bfloat16")  # the released numerics
USABLE = 0.9  # the rest is left for activations and the runtime


def report(
    model: config.Model,
    mesh: MeshSpec,
    engine: config.Engine,
    cache: config.Cache,
    numerics: config.Numerics = ON_ACCELERATORS,
    *,
    device_memory_gib: float | None = None,
    collectives: Callable[[], Sequence[Collective]] | None = None,
) -> str:
    """Bytes per device, whether they fit, and the collectives of a decode step.

    Args:
      device_memory_gib: memory of one device; None: a table of common devices.
      collectives: how the collectives are found; None: trace the decode step.

    Raises:
      ConfigError: experts that cannot be split over the mesh, or a cache this model cannot have.
    """
    mesh.check(model)
    config_rules.check_cache_fits(cache, model)
    quantized = model.quantization is not None and engine.weights != "dequantized"
    size = footprint.measure(model, mesh, engine, cache, numerics, quantized=quantized)
    if collectives is None:
        collectives = functools.partial(
            traffic.decode_collectives,
            *(model, mesh, engine, cache, numerics),
            quantized=quantized,
        )
    memory = dict(DEVICE_MEMORY)
    if device_memory_gib is not None:
        memory = {"given device": device_memory_gib * GIB}
    replica, ep = mesh.shape
    kind = "quantized" if quantized else "bf16"
    return "\n".join(
        [
            f"--mesh={mesh}: {mesh.devices} devices (replica {replica} x ep {ep}), {kind} weights, "
            f"{cache.format} cache",
            "",
            *_weights(size),
            "",
            *_cache(size, engine),
            "",
            *fit(size, engine.max_context, memory),
            "",
            *_collectives(collectives(), engine),
        ]
    )


def fit(size: Footprint, context: int, memory: Mapping[str, float]) -> list[str]:
    """One line a device kind: does it fit, what is left or missing."""
    lines = [
        f"memory ({USABLE:.0%} of a device; weights {_gib(sum(size.weights.values()))} + cache "
        f"{_gib(size.cache)} = {_gib(size.device)})"
    ]
    for name, whole in memory.items():
        usable = whole * USABLE
        room = size.room(usable, context)
        advice = f"room for {room:,} sequences of {context:,} tokens a device"
        if sum(size.weights.values()) > usable:
            missing = sum(size.weights.values()) - usable
            verdict = f"does not fit: the weights alone need {_gib(missing)} more; use more devices"
        elif size.device > usable:
            missing = size.device - usable
            verdict = f"does not fit: {_gib(missing)} too much; there is {advice}"
        else:
            verdict = f"fits; {advice}"
        lines.append(f"  {name:14} {_gib(usable)}  {verdict}")
    return lines


def _weights(size: Footprint) -> list[str]:
    lines = [f"{'weights':24} {'whole model':>20} {'one device':>20}  bytes"]
    for group, total in sorted(size.total.items(), key=lambda item: -item[1]):
        lines.append(f"  {group:22} {total:>20,} {size.weights[group]:>20,}")
    whole, device = sum(size.total.values()), sum(size.weights.values())
    return [*lines, f"  {'sum':22} {whole:>20,} {device:>20,}"]


def _cache(size: Footprint, engine: config.Engine) -> list[str]:
    return [
        f"{'cache':24} {'one device':>41}  bytes",
        f"  {'one sequence':22} {size.slot:>41,}  window rings, compressor tails, last ids, counts",
        f"  {'one stored state':22} {size.state:>41,}  window rings; {size.states} are held",
        f"  {'one token':22} {size.token:>41,g}  compressed rows and index keys",
        f"  {f'{size.slots} x {engine.max_context:,} tokens':22} {size.cache:>41,}",
    ]


def _collectives(found: Sequence[Collective], engine: config.Engine) -> list[str]:
    lines = [f"collectives of a decode step ({engine.max_sequences} sequences a device)"]
    for c in found:
        times = f"{c.count} x rounds" if c.rounds else f"{c.count} x"
        lines.append(
            f"  {times:>12} {c.name:18} over {','.join(c.axes):10} {c.operand} "
            f"({c.operand_bytes:,} bytes)"
        )
    if not found:
        lines.append("  none")
    return lines


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f} GiB"
