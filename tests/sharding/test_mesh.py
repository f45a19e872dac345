"""Meshes are written `ep2,dp8`; impossible ones are refused with what would work."""

from __future__ import annotations

import jax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from ds_jax import config
from ds_jax.errors import ConfigError
from ds_jax.models import deepseek_v41
from ds_jax.sharding import mesh, params, rules
from ds_jax.sharding.mesh import MeshSpec
from ds_jax.sharding.params import InputFirst, ParamSpec, QuantArray


@pytest.mark.parametrize(
    ("text", "devices", "shape"),
    [
        ("ep64", 64, (1, 64)),
        ("ep8", 8, (1, 8)),
        ("ep1", 1, (1, 1)),
        ("ep2,dp8", 8, (4, 2)),
        ("dp8,ep2", 8, (4, 2)),
        ("ep4, cp1", 4, (1, 4)),
        ("dp3", 3, (3, 1)),
    ],
)
def test_grammar(text, devices, shape):
    spec = MeshSpec.parse(text)
    assert (spec.devices, spec.shape) == (devices, shape)
    assert MeshSpec.parse(str(spec)) == spec
    abstract = mesh.abstract(spec)
    assert dict(abstract.shape) == dict(zip(mesh.AXES, shape, strict=True))
    assert set(abstract.axis_types) == {AxisType.Auto}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not an axis and a size; use axis names with sizes, such as ep8"),
        ("tp8", "'tp8' is not an axis"),
        ("ep8,", "'' is not an axis"),
        ("ep-8", "'ep-8' is not an axis"),
        ("ep0", "ep must be at least 1"),
        ("ep2,ep4", "ep is given twice"),
        ("ep4,dp6", "ep=4 must divide dp \\* cp = 6 devices; use ep 3 or 6"),
        ("ep2,cp8", "context parallelism is not available in this version; leave cp out"),
        ("ep64,cp64", "context parallelism is not available"),
    ],
)
def test_impossible_meshes_are_refused(text, message):
    with pytest.raises(ConfigError, match=message) as error:
        MeshSpec.parse(text)
    assert str(error.value).startswith("--mesh=")


def released(root) -> config.Model:
    return config.load_model(root / "configs" / "deepseek_v41_flash.json")


def test_experts_must_divide_and_the_message_says_what_would(request):
    model = released(request.config.rootpath)
    with pytest.raises(ConfigError) as error:
        MeshSpec.parse("ep60").check(model)
    assert str(error.value) == (
        "--mesh=ep60: 384 experts cannot be split over 60 devices; "
        "use a divisor of 384 such as 48 or 64"
    )
    MeshSpec.parse("ep64").check(model)


def test_built_mesh_uses_the_first_devices():
    built = mesh.build(MeshSpec.parse("ep2,dp4"), "cpu")
    assert built.axis_names == mesh.AXES and built.devices.shape == (2, 2)
    assert set(built.devices.flat) == set(jax.devices()[:4])
    assert set(built.axis_types) == {AxisType.Auto}


def test_too_few_devices_says_how_many_there_are():
    with pytest.raises(ConfigError) as error:
        mesh.build(MeshSpec.parse("ep64"))
    assert str(error.value) == (
        "--mesh=ep64: needs 64 devices, there are 8 of platform cpu; "
        "use a smaller mesh such as ep8; for virtual CPU devices set JAX_NUM_CPU_DEVICES=64"
    )


def test_unknown_platform_says_how_a_plugin_is_registered():
    with pytest.raises(ConfigError, match=r"--platform=ascend: .*found cpu") as error:
        mesh.build(MeshSpec.parse("ep1"), "ascend")
    for way in ("jax_plugins", "entry point", "PJRT_NAMES_AND_LIBRARY_PATHS"):
        assert way in str(error.value)


def test_a_platform_that_answers_for_another_is_refused(monkeypatch):
    cpu = jax.devices()
    monkeypatch.setattr(mesh.jax, "devices", lambda platform=None: cpu)
    with pytest.raises(ConfigError, match="--platform=ascend: jax answered with cpu"):
        mesh.find_devices("ascend")


def test_experts_and_table_rows_are_split_and_nothing_else(request):
    model = released(request.config.rootpath)
    spec_tree = deepseek_v41.spec(model)
    specs = rules.partition_specs(spec_tree, True)
    layer = specs.layers[1]
    split = PartitionSpec("ep")
    assert layer.ffn.w13 == QuantArray(split, split, "fp4")
    rows = PartitionSpec(("replica", "ep"))
    assert layer.engram.table == QuantArray(rows, rows, "rows")
    whole = PartitionSpec()
    assert layer.attn.wkv == QuantArray(whole, whole, "fp8")
    assert specs.embed == layer.hc_attn.fn == whole


def test_a_matrix_held_input_first_is_split_over_the_same_axis():
    tree = {"a": params.linear((4, 6, 8), "fp4", ("a.{e}",), ("experts", "rows", None)), "b": None}
    held = jax.tree.map(params.input_first, tree, {"a": jax.numpy.zeros((4, 6, 8)), "b": None})
    specs = rules.partition_like(tree, held)
    assert specs == {"a": InputFirst(PartitionSpec("ep", None, ("replica", "ep"))), "b": None}
    assert jax.tree.structure(specs) == jax.tree.structure(held)


@pytest.mark.parametrize("quantized", [True, False])
@pytest.mark.parametrize("text", ["ep64", "ep8,dp64"])
def test_released_parameters_shard_evenly(request, quantized, text):
    devices = mesh.abstract(MeshSpec.parse(text))
    spec_tree = deepseek_v41.spec(released(request.config.rootpath))
    multiple = rules.row_multiple(devices)
    assert multiple == 64
    arrays = params.abstract(spec_tree, quantized, jax.numpy.bfloat16, multiple)
    shardings = rules.shardings(spec_tree, quantized, devices)
    assert jax.tree.structure(arrays) == jax.tree.structure(shardings)

    def check(array, sharding):
        assert isinstance(sharding, NamedSharding)
        sharding.shard_shape(array.shape)  # raises where a dimension does not divide

    jax.tree.map(check, arrays, shardings)


def test_rules_can_be_replaced():
    spec = ParamSpec((8, 4), "bf16", ("experts", None), ("x",))
    assert rules.partition_spec(spec, {"experts": ("replica",)}) == PartitionSpec("replica")
    assert rules.partition_spec(spec, {}) == PartitionSpec()
    assert rules.row_multiple(None) == 1
