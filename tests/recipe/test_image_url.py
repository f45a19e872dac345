"""Links mean to the fetcher what they mean to a browser, and no link can smuggle a header."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ds_jax.recipe import image_url


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path"),
    [
        ("http://example.org", "http", "example.org", 80, "/"),
        ("HTTPS://EXAMPLE.org/a?b#c", "https", "example.org", 443, "/a?b"),
        ("http://example.org:8080?q", "http", "example.org", 8080, "/?q"),
        (" ht\ntp://example.org/\t", "http", "example.org", 80, "/"),
        ("http:example.org", "http", "example.org", 80, "/"),
        ("http:///example.org/x", "http", "example.org", 80, "/x"),
        ("http:\\\\example.org\\x", "http", "example.org", 80, "/x"),
        ("http://example.org\\@127.0.0.1/", "http", "example.org", 80, "/@127.0.0.1/"),
        ("http://example.org#@127.0.0.1/", "http", "example.org", 80, "/"),
        ("http://a@b@example.org/", "http", "example.org", 80, "/"),
        ("http://127.1/", "http", "127.0.0.1", 80, "/"),
        ("http://2130706433/", "http", "127.0.0.1", 80, "/"),
        ("http://0x7f.0.0.1/", "http", "127.0.0.1", 80, "/"),
        ("http://0177.0.0.1./", "http", "127.0.0.1", 80, "/"),
        ("http://%31%32%37.0.0.1/", "http", "127.0.0.1", 80, "/"),
        ("http://①②⑦.0.0.1/", "http", "127.0.0.1", 80, "/"),
        ("http://[::1]:81/", "http", "::1", 81, "/"),
        ("http://[0:0::FFFF:127.0.0.1]/", "http", "::ffff:127.0.0.1", 80, "/"),
        ("http://bücher.example/é b", "http", "xn--bcher-kva.example", 80, "/%C3%A9%20b"),
        ("http://example.org/a\r\nX: y", "http", "example.org", 80, "/aX:%20y"),
        ("http://example.org/%zz?é '\"", "http", "example.org", 80, "/%zz?%C3%A9%20%27%22"),
    ],
)
def test_links_are_taken_apart(url, scheme, host, port, path):
    target = image_url.parse(url)
    assert (target.scheme, target.host, target.port, target.path) == (scheme, host, port, path)


@pytest.mark.parametrize(
    "url",
    [
        *("", "http", "http://", "http:///", "nope", "ftp://example.org/", "file:///etc/passwd"),
        *("data:image/png;base64,AAAA", "http://[::1", "http://[::1]x/", "http://a:99999/"),
        *(
            "http://a:b/",
            "http://a b/",
            "http://a..b:80:80/",
            "http://1.2.3.4.5/",
        ),
        *("http://999.1.1.1/", "http://%00/", "http://a%0d%0ab/", "http://[fe80::1%25lo]/"),
        *(
            "http://" + "a" * 300,
            "http://é" + "a" * 70 + "/",
            "http://%ff/",
            "http://" + "é" * 5000 + "/",
            "http://\ud800/",
        ),
        *("http://a/\ud800", "javascript:1"),
    ],
)
def test_what_is_no_link_is_refused(url):
    with pytest.raises(ValueError):
        image_url.parse(url)


def test_name_and_password_become_a_header():
    assert image_url.parse("http://u:p%40@a/").authorization == "Basic dTpwQA=="
    assert image_url.parse("http://u@a/").authorization == "Basic dTo="
    assert image_url.parse("http://a/").authorization is None


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/x", "http://a:81/x"),
        ("x", "http://a:81/b/x"),
        ("?x", "http://a:81/b/c?x"),
        ("../x", "http://a:81/x"),
        ("//b/x", "http://b/x"),
        ("\\\\b\\x", "http://b/x"),
        ("https://b/x", "https://b/x"),
        ("http:/b", "http://b/"),
        ("", "http://a:81/b/c?d"),
    ],
)
def test_redirects_are_followed_from_where_they_stand(location, expected):
    target = image_url.redirected(image_url.parse("http://u:p@a:81/b/c?d"), location)
    assert f"{target.scheme}://{target.authority}{target.path}" == expected
    assert target.authorization is None


@given(st.text() | st.text("htps:/\\@[].#?%0123456789abcdefx\r\n \t\0", max_size=40))
def test_nothing_but_a_value_error_is_raised_and_lines_stay_whole(text):
    for url in (text, f"http://{text}", f"http://a/{text}"):
        with contextlib.suppress(ValueError):
            target = image_url.parse(url)
            for part in (target.path, target.authority, target.authorization or ""):
                assert re.fullmatch(r"[!-~ ]*", part)
            assert " " not in target.path + target.authority
            image_url.redirected(target, text)
