"""How every test runs: 8 virtual CPU devices, strict promotion, checked shapes, kept programs."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import pkgutil
import types
from collections.abc import Callable
from typing import Any

import beartype
import jax
import jaxtyping
import pytest

ROOT = pathlib.Path(__file__).parents[1]
SHAPE_CHECKED = ("ds_jax.models", "ds_jax.pallas_kernels", "ds_jax.sampling", "ds_jax.sharding")


def pytest_configure(config: pytest.Config) -> None:
    """Configures jax before any test touches a device."""
    if config.getoption("markexpr") != "gpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    # tests compile far more than they compute
    jax.config.update("jax_disable_most_optimizations", True)
    compile_fast()
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    for package in SHAPE_CHECKED:
        check_shapes(package)


def compile_fast() -> None:
    """Code that is made in half the time, and so runs a little slower; fewer collections of the
    garbage that tracing leaves.

    Newer compilers have one way to make code left; they end the process for an unknown flag.
    """
    gc.set_threshold(100_000, 20, 20)
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def check_shapes(package: str) -> None:
    """Checks the shapes and dtypes in the signatures of a package's functions on every call.

    Only array annotations are checked. Fields of parameter dataclasses are not: the same dataclass
    holds arrays, declarations and shardings.
    """
    if importlib.util.find_spec(package) is None:
        return
    path = importlib.import_module(package).__path__
    for info in pkgutil.walk_packages(path, f"{package}."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).copy().items():
            if inspect.isfunction(function) and function.__module__ == info.name:
                setattr(module, name, shape_checked(function))


def shape_checked(function: types.FunctionType) -> Callable[..., Any]:
    """The function, refusing arrays that do not fit an annotation such as Float[Array, "T D"]."""
    shapes = {k: v for k, v in function.__annotations__.items() if "[Array," in str(v)}
    if not shapes:
        return function
    parts = (function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    clone = types.FunctionType(function.__code__, *parts)
    functools.update_wrapper(clone, function)
    clone.__kwdefaults__ = function.__kwdefaults__
    clone.__annotations__ = shapes
    del clone.__wrapped__  # its annotations would be read instead
    return jaxtyping.jaxtyped(clone, typechecker=beartype.beartype)


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """Folder of recorded cases."""
    return ROOT / "tests" / "golden"
