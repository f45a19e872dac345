"""Images are measured before they are decoded, and come out in the planned size."""

from __future__ import annotations

import io
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from ds_jax import recipe
from ds_jax.recipe import image_header, image_preprocess
from tests.recipe import image_files
from tests.recipe.image_files import chunk, png, png_header, png_of

SAMPLES = image_files.samples()
OPTIONS = recipe.PreprocessOptions("high", 8192, 512)
PIXELS = zlib.compress((b"\0" + b"\1\2\3" * 4) * 4)
END = chunk(b"IEND", b"")


def prepared(data: bytes, options: recipe.PreprocessOptions = OPTIONS) -> recipe.ImageInfo:
    """What the preprocessor makes of a file."""
    return recipe.OpenCvImagePreprocessor().preprocess(data, options)


def outcome(library, data: bytes, max_side: int = 8192) -> object:
    """A size, or the kind of an error."""
    options = library.PreprocessOptions("high", max_side, 512)
    try:
        made = library.OpenCvImagePreprocessor().preprocess(data, options)
    except library.ImageError as error:
        return error.kind
    return made.width, made.height


def pixels(info: recipe.ImageInfo) -> np.ndarray:
    """The decoded result."""
    return np.asarray(Image.open(io.BytesIO(info.data)).convert("RGB")).astype(int)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_becomes_webp_of_the_planned_size(name):
    info = prepared(SAMPLES[name])
    assert (info.width, info.height) == (616, 490)
    assert info.data[8:12] == b"WEBP"
    assert Image.open(io.BytesIO(info.data)).size == (616, 490)


@pytest.mark.parametrize("name", SAMPLES)
def test_header_alone_gives_the_size(name):
    data = SAMPLES[name]
    kind = image_header.sniff(data)
    assert kind is not None and name.startswith(kind)
    assert image_header.size(data, kind) == (9, 7)


@pytest.mark.parametrize("name", SAMPLES)
def test_broken_files_raise_nothing_but_image_errors(name):
    rng = random.Random(name)
    for _ in range(15):
        assert outcome(recipe, image_files.broken(rng, SAMPLES[name]))
    for _ in range(300):  # nothing is decoded
        data = image_files.broken(rng, SAMPLES[name])
        assert outcome(recipe, data, max_side=0) in (
            *("Decode", "EmptyImage", "ImageDimensionsTooLarge", "UnsupportedMediaType"),
        )


@pytest.mark.parametrize("name", [name for name in SAMPLES if "jpeg" not in name])
def test_broken_headers_are_judged_as_in_the_library(name):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    rng = random.Random(name)
    for _ in range(100):
        data = image_files.broken(rng, SAMPLES[name])
        assert outcome(recipe, data, 0) == outcome(library, data, 0), data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "EmptyImage"),
        (b"x", "UnsupportedMediaType"),
        (b"BM" + bytes(60), "UnsupportedMediaType"),
        (b"<svg/>", "UnsupportedMediaType"),
        (b"II*\0" + bytes(60), "UnsupportedMediaType"),
        (b"\x89PNG", "Decode"),
        (b"GIF89a", "Decode"),
        (b"\xff\xd8\xff", "Decode"),
        (b"xxxxxxxxWEBP", "Decode"),
        (png_of(png_header(0, 1), chunk(b"IDAT", b"")), "Decode"),
        (png_of(png_header(4, 4, depth=3), chunk(b"IDAT", PIXELS), END), "Decode"),
        (png_of(png_header(4, 4), END), "Decode"),
        (png_of(png_header(4, 4), chunk(b"ABCD", b""), chunk(b"IDAT", PIXELS), END), "Decode"),
        (png_of(png_header(4, 4), chunk(b"IDAT", PIXELS)), "EmptyImage"),
        (png_of(png_header(4, 4), chunk(b"IDAT", PIXELS, b"abcd"), END), "EmptyImage"),
        (png_of(png_header(4, 4), chunk(b"IDAT", b"hello"), END), "EmptyImage"),
        (png_of(png_header(4, 4, 8, 3), chunk(b"IDAT", PIXELS), END), "EmptyImage"),
        (SAMPLES["jpeg RGB"][:-2], "EmptyImage"),
        (SAMPLES["webp RGB"][:-9], "EmptyImage"),
        (SAMPLES["gif RGB"][:-40], "Decode"),
        (b"GIF89a" + bytes(7) + b",x", "EmptyImage"),
    ],
)
def test_broken_files_have_their_kind(data, kind):
    with pytest.raises(recipe.ImageError, match="image\\[0\\]: You have uploaded") as caught:
        prepared(data)
    assert (caught.value.kind, caught.value.is_retryable) == (kind, False)


def test_a_bomb_is_refused_by_its_header(monkeypatch):
    def decode(*_: object) -> None:
        raise AssertionError("decoded before its size was checked")

    monkeypatch.setattr(image_preprocess, "_decode", decode)
    bomb = zlib.compress(bytes(1 << 20))
    for width, height in ((8193, 1), (1, 8193), (2**31 - 1, 2**31 - 1), (2**32 - 1, 1)):
        data = png_of(png_header(width, height), chunk(b"IDAT", bomb), END)
        with pytest.raises(recipe.ImageError) as caught:
            prepared(data)
        assert caught.value.kind == "ImageDimensionsTooLarge"


def test_a_picture_larger_than_its_gif_screen_is_not_decoded():
    screen = struct.pack("<HHBBB", 10, 10, 0x80, 0, 0) + bytes(6)
    data = b"GIF89a" + screen + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\2\0;"
    assert outcome(recipe, data) == "Decode"


def test_a_jpeg_file_of_endless_scans_is_not_decoded():
    data = SAMPLES["jpeg progressive"]
    scan = data[data.rindex(b"\xff\xda") : -2]
    assert outcome(recipe, data[:-2] + scan * 5 + data[-2:]) == (616, 490)
    assert outcome(recipe, data[:-2] + scan * 100 + data[-2:]) == "EmptyImage"


def test_texts_and_profiles_of_a_png_file_are_not_read():
    text = chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(40 << 20)))
    profile = chunk(b"iCCP", b"a\0\0broken")
    wrong = chunk(b"tEXt", b"a\0b", b"abcd")
    file = png_of(png_header(4, 4), text, profile, wrong, chunk(b"IDAT", PIXELS), wrong, END)
    assert np.abs(pixels(prepared(file)) - (1, 2, 3)).max() < 8


def test_the_picture_stands_in_the_middle_of_grey():
    image = pixels(prepared(png(100, 50, (0, 0, 0))))
    assert image.shape == (392, 770, 3)
    assert np.abs(image[[0, 1, 390, 391]] - 127).max() < 16
    assert image[8:-8].max() < 16


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_white(mode):
    image = Image.new("RGBA", (546, 546), (255, 0, 0, 0)).convert(mode)
    kind = {"transparency": 0} if mode == "P" else {}
    image = Image.new("P", (546, 546), 0) if mode == "P" else image
    assert pixels(prepared(image_files.saved(image, "PNG", **kind))).min() > 245


def test_sixteen_bits_are_scaled_and_orientation_is_ignored():
    grey = Image.fromarray(np.full((546, 546), 30000, np.uint16))
    assert np.abs(pixels(prepared(image_files.saved(grey, "PNG"))) - 117).max() < 8
    exif = Image.Exif()
    exif[0x112] = 6
    turned = image_files.saved(Image.new("RGB", (800, 600)), "JPEG", exif=exif)
    assert prepared(turned).width == 812


@pytest.mark.parametrize("size", [(640, 480), (90, 60), (1300, 1000), (30, 700)])
def test_pixels_are_close_to_those_of_the_library(size):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    rng = random.Random(0)
    small = (max(1, size[0] // 8), max(1, size[1] // 8))
    noise = Image.frombytes("RGB", small, rng.randbytes(3 * small[0] * small[1]))
    data = image_files.saved(noise.resize(size), "PNG")
    options = library.PreprocessOptions("high", 8192, 512)
    want = library.OpenCvImagePreprocessor().preprocess(data, options)
    assert np.abs(pixels(prepared(data)) - pixels(want)).mean() < 2.5


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: recipe.PreprocessOptions("mid", 1, 1), ValueError, "expected .low."),  # type: ignore[arg-type]
        (lambda: recipe.PreprocessOptions("low", -1, 1), OverflowError, "max_dimension_px"),
        (lambda: recipe.ImageInfo(b"", 2**32, 1), OverflowError, "width"),
        (lambda: recipe.ImageInfo(b"", 1, 1.5), TypeError, "height"),  # type: ignore[arg-type]
        (lambda: recipe.ImageInfo("x", 1, 1), TypeError, "data"),  # type: ignore[arg-type]
        (lambda: recipe.MultiModalData([1]), TypeError, "ImageInfo"),  # type: ignore[list-item]
    ],
)
def test_wrong_arguments_are_named(make, error, match):
    with pytest.raises(error, match=match):
        make()
