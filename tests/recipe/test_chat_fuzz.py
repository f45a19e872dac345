"""Random Chat Completions requests convert exactly as deepseek-recipe 0.2.0 converts them.

The library is needed for this test only. More cases than the test runs:
`python -m tests.recipe.test_chat_fuzz --cases 100000 --seed 1`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.recipe import chat_requests, fuzzing, strategies
from tests.recipe.conversion_difference import difference


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(chat_requests.request))
def test_random_requests_convert_as_in_the_library(case):
    assert difference(case) is None


if __name__ == "__main__":
    fuzzing.run(__doc__, chat_requests.request, difference)
