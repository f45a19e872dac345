"""Data URLs give the bytes that browsers read from them."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds_jax.recipe import data_url
from ds_jax.recipe.image_errors import Fault

PIECES = [
    *(
        "data:",
        "DATA:",
        "image/png",
        "image/GIF;",
        "image",
        "/",
        "text/plain",
        ";base64",
        ";BASE64",
    ),
    *(";", ",", " ", "\t", "\n", "\f", "\x0b", "\0", "#", "%", "%20", "%0a", "%3D", "=", "==", "A"),
    *("AB", "ABC", "ABCD", "+/", "-", "é", "?", "base64", '"', "\x7f", "x=1", "\xa0", "\ud800"),
]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:image/png;base64,QUJD", b"ABC"),
        ("data:image/png;base64,QUI", b"AB"),
        ("data:image/png;base64,QUI%3D", b"AB"),
        ("data:image/png;base64,QU\nI =", b"AB"),
        ("data:image/png;base64,QUJD#rest", b"ABC"),
        (" dA\nta: IMAGE/jpeg ; base64 ,QUJD ", b"ABC"),
        ("data:image/webp;charset=x;base64,QUJD", b"ABC"),
        ("data:image/gif,a%41%0a%zz+é", b"aA\n%zz+\xc3\xa9"),
        ("data:image/png;base64,", b""),
        ("data:image/png,", b""),
        ("data:image/png;base64;x,QUJD", b"QUJD"),
    ],
)
def test_bytes_are_read(url, expected):
    assert data_url.image_bytes(url) == expected


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("", "InvalidDataUrl"),
        ("nope", "InvalidDataUrl"),
        ("data:image/png", "InvalidDataUrl"),
        ("data:image/png#,", "InvalidDataUrl"),
        ("data:image/png;base64,!!", "InvalidDataUrl"),
        ("data:image/png;base64,A", "InvalidDataUrl"),
        ("data:image/png;base64,AA=", "InvalidDataUrl"),
        ("data:image/png;base64,QUJD=", "InvalidDataUrl"),
        ("data:image/png;base64,_-AA", "InvalidDataUrl"),
        ("data:text/plain;base64,!!", "UnsupportedMediaType"),
        ("data:,abc", "UnsupportedMediaType"),
        ("data:image/svg+xml,<svg/>", "UnsupportedMediaType"),
        ("data:image/p\fng,", "UnsupportedMediaType"),
    ],
)
def test_what_is_no_image_is_refused(url, kind):
    with pytest.raises(Fault) as caught:
        data_url.image_bytes(url)
    assert caught.value.kind == kind


@given(st.binary())
def test_base64_round_trips(data):
    text = base64.b64encode(data).decode()
    assert data_url.image_bytes(f"data:image/png;base64,{text}") == data


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_data_urls_are_read_as_in_the_library(url):
    library = pytest.importorskip("deepseek_recipe", reason="needs deepseek-recipe 0.2.0")
    url = url.replace("\ud800", "")
    resolver = library.ImageResolver(
        library.ReqwestImageFetcher(), library.OpenCvImagePreprocessor()
    )
    want = "ok"
    try:
        resolver.resolve([library.DataUrlImageSource(url)], library.ImageQuota())
    except library.ImageError as error:
        want = error.kind
    got = "UnsupportedMediaType"  # what the decoder says of such bytes
    try:
        got = got if data_url.image_bytes(url) else "EmptyImage"
    except Fault as fault:
        got = fault.kind
    assert got == want


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join))
def test_nothing_but_a_fault_is_raised(url):
    with contextlib.suppress(Fault):
        data_url.image_bytes("data:image/png" + url)
