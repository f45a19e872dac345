"""Random Responses requests convert exactly as deepseek-recipe 0.2.0 converts them.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_responses_fuzz --cases 100000 --seed 1`.

Of several calls without output the library names one at random; the id is not compared then.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.recipe import (
    conversion_cases,
    conversion_difference,
    fuzzing,
    responses_requests,
    strategies,
)

_MISSING_OUTPUT = re.compile(r"(No tool output found for tool call ).*?\.\\\"", re.DOTALL)
_CREATED = re.compile(r'"created_at":\d+')


def outcome(library: ModuleType, case: dict[str, Any]) -> dict[str, Any]:
    """What a library makes of a case, and the first event of its answer."""
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
    return conversion_difference.difference(
        case, outcome, lambda text: _MISSING_OUTPUT.sub(r"\1", text)
    )


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(responses_requests.request))
def test_random_requests_convert_as_in_the_library(case):
    assert difference(case) is None


if __name__ == "__main__":
    fuzzing.run(__doc__, responses_requests.request, difference)
