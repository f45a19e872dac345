"""Random Responses requests convert exactly as deepseek-recipe 0.2.0 converts them.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_responses_fuzz --cases 100000 --seed 1`.

Of several calls without output the library names one at random; the id is not compared then.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_jax import recipe
from tests.recipe import conversion_cases, responses_requests

_SCHEMA_TEXTS = ("Invalid schema for function ", "Invalid json schema: ")
_MISSING_OUTPUT = re.compile(r"(No tool output found for tool call ).*?\.\\\"", re.DOTALL)
_CREATED = re.compile(r'"created_at":\d+')


def outcome(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """What a library makes of a case, and the first event of its answer."""
    case = json.loads(json.dumps(case))
    converted = conversion_cases.run(library, case)
    if "ok" in converted:
        options = conversion_cases.conversion_options(library, case["options"])
        request = library.ResponsesRequest(case["body"]).convert(options)
        generator = library.ResponsesRequest.chunk_generator(request, "id", "model")
        processor = library.StreamProcessor(generator, request.parsing_options)
        event = processor.push(library.InferenceChunk.ready())[0].to_json()
        converted["created"] = _CREATED.sub("", event)
    return converted


def difference(case: dict[str, Any]) -> str | None:
    """What the two libraries say where they disagree."""
    reference = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    want, got = outcome(reference, case), outcome(recipe, case)
    message = json.loads(want["error"]["body"])["error"]["message"] if "error" in want else ""
    wording = message.startswith(_SCHEMA_TEXTS)  # of a schema library
    want_text = _comparable(want, wording)
    got_text = _comparable(got, wording)
    if want_text == got_text:
        return None
    return f"{json.dumps(case, ensure_ascii=False)}\nwant {want_text}\ngot  {got_text}"


def _comparable(outcome: dict[str, Any], library_text: bool) -> str:
    text = conversion_cases.comparable(outcome, library_text=library_text)
    return _MISSING_OUTPUT.sub(r"\1", text)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_random_requests_convert_as_in_the_library(rng):
    pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    assert difference(responses_requests.request(rng)) is None


def main() -> None:
    """Compares many seeded cases; prints the first differences and a count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=5)
    arguments = parser.parse_args()
    rng, found = random.Random(arguments.seed), 0
    for _ in range(arguments.cases):
        text = difference(responses_requests.request(rng))
        if text is not None:
            found += 1
            if found <= arguments.show:
                print(text)
    print(f"{arguments.cases} cases, seed {arguments.seed}: {found} differences")


if __name__ == "__main__":
    main()
