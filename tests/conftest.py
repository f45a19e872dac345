"""How every test runs: 8 virtual CPU devices, strict promotion, a persistent compilation cache."""

from __future__ import annotations

import pathlib

import jax
import pytest

ROOT = pathlib.Path(__file__).parents[1]


def pytest_configure(config: pytest.Config) -> None:
    """Configures jax before any test touches a device."""
    if config.getoption("markexpr") != "gpu":
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture(scope="session")
def golden() -> pathlib.Path:
    """Folder of recorded cases."""
    return ROOT / "tests" / "golden"
