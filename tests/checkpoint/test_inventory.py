"""The released checkpoint's inventory follows from the declarations."""

from __future__ import annotations

import pathlib

import pytest

from ds_jax import config
from ds_jax.checkpoint import inspect, names, safetensors

RELEASED = pathlib.Path(__file__).parents[2] / "configs" / "deepseek_v41_flash.json"


@pytest.fixture(scope="module")
def parts() -> dict[str, list[safetensors.TensorInfo]]:
    model, vision = config.load(RELEASED)
    return {
        part: names.inventory(tree, True) for part, tree in names.full_spec(model, vision).items()
    }


def test_released_totals(parts):
    tensors = [t for part in parts.values() for t in part]
    assert len(tensors) == len({t.name for t in tensors}) == 96_085
    assert sum(t.num_bytes for t in tensors) == 510_286_023_000
    assert inspect.count_by_dtype(tensors) == {
        "F8_E8M0": 47_589,
        "I8": 47_232,
        "BF16": 520,
        "F32": 387,
        "F8_E4M3": 357,
    }


def test_released_parts(parts):
    sizes = {part: (len(t), sum(x.num_bytes for x in t)) for part, t in parts.items()}
    assert sizes["dspark"] == (2_401, 7_932_874_632)
    assert sizes["vision"][1] == 970_536_960


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("head.weight", 1_323_827_200),
        (".ffn.experts.", 288_777_830_400),
        (".ffn.shared_experts.", 1_416_960_000),
        (".hc_", 157_295_040),
        (".engram.embed.", 202_758_032_400),
    ],
)
def test_released_groups(parts, pattern, expected):
    assert sum(t.num_bytes for t in parts["text"] if pattern in t.name) == expected


def test_names_lead_to_parameters():
    model = config.load_model(RELEASED)
    table = names.path_table(names.full_spec(model, None)["text"], True)
    path, place = table["layers.3.ffn.experts.17.w3.scale"]
    assert path == ".layers[3].ffn.w13"
    assert (place.part, place.expert, place.row) == ("scale", 17, 2304)
    path, place = table["layers.1.engram.embed.weight"]
    assert (path, place.part, place.expert) == (".layers[1].engram.table", "data", None)


def test_parts_of_other_modules_are_known(parts):
    for part, tensors in parts.items():
        assert {names.loaded_elsewhere(t.name) for t in tensors} == {part != "text"}


def test_recorded_checkpoints_are_what_their_configs_say(golden):
    cases = sorted(golden.glob("model/*/model.safetensors"))
    assert cases
    for case in cases:
        model, vision = config.load(case.parent)
        derived = names.inventory(names.full_spec(model, vision), model.quantization is not None)
        found = safetensors.Reader(case).tensors.values()
        assert {(t.name, t.dtype, t.shape) for t in derived} == {
            (t.name, t.dtype, t.shape) for t in found
        }


def test_table_of_a_config_equals_the_table_of_its_checkpoint(case, tmp_path):
    (tmp_path / "config.json").write_bytes((case / "config.json").read_bytes())
    title, derived = inspect.tensors_of(tmp_path)
    assert title.endswith("derived from the config")
    title, found = inspect.tensors_of(case)
    assert title.endswith("tensors found")
    assert sorted(inspect.table(derived).splitlines()) == sorted(inspect.table(found).splitlines())
    assert "      32 I8                   32,768  layers.*.ffn.experts.*.w1.weight [32, 32]" in (
        inspect.table(found)
    )
