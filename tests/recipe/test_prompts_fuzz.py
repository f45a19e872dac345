"""Random conversations give the prompts and ids that deepseek-recipe 0.2.0 gives.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_prompts_fuzz --cases 100000 --seed 1`.
"""

from __future__ import annotations

import functools
import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ds_jax import recipe
from tests.recipe import fuzzing, golden_cases, prompt_cases, strategies

TOKENIZER = golden_cases.GOLDEN / "tokenizer_514.json"
# With an empty spelling of one of these the library stops with a panic.
_NEVER_EMPTY = ("ref", "box", "point", "polygon")


def case(rng: random.Random) -> dict[str, Any]:
    """A conversation, a version and perhaps other spellings."""
    spellings = strategies.special_tokens(rng) if strategies.sometimes(rng, 4) else {}
    return {
        "version": strategies.some(rng, ["v4", "v41"]),
        "conversation": strategies.conversation(rng),
        "special_tokens": {
            name: spelling or ("" if not name.startswith(_NEVER_EMPTY) else "<M>")
            for name, spelling in spellings.items()
        },
    }


def outcome(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """The prompt and its ids."""
    encoding = prompt_cases.encoding(library, case["version"], case["special_tokens"])
    conversation = strategies.build_conversation(library, case["conversation"])
    shown = prompt_cases.shown(encoding.render_conversation(conversation))
    try:
        shown["ids"] = encoding.with_tokenizer(_tokenizer(library)).encode(conversation)
    except RuntimeError as error:
        shown["runtime_error"] = str(error)
    return shown


@functools.cache
def _tokenizer(library: ModuleType) -> Any:
    return library.Tokenizer.from_file(str(TOKENIZER))


def difference(case: dict[str, Any]) -> str | None:
    """What the two libraries say where they disagree."""
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    want, got = outcome(reference, case), outcome(recipe, case)
    return None if want == got else f"{case!r}\nwant {want!r}\ngot  {got!r}"


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(case))
def test_random_conversations_render_and_encode_as_in_the_library(made):
    assert difference(made) is None


if __name__ == "__main__":
    fuzzing.run(__doc__, case, difference)
