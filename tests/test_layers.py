"""The two worlds stay apart: an import may only point down, and the host world imports no jax."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tomllib

import jax.numpy as jnp
import jaxtyping
import pytest

import ds_jax
from ds_jax.pallas_kernels import quantize

PACKAGE = pathlib.Path(ds_jax.__file__).parent
ROOT = PACKAGE.parent

HOST_ONLY = (
    *("config", "config_rules", "errors", "primes", "published_layout", "records", "strict_table"),
    *(
        "benchmark.host",
        "benchmark.plot",
        "benchmark.workload",
        "kvcache",
        "recipe",
        "simulator",
        "structured",
        "speculative.plan",
    ),
    *("engine.balance", "engine.buckets", "engine.launches", "engine.limits", "engine.plan"),
    *("engine.queue", "engine.rank"),
    *("engine.scheduler", "engine.sequence", "engine.stats", "engine.stop"),
    "serving",
)


def existing_modules(name: str) -> list[str]:
    """Every module under a dotted name of the package that exists in this tree."""
    path = PACKAGE.joinpath(*name.split("."))
    if path.with_suffix(".py").exists():
        return [f"ds_jax.{name}"]
    files = sorted(path.rglob("*.py"))
    relative = [file.relative_to(PACKAGE.parent).with_suffix("") for file in files]
    return [".".join(r.parts).removesuffix(".__init__") for r in relative]


def host_modules() -> list[str]:
    modules = [module for name in HOST_ONLY for module in existing_modules(name)]
    return [module for module in modules if not module.endswith("__main__")]


def test_host_modules_import_no_jax():
    probe = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    loaded = sorted({m.split('.')[0] for m in sys.modules} & {'jax', 'jaxlib', 'flax'})\n"
        "    assert not loaded, f'{name} imports {loaded}'\n"
    )
    command = [sys.executable, "-c", probe, *host_modules()]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_public_names_load_lazily():
    probe = (
        "import sys, ds_jax\n"
        "ds_jax.SamplingParams()\n"
        "assert ds_jax.__version__\n"
        "assert 'jax' not in sys.modules\n"
    )
    command = [sys.executable, "-c", probe]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Pipelin"):
        ds_jax.Pipelin  # noqa: B018


def test_contract_names_every_host_module():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    named = next(c["source_modules"] for c in contracts if c["id"] == "host-only")
    for module in host_modules():
        covered = any(module == name or module.startswith(f"{name}.") for name in named)
        assert covered, f"add {module} or its package to the host-only contract in pyproject.toml"


def test_imports_only_point_down():
    command = [str(pathlib.Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_shapes_in_signatures_are_checked_under_pytest():
    floats = jnp.zeros((2, 4), jnp.float32)
    with pytest.raises(jaxtyping.TypeCheckError, match="packed"):
        quantize.decode_fp4(floats)
