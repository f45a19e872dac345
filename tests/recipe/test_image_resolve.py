"""Image sources are read in order, counted and refused as deepseek-recipe 0.2.0 does it."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from ds_jax import recipe
from ds_jax.recipe.image_errors import MIB
from tests.recipe import golden_cases, image_files, strategies

OK = image_files.png(4, 4)
BLOBS = [
    *(OK, OK, OK, image_files.WHITE_GIF, image_files.png(30, 5), b"", b"xx", b"BM12", OK[:20]),
    *(b"\xff\xd8\xff", b"GIF89a", image_files.png_of(image_files.png_header(9000, 2))),
]
LINKS = ["nope", "", "ftp://x", 'a"b\n', "httq://", "x" * 9000, "http" + "x" * 9000, "\u0301"]
PATHS = ["", "", "messages.0.content[1]", "input[3]"]
PREFIXES = [
    *("data:image/png;base64,", "data:image/gif;base64,", "data:image/png;base64,"),
    *("data:text/plain;base64,", "nope", "data:,"),
]


def random_source(rng: random.Random) -> dict[str, Any]:
    """A source that needs no network."""
    rest = {
        "detail": rng.choice(("low", "high", "auto", "original")),
        "path": rng.choice(PATHS),
    }
    text = base64.b64encode(rng.choice(BLOBS)).decode()
    match rng.randrange(7):
        case 0:
            return {"kind": "url", "url": rng.choice(LINKS), **rest}
        case 1 | 2 | 3:
            return {"kind": "data_url", "data_url": rng.choice(PREFIXES) + text, **rest}
        case _:
            return {"kind": "base64", "base64": text, **rest}


def random_case(rng: random.Random) -> dict[str, Any]:
    """Some calls with one quota."""
    counts = (0, 1, 1, 2, 2, 3, 4)
    calls = [
        [random_source(rng) for _ in range(rng.choice(counts))]
        for _ in range(rng.choice((1, 1, 2, 3)))
    ]
    return {"op": "resolve", "calls": calls}


def padded(num_bytes: int) -> recipe.BytesImageSource:
    """A small picture in a file of this size."""
    return recipe.BytesImageSource(OK.ljust(num_bytes, b"\0"))


def resolver() -> recipe.ImageResolver:
    """The parts put together, without pauses between attempts."""
    return recipe.ImageResolver(
        recipe.ReqwestImageFetcher(), recipe.OpenCvImagePreprocessor(), retry_delays_s=()
    )


@pytest.mark.parametrize(
    "case", golden_cases.read("image/resolve.open.jsonl"), ids=lambda case: case["id"]
)
def test_recorded_calls_are_answered(case):
    assert image_files.run(recipe, case["input"]) == case["expected"]


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.cases(random_case))
def test_random_calls_are_answered_as_in_the_library(case):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    assert image_files.run(recipe, case) == image_files.run(library, case)


@pytest.mark.parametrize(
    ("sources", "kind", "message"),
    [
        ([padded(32 * MIB + 1)], "ImageTooLarge", "image[0]: image file size exceeds limit 32 MB"),
        (
            [padded(20 * MIB)] * 4,
            "TotalSizeTooLarge",
            "Total image size exceeds the limit: max 64 MB per request, got 80 MB",
        ),
        (
            [padded(32 * MIB), padded(32 * MIB), padded(100), recipe.DataUrlImageSource("nope")],
            "TotalSizeTooLarge",
            "Total image size exceeds the limit: max 64 MB per request, got 64 MB",
        ),
        (
            [padded(32 * MIB), padded(32 * MIB), padded(33 * MIB)],
            "ImageTooLarge",
            "image[2]: image file size exceeds limit 32 MB",
        ),
    ],
)
def test_files_that_are_too_large_are_refused(sources, kind, message):
    quota = recipe.ImageQuota()
    with pytest.raises(recipe.ImageError) as caught:
        resolver().resolve(sources, quota)
    assert (caught.value.kind, str(caught.value)) == (kind, message)
    assert (quota.image_count(), quota.byte_size()) == (0, 0)


def test_limits_are_counted_over_calls_and_only_when_a_call_succeeds():
    quota = recipe.ImageQuota()
    resolver().resolve([padded(32 * MIB)], quota)
    resolver().resolve([padded(31 * MIB)], quota)
    with pytest.raises(recipe.ImageError, match="got 65 MB"):
        resolver().resolve([padded(2 * MIB)], quota)
    resolver().resolve([padded(MIB)], quota)
    assert (quota.image_count(), quota.byte_size()) == (3, 64 * MIB)


def test_images_are_numbered_within_their_place():
    bad = recipe.BytesImageSource(b"xx", path="a")
    good = [recipe.BytesImageSource(OK, path=path) for path in ("a", "b", "a", "")]
    with pytest.raises(recipe.ImageError, match=r"^a\.image\[2\]: "):
        resolver().resolve([*good, bad], recipe.ImageQuota())


def test_equal_files_are_prepared_once(monkeypatch):
    prepared: list[bytes] = []
    original = recipe.OpenCvImagePreprocessor.prepare

    def counting(self, data, options):
        prepared.append(data)
        return original(self, data, options)

    monkeypatch.setattr(recipe.OpenCvImagePreprocessor, "prepare", counting)
    low = recipe.BytesImageSource(OK, "low")
    made = resolver().resolve([padded(0), low, padded(0), padded(100)], recipe.ImageQuota())
    assert len(prepared) == 3
    assert len(made.images) == 4
    assert made.image_token_adjustment() == 4 * 183


def test_wrong_arguments_are_named():
    fetcher, preprocessor = recipe.ReqwestImageFetcher(), recipe.OpenCvImagePreprocessor()
    with pytest.raises(TypeError, match="fetcher"):
        recipe.ImageResolver(1, preprocessor)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="preprocessor"):
        recipe.ImageResolver(fetcher, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="quota"):
        resolver().resolve([], 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sources"):
        resolver().resolve([1], recipe.ImageQuota())  # type: ignore[list-item]
