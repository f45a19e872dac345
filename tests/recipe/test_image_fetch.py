"""Images are fetched from where they may be fetched, whole, in time and not larger than allowed."""

from __future__ import annotations

import pathlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import pytest

from ds_jax import recipe
from ds_jax.recipe import image_connection
from tests.recipe import image_files, web_servers
from tests.recipe.web_servers import always, chunked, dripping, head, serving, whole

OK = image_files.png(4, 4)
FAST_S = 0.25


def local(max_bytes: int = 1000) -> recipe.ReqwestImageFetcher:
    """A fetcher that may connect to this machine alone."""
    return recipe.ReqwestImageFetcher.with_max_bytes(max_bytes).with_destination_filter(
        lambda host, address: address == "127.0.0.1"
    )


def failure(fetcher: recipe.ReqwestImageFetcher, url: str) -> tuple[str, bool]:
    """Kind and whether it is worth another attempt."""
    with pytest.raises(recipe.ImageError) as caught:
        fetcher.fetch(url)
    if caught.value.kind != "ImageTooLarge":
        assert str(caught.value) == f"image[0]: Failed to download image from {url}"
    return caught.value.kind, caught.value.is_retryable


def resolved(fetcher: recipe.ReqwestImageFetcher, *urls: str, attempts: int = 4) -> int:
    """How many images come of these links."""
    resolver = recipe.ImageResolver(
        fetcher, recipe.OpenCvImagePreprocessor(), retry_delays_s=[0.001] * (attempts - 1)
    )
    sources = [recipe.UrlImageSource(url) for url in urls]
    return len(resolver.resolve(sources, recipe.ImageQuota()).images)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0", "[::1]"),
        *("[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[::127.0.0.1]"),
        *("10.0.0.1", "192.168.0.1", "172.16.0.1", "169.254.169.254", "[fe80::1]", "[fd00::1]"),
        *("224.0.0.1", "[ff02::1]", "240.0.0.1", "user:secret@127.0.0.1", "①②⑦.0.0.1"),
    ],
)
def test_nothing_private_is_connected_to_by_default(host, monkeypatch):
    def connect(*_: object) -> None:
        raise AssertionError("connected to an address that is not public")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for scheme in ("http", "https"):
        url = f"{scheme}://{host}:8080/x"
        assert failure(recipe.ReqwestImageFetcher(), url) == ("DestinationRejected", False)


def test_redirects_are_judged_like_links():
    asked: list[tuple[str, str]] = []

    def only_the_first(host: str, address: str) -> bool:
        asked.append((host, address))
        return host == "127.0.0.1"

    with serving(always(b"")) as secret:
        inside = f"http://localhost:{secret.port}/"
        with serving(always(head(302, Location=inside))) as server:
            fetcher = local().with_destination_filter(only_the_first)
            assert failure(fetcher, server.url) == ("DestinationRejected", False)
        assert secret.requests == []
    assert asked[0] == ("127.0.0.1", "127.0.0.1")
    assert {host for host, _ in asked[1:]} == {"localhost"}


def test_the_default_rule_holds_for_redirects_too(monkeypatch):
    from ds_jax.recipe import image_destination

    judged: list[str] = []

    def is_public(address: str) -> bool:
        judged.append(address)
        return len(judged) == 1  # as if the first address were public

    monkeypatch.setattr(image_destination, "is_public", is_public)
    with serving(always(head(301, Location="http://127.0.0.1:1/"))) as server:
        assert failure(recipe.ReqwestImageFetcher(), server.url)[0] == "DestinationRejected"
    assert judged == ["127.0.0.1", "127.0.0.1"]


def test_a_name_is_resolved_once_and_the_judged_address_is_used(monkeypatch):
    with serving(always(whole(OK))) as server:
        answers = ["127.0.0.1", "10.0.0.1"]
        real = socket.getaddrinfo

        def rebinding(host: str, port: int, **options: object) -> list[tuple[object, ...]]:
            assert host == "rebinding.example"
            found = real(answers.pop(0), port, **options)  # type: ignore[arg-type]
            return list(found)

        monkeypatch.setattr(image_connection.socket, "getaddrinfo", rebinding)
        asked: list[tuple[str, str]] = []

        def allows(host: str, address: str) -> bool:
            asked.append((host, address))
            return True

        fetcher = local().with_destination_filter(allows)
        assert fetcher.fetch(f"http://rebinding.example:{server.port}/") == OK
        assert asked == [("rebinding.example", "127.0.0.1")]
        assert answers == ["10.0.0.1"]
        assert f"Host: rebinding.example:{server.port}".encode() in server.requests[0]


def test_only_allowed_addresses_of_a_name_are_tried(monkeypatch):
    with serving(always(whole(OK))) as server:
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, server.port))
            for address in ("10.0.0.1", "127.0.0.1")
        ]
        monkeypatch.setattr(image_connection.socket, "getaddrinfo", lambda *_, **__: found)
        assert local().fetch("http://two.example/") == OK


@pytest.mark.parametrize("answer", [1, None, "yes", False, ValueError("broken")])
def test_a_filter_that_does_not_say_true_forbids(answer):
    def decide(host: str, address: str) -> bool:
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    with serving(always(whole(OK))) as server:
        fetcher = local().with_destination_filter(decide)
        assert failure(fetcher, server.url) == ("DestinationRejected", False)
        assert server.requests == []


def test_builders_leave_the_fetcher_as_it_was():
    plain = recipe.ReqwestImageFetcher.with_max_bytes(10)
    with serving(always(whole(OK))) as server:
        assert failure(plain, server.url)[0] == "DestinationRejected"
        opened = plain.with_destination_filter(lambda host, address: True)
        assert failure(opened, server.url)[0] == "ImageTooLarge"
        assert failure(plain, server.url)[0] == "DestinationRejected"
    with pytest.raises(TypeError, match="callable"):
        plain.with_destination_filter(3)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        recipe.ReqwestImageFetcher.with_max_bytes(-1)
    with pytest.raises(ValueError, match="timeout_s"):
        plain.with_timeout_s(0)


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    with serving(always(whole(b"proxy"))) as proxy, serving(always(whole(OK))) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert local().fetch(server.url) == OK
        assert proxy.requests == []


def test_requests_are_plain():
    with serving(always(whole(OK))) as server:
        local().fetch(f"{server.url.replace('//', '//u:p@')}/a b\r\nX: y?é")
        lines = server.requests[0].decode().split("\r\n")
    assert lines[0] == "GET /a%20bX:%20y?%C3%A9 HTTP/1.1"
    assert "Authorization: Basic dTpw" in lines
    assert not any(line.startswith(("X", "Cookie", "Accept-Encoding")) for line in lines)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (whole(b"x" * 1000), b"x" * 1000),
        (chunked(b"x" * 400, b"y" * 600), b"x" * 400 + b"y" * 600),
        (chunked(*[b"x"] * 1000), b"x" * 1000),
        (head() + b"until the end", b"until the end"),
        (whole(b"abc") + b"more", b"abc"),
        (whole(b""), b""),
        (head(204), b""),
        (head(Content_Length="-5") + b"abc", b"abc"),
        (head(Content_Length="many") + b"abc", b"abc"),
        (whole(b"abc", 206, Content_Type="text/html"), b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"abc"), b"abc"),
    ],
)
def test_bodies_arrive_whole(answer, expected):
    with serving(always(answer)) as server:
        assert local().fetch(server.url) == expected


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (whole(b"x" * 1001), "ImageTooLarge"),
        (head(Content_Length=10**15), "ImageTooLarge"),
        (chunked(b"x" * 500, b"y" * 501), "ImageTooLarge"),
        (head() + b"x" * 1001, "ImageTooLarge"),
        (head(Content_Length=100) + b"short", "Fetch"),
        (chunked(b"x" * 10)[:-7], "Fetch"),
        (head(Transfer_Encoding="chunked") + b"zz\r\nx", "Fetch"),
        (b"", "Fetch"),
        (b"HTTP/1.1\r\n", "Fetch"),
        (b"SSH-2.0-server\r\n", "Fetch"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", "Fetch"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70000 + b"\r\n\r\n", "Fetch"),
        (b"\xff" * 100, "Fetch"),
    ],
)
def test_bodies_that_are_too_large_or_not_whole_are_refused(answer, kind):
    with serving(always(answer)) as server:
        assert failure(local(), server.url) == (kind, kind == "Fetch")


def test_the_size_limit_is_named():
    limit = "image file size exceeds limit 3 MB"
    with (
        serving(always(head(Content_Length=10**15))) as server,
        pytest.raises(recipe.ImageError, match=limit),
    ):
        local(3 << 20).fetch(server.url)


@pytest.mark.parametrize(
    "answer",
    [
        dripping(b"", b""),
        dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        dripping(head(Content_Length=900), b"x"),
        dripping(head(Transfer_Encoding="chunked"), b"1\r\nx\r\n"),
        dripping(head(Transfer_Encoding="chunked") + b"0\r\n", b"X: y\r\n"),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, 0),
    ],
    ids=["silent", "header", "headers", "body", "chunks", "trailer", "continue", "flood"],
)
def test_slow_answers_end_in_time(answer):
    with serving(answer) as server:
        start = time.monotonic()
        assert failure(local().with_timeout_s(FAST_S), server.url) == ("Fetch", True)
        assert time.monotonic() - start < 1.9  # the server would go on for 2 seconds


def test_a_name_that_is_looked_up_forever_ends_in_time(monkeypatch):
    tested = threading.Event()
    monkeypatch.setattr(
        image_connection.socket, "getaddrinfo", lambda *_, **__: tested.wait(5) and []
    )
    start = time.monotonic()
    assert failure(local().with_timeout_s(FAST_S), "http://slow.example/") == ("Fetch", True)
    assert time.monotonic() - start < 4
    tested.set()


@pytest.fixture
def tls(monkeypatch) -> Iterator[web_servers.Server]:
    """A server with a certificate for images.example, and clients that know its authority."""
    certificate = pathlib.Path(__file__).with_name("images.example.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def known() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificate))

    monkeypatch.setattr(image_connection, "_tls", known)
    with serving(always(whole(OK)), context) as server:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(image_connection.socket, "getaddrinfo", lambda *_, **__: found)
        yield server


def test_certificates_are_checked_for_the_name_of_the_link(tls):
    assert local().fetch("https://images.example/x") == OK
    assert b"Host: images.example\r\n" in tls.requests[0]
    assert failure(local(), "https://other.example/x") == ("Fetch", True)
    assert len(tls.requests) == 1


def test_unknown_certificates_are_refused(tls, monkeypatch):
    monkeypatch.setattr(image_connection, "_tls", ssl.create_default_context)
    assert failure(local(), "https://images.example/x") == ("Fetch", True)
    assert tls.requests == []


def test_no_tls_is_no_answer():
    with serving(always(whole(OK))) as server:
        fetcher = local().with_timeout_s(FAST_S)
        assert failure(fetcher, f"https://127.0.0.1:{server.port}/") == ("Fetch", True)


@pytest.mark.parametrize("url", ["nope", "", "ftp://x/", "http://", "http://[::1", "file:///x"])
def test_what_is_no_link_is_not_fetched(url):
    assert failure(local(), url) == ("Fetch", True)


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert failure(local(), f"http://127.0.0.1:{port}/") == ("Fetch", True)


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(304, False), (400, False), (404, False), (429, False), (500, True), (503, True)],
)
def test_other_status_is_no_image(status, retryable):
    with serving(always(whole(OK, status))) as server:
        assert failure(local(), server.url) == ("FetchStatus", retryable)


def redirecting(connection: socket.socket, path: str) -> None:
    """`/3` redirects to `/2` and so on; `/0` is an image; `/to?x` redirects to x."""
    if path == "/0":
        connection.sendall(whole(OK))
    elif path.startswith("/to?"):
        connection.sendall(head(307, Location=path[4:]))
    else:
        connection.sendall(head(302, Location=f"/{int(path[1:]) - 1}"))


@pytest.mark.parametrize("count", [1, 5])
def test_redirects_are_followed(count):
    with serving(redirecting) as server:
        assert local().fetch(f"{server.url}/{count}") == OK
        assert len(server.requests) == count + 1


def test_more_than_five_redirects_are_too_many():
    with serving(redirecting) as server:
        assert failure(local(), f"{server.url}/6") == ("Fetch", True)
        assert server.paths == ["/6", "/5", "/4", "/3", "/2", "/1"]


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://x/", "data:image/png,x", "http://[", "http://a:99999/"],
)
def test_redirects_elsewhere_are_not_followed(location):
    with serving(redirecting) as server:
        assert failure(local(), f"{server.url}/to?{location}") == ("FetchStatus", False)


def test_secrets_of_a_link_are_not_sent_on():
    with serving(redirecting) as server:
        local().fetch(f"http://u:p@127.0.0.1:{server.port}/1")
        assert b"Authorization" in server.requests[0]
        assert b"Authorization" not in server.requests[1]


@pytest.mark.parametrize(
    ("answer", "kind", "attempts"),
    [
        (whole(OK, 500), "FetchStatus", 4),
        (head(Content_Length=100) + OK, "Fetch", 4),
        (whole(OK, 404), "FetchStatus", 1),
        (whole(b"x" * 2000), "Fetch", 1),
        (whole(b""), "EmptyImage", 1),
        (whole(b"x"), "UnsupportedMediaType", 1),
    ],
)
def test_a_resolver_tries_again_what_may_help(answer, kind, attempts):
    with serving(always(answer)) as server:
        with pytest.raises(recipe.ImageError) as caught:
            resolved(local(), server.url)
        assert caught.value.kind == kind
        assert len(server.requests) == attempts


def test_a_server_that_recovers_is_no_failure():
    answers = [whole(OK, 503), b"", whole(OK)]
    with serving(lambda connection, path: connection.sendall(answers.pop(0))) as server:
        assert resolved(local(), server.url) == 1


def test_links_are_fetched_at_the_same_time_and_kept_in_order():
    def answer(connection: socket.socket, path: str) -> None:
        time.sleep(0.05 * (8 - int(path[1:])) / 8)
        connection.sendall(whole(image_files.png(100 * int(path[1:]), 60)))

    with serving(answer) as server:
        resolver = recipe.ImageResolver(local(10**6), recipe.OpenCvImagePreprocessor())
        sources = [recipe.UrlImageSource(f"{server.url}/{number}") for number in range(1, 9)]
        images = resolver.resolve(sources, recipe.ImageQuota()).images
    ratios = [image.width / image.height for image in images]
    assert ratios == sorted(ratios)


def test_the_first_failure_ends_what_still_runs():
    def answer(connection: socket.socket, path: str) -> None:
        if path == "/bad":
            connection.sendall(whole(b"", 404))
        else:
            dripping(head(Content_Length=900), b"x")(connection, path)

    with serving(answer) as server:
        start = time.monotonic()
        with pytest.raises(recipe.ImageError) as caught:
            resolved(local(), f"{server.url}/bad", f"{server.url}/slow")
        assert caught.value.kind == "FetchStatus"
        assert time.monotonic() - start < 1.5


def test_sources_before_a_bad_one_decide_first():
    bad = recipe.DataUrlImageSource("nope")
    with serving(always(whole(OK, 404))) as server:
        link = recipe.UrlImageSource(server.url)
        resolver = recipe.ImageResolver(local(), recipe.OpenCvImagePreprocessor())
        for sources, kind, requests in (
            ([bad, link], "InvalidDataUrl", 0),
            ([link, bad], "FetchStatus", 1),
        ):
            with pytest.raises(recipe.ImageError) as caught:
                resolver.resolve(sources, recipe.ImageQuota())
            assert (caught.value.kind, len(server.requests)) == (kind, requests)


def test_links_count_for_the_total_size():
    mib = 1 << 20
    padded = recipe.BytesImageSource(OK.ljust(30 * mib, b"\0"))
    with serving(always(whole(OK.ljust(5 * mib, b"\0")))) as server:
        link = recipe.UrlImageSource(server.url)
        fetcher = local(8 * mib)
        resolver = recipe.ImageResolver(fetcher, recipe.OpenCvImagePreprocessor())
        with pytest.raises(recipe.ImageError, match=r"image\[2\]: Failed to download") as caught:
            resolver.resolve([padded, padded, link], recipe.ImageQuota())
        assert caught.value.kind == "Fetch"
        with pytest.raises(recipe.ImageError, match="got 65 MB"):
            resolver.resolve([link, padded, padded], recipe.ImageQuota())


def test_servers_see_no_more_than_needed():
    with serving(web_servers.always(whole(OK))) as server:
        assert resolved(local(), server.url) == 1
    names = [line.split(b":")[0] for line in server.requests[0].split(b"\r\n")[1:-2]]
    assert names == [b"Host", b"User-Agent", b"Accept", b"Connection"]
