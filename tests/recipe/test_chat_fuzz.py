"""Random Chat Completions requests convert exactly as deepseek-recipe 0.2.0 converts them.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_chat_fuzz --cases 100000 --seed 1`.
"""

from __future__ import annotations

import argparse
import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_jax import recipe
from tests.recipe import chat_requests, conversion_cases

SCHEMA_TEXTS = ("Invalid schema for function ", "Invalid json schema: ")


def difference(case: dict[str, Any]) -> str | None:
    """What the two libraries say where they disagree."""
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    want = conversion_cases.run(reference, json.loads(json.dumps(case)))
    got = conversion_cases.run(recipe, case)
    message = json.loads(want["error"]["body"])["error"]["message"] if "error" in want else ""
    wording = message.startswith(SCHEMA_TEXTS)  # of a schema library
    want_text = conversion_cases.comparable(want, library_text=wording)
    got_text = conversion_cases.comparable(got, library_text=wording)
    if want_text == got_text:
        return None
    return f"{json.dumps(case, ensure_ascii=False)}\nwant {want_text}\ngot  {got_text}"


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_requests_convert_as_in_the_library(rng):
    pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    assert difference(chat_requests.request(rng)) is None


def main() -> None:
    """Compares many seeded cases; prints the first differences and a count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5)
    arguments = parser.parse_args()
    rng, found = random.Random(arguments.seed), 0
    for _ in range(arguments.cases):
        text = difference(chat_requests.request(rng))
        if text is not None:
            found += 1
            if found <= arguments.show:
                print(text)
    print(f"{arguments.cases} cases, seed {arguments.seed}: {found} differences")


if __name__ == "__main__":
    main()
