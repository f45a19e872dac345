"""What a model needs is told without devices, and agrees with published figures."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from ds_jax import config
from ds_jax.checkpoint import names
from ds_jax.engine import check, footprint, traffic
from ds_jax.errors import ConfigError
from ds_jax.sharding import mesh
from ds_jax.sharding.mesh import MeshSpec

ENGINE = config.Engine(max_sequences=8, max_context=131072)
CACHE = config.Cache(snapshots=0)


@pytest.fixture(scope="module")
def released(request) -> config.Model:
    return config.load_model(request.config.rootpath / "configs" / "deepseek_v41_flash.json")


@pytest.fixture(scope="module")
def tiny(golden) -> config.Model:
    return config.load_model(golden / "model" / "quant_fp8_fp4" / "config.json")


def measure(model, text, *, quantized=True):
    return footprint.measure(model, MeshSpec.parse(text), ENGINE, CACHE, quantized=quantized)


def test_whole_weights_are_the_checkpoint(released):
    size = measure(released, "ep1")
    stored = names.inventory(names.full_spec(released, None)["text"], True)
    constants = size.total.pop("Engram hash constants")
    assert sum(size.total.values()) == sum(t.num_bytes for t in stored)
    assert size.total["routed experts"] == 288_777_830_400
    assert size.total["attention"] == 5_151_556_608
    assert size.total["hyper-connections"] == 157_295_040
    assert constants == 2 * 4 * 129_280 * 8


def test_experts_and_tables_shrink_with_devices_and_the_rest_does_not(released):
    one, many = measure(released, "ep1"), measure(released, "ep8,dp64")
    assert many.weights["routed experts"] * 8 == one.weights["routed experts"]
    assert many.weights["Engram tables"] * 64 >= one.weights["Engram tables"]
    assert many.weights["Engram tables"] * 64 < one.weights["Engram tables"] + 2 * 64 * 264
    for group in ("attention", "shared experts", "embedding", "head"):
        assert many.weights[group] == one.weights[group]


def test_cache_has_the_published_size_per_token(released):
    size = measure(released, "ep64")
    assert size.token == 890
    window = 40 * 129 * 528
    tails = 3 * 2 * 2 * 512 * 4
    counts = 129_280 * 2
    assert size.slot == window + tails + 4 * 4 + counts
    assert size.cache == 8 * (size.slot + 131072 * 890)
    stored = dataclasses.replace(CACHE, snapshots=5)
    with_states = footprint.measure(
        released, MeshSpec.parse("ep64"), ENGINE, stored, quantized=True
    )
    assert with_states.state == 40 * 129 * 528  # 128 rows and one in progress
    assert with_states.cache == size.cache + 5 * with_states.state
    assert size.room(sum(size.weights.values()) + 3.5 * size.cache, 131072) == 28


def test_report_of_the_released_model(released):
    text = check.report(released, MeshSpec.parse("ep64"), ENGINE, CACHE)
    assert text.startswith("--mesh=ep64: 64 devices (replica 1 x ep 64), quantized weights, packed")
    assert "B200           150.87 GiB  fits; room for" in text
    assert "routed experts              288,777,830,400        4,512,153,600" in text
    collectives = text[text.index("collectives of a decode step (8 sequences a device)") :]
    assert "all_to_all         over ep         bfloat16[" in collectives
    assert "2 x reduce_scatter     over replica,ep" in collectives


def test_what_does_not_fit_is_said_with_numbers(released):
    def report(**options):
        engine = dataclasses.replace(ENGINE, **options)
        return check.report(
            released,
            MeshSpec.parse("ep8"),
            engine,
            CACHE,
            device_memory_gib=80,
            collectives=lambda: [],
        )

    assert "given device   72.00 GiB  fits" in report()
    assert "does not fit: 23.82 GiB too much; there is room for 50 seq" in report(max_sequences=264)
    plain = report(weights="dequantized")
    assert "bf16 weights" in plain and "does not fit: the weights alone need" in plain


def test_impossible_requests_are_refused(released):
    with pytest.raises(ConfigError, match="384 experts cannot be split over 60 devices"):
        check.report(released, MeshSpec.parse("ep60"), ENGINE, CACHE)


def test_collectives_in_loops_are_counted_by_their_length():
    devices = mesh.abstract(MeshSpec.parse("ep4"))

    def layer(x, _):
        gathered = lax.all_gather(x, "ep", axis=0, tiled=True)
        return lax.psum_scatter(gathered, "ep", scatter_dimension=0, tiled=True), None

    def step(x):
        x, _ = lax.scan(layer, x, None, length=5)
        x = lax.psum(x, "ep")
        return lax.while_loop(
            lambda v: v[0, 0] > 0, lambda v: lax.all_to_all(v, "ep", 0, 0, tiled=True), x
        )

    mapped = jax.shard_map(step, mesh=devices, in_specs=P("ep"), out_specs=P("ep"), check_vma=False)
    found = traffic.of_jaxpr(jax.make_jaxpr(mapped)(jnp.zeros((16, 3), jnp.bfloat16)))
    described = {(c.name, c.axes, c.operand, c.operand_bytes, c.count, c.rounds) for c in found}
    assert described == {
        ("all_gather", ("ep",), "bfloat16[4,3]", 24, 5, False),
        ("reduce_scatter", ("ep",), "bfloat16[16,3]", 96, 5, False),
        ("all_reduce", ("ep",), "bfloat16[4,3]", 24, 1, False),
        ("all_to_all", ("ep",), "bfloat16[4,3]", 24, 1, True),
    }


def test_one_device_exchanges_nothing(tiny):
    find = functools.partial(traffic.decode_collectives, tiny, quantized=True)
    engine = config.Engine(max_sequences=2, max_context=64)
    assert find(MeshSpec.parse("ep1"), engine, CACHE) == []
    several = {c.name for c in find(MeshSpec.parse("ep2,dp4"), engine, CACHE)}
    assert several == {"all_gather", "reduce_scatter"}


def test_a_decode_step_lowers_for_a_platform_that_is_not_here(tiny):
    engine = config.Engine(max_sequences=2, max_context=64)
    traced = traffic.trace_decode(tiny, MeshSpec.parse("ep8"), engine, CACHE, quantized=True)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.all_gather" in text and "stablehlo.reduce_scatter" in text
