"""Which setting to lower when a replica's state does not fit into memory.

Decides the words of that error. Never allocates. In: sizes and an error of the runtime. Out: a
`ConfigError` that names the settings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ds_jax import config
from ds_jax.engine import limits
from ds_jax.errors import ConfigError
from ds_jax.models import cache as caches

EXHAUSTED = ("RESOURCE_EXHAUSTED", "Out of memory", "OUT_OF_MEMORY")


@contextlib.contextmanager
def named(
    engine: config.Engine, cache: config.Cache, layout: caches.Layout, ranks: int
) -> Iterator[None]:
    """Turns an error of the allocator into one that says what to lower.

    Raises:
      ConfigError: there is too little memory for slots, pages and stored states.
    """
    try:
        yield
    except (RuntimeError, ValueError, MemoryError, OverflowError) as error:
        if not is_out_of_memory(error):
            raise
        name, value = "pages", cache.pages
        if value is None:
            name, value = "max_context", engine.max_context
        raise ConfigError(
            f"{ranks} x {layout.num_slots} slots, {layout.num_pages:,} pages of "
            f"{layout.page_tokens} tokens and {limits.snapshots(engine, cache):,} stored states "
            f"do not fit into memory; lower {name}={value:,} first, then "
            f"max_sequences={engine.max_sequences:,} or snapshots"
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the runtime or the host says that memory is short."""
    text = str(error)
    return isinstance(error, (MemoryError, OverflowError)) or any(w in text for w in EXHAUSTED)
