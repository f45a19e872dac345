"""Images from web addresses, without harm to the network the server stands in.

Decides which answers count as an image file: redirects, status, size. Never looks at the bytes. In:
a link. Out: bytes.
"""

from __future__ import annotations

import http.client
import logging
from typing import Any

from ds_jax.recipe import arguments, image_connection, image_destination, image_errors, image_url
from ds_jax.recipe.image_connection import Deadline, DestinationFilter
from ds_jax.recipe.image_errors import MIB, Fault

_MAX_BYTES = 32 * MIB
_MAX_REDIRECTS = 5
_TIMEOUT_S = 60.0
_PIECE_BYTES = 1 << 16
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

_log = logging.getLogger(__name__)


class ReqwestImageFetcher:
    """Downloads images from http and https links. Immutable; the name is the library's.

    Differs from the library on purpose: without a filter of the caller, only public addresses are
    connected to. Private, loopback, link-local, multicast and reserved addresses and IPv6 addresses
    that stand for an IPv4 one (mapped, 6to4, NAT64) are refused, so that links in a request cannot
    reach what only the server can see. `with_destination_filter` replaces this rule.

    In any case the rule is asked again for every redirect, the connection goes to the address that
    was asked about, names are not resolved a second time, and proxies of the environment are not
    used. Bodies are counted while they arrive. Compressed transfer is not asked for.
    """

    __slots__ = ("_filter", "_max_bytes", "_timeout_s")

    _filter: DestinationFilter
    _max_bytes: int
    _timeout_s: float

    def __init__(self) -> None:
        self._filter = _public_only
        self._max_bytes = _MAX_BYTES
        self._timeout_s = _TIMEOUT_S

    @staticmethod
    def with_max_bytes(max_bytes: int) -> ReqwestImageFetcher:
        """A fetcher that refuses files of more than `max_bytes` (default: 32 MiB)."""
        return ReqwestImageFetcher()._with(_max_bytes=arguments.count("max_bytes", max_bytes))

    def with_destination_filter(self, destination_filter: DestinationFilter) -> ReqwestImageFetcher:
        """A fetcher that connects only where `destination_filter` allows it.

        Args:
          destination_filter: gets the host of the link or redirect and one of its addresses, as
            `("example.org", "93.184.216.34")`, and returns True to allow the address. Anything
            else, an exception too, forbids it. `image_destination.is_public` is the default rule.

        Raises:
          TypeError: it cannot be called.
        """
        if not callable(destination_filter):
            raise TypeError("destination_filter must be callable")
        return self._with(_filter=destination_filter)

    def with_timeout_s(self, timeout_s: float) -> ReqwestImageFetcher:
        """A fetcher that gives up after `timeout_s` seconds (default: 60), redirects included."""
        if not timeout_s > 0:
            raise ValueError(f"timeout_s={timeout_s}: give a positive number of seconds")
        return self._with(_timeout_s=float(timeout_s))

    def fetch(self, url: str) -> bytes:
        """Downloads one file, in one attempt.

        Args:
          url: an http or https link of any length.

        Returns:
          The body; it may be empty and need not be an image.

        Raises:
          ImageError: Fetch (no whole answer in time, too many redirects, no such link),
            FetchStatus (an answer without a file), DestinationRejected or ImageTooLarge.
        """
        deadline = Deadline(self._timeout_s)
        try:
            return self.download(arguments.text("url", url), self._max_bytes, deadline)
        except Fault as fault:
            raise fault.at("", 0) from None

    def download(self, url: str, max_bytes: int, deadline: Deadline) -> bytes:
        """`fetch` of at most `max_bytes` within the deadline, for a place not known yet.

        Raises:
          Fault: as `fetch`.
        """
        max_bytes = min(max_bytes, self._max_bytes)
        deadline = deadline.within(self._timeout_s)
        try:
            target = image_url.parse(url)
        except ValueError:
            raise image_errors.not_fetched(url, again=False) from None
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                with image_connection.get(target, self._allows, deadline, max_bytes) as response:
                    location = response.headers.get("Location")
                    if response.status not in _REDIRECTS or location is None:
                        return _body(url, response, max_bytes)
                    status = response.status
                try:
                    target = image_url.redirected(target, _utf8(location))
                except ValueError:
                    raise image_errors.bad_status(url, status) from None
        except image_connection.NoAllowedAddressError:
            raise image_errors.rejected(url) from None
        except (OSError, http.client.HTTPException, ValueError):
            raise image_errors.not_fetched(url, again=True) from None
        raise image_errors.not_fetched(url, again=True)

    def _allows(self, host: str, address: str) -> bool:
        """What the filter says; a filter that fails forbids."""
        try:
            answer: Any = self._filter(host, address)
        except Exception:
            _log.exception("the destination filter failed for %r, %r", host, address)
            return False
        if not isinstance(answer, bool):
            _log.error("the destination filter returned %r for %r, %r", answer, host, address)
        return answer is True

    def _with(self, **changed: Any) -> ReqwestImageFetcher:
        """A copy with other settings."""
        copy = ReqwestImageFetcher()
        for name in self.__slots__:
            setattr(copy, name, changed.get(name, getattr(self, name)))
        return copy


def _public_only(host: str, address: str) -> bool:
    del host
    return image_destination.is_public(address)


def _body(url: str, response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """All bytes of an answer; never holds more than `max_bytes` and a piece."""
    if not 200 <= response.status < 300:
        raise image_errors.bad_status(url, response.status)
    declared = response.length
    if declared is not None and declared > max_bytes:
        raise image_errors.too_large(max_bytes)
    received = bytearray()
    while piece := response.read(_PIECE_BYTES):
        received += piece
        if len(received) > max_bytes:
            raise image_errors.too_large(max_bytes)
    if declared is not None and len(received) < declared:
        raise image_errors.not_fetched(url, again=True)
    return bytes(received)


def _utf8(header: str) -> str:
    """A header as UTF-8; http.client reads headers as Latin-1."""
    return header.encode("latin-1", "replace").decode("utf-8", "replace")
