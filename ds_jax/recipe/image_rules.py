"""Rules about images that the conversions share.

Decides which image links and data URLs are accepted. Never fetches or decodes an image. In: URLs as
the request gives them. Out: a finding that each protocol words in its own way.
"""

from __future__ import annotations

import enum
import re
from urllib.parse import unquote_to_bytes

MEDIA_TYPES = frozenset({"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"})
"""Accepted media types, lower case."""

MAX_URL_BYTES = 8192
UNSUPPORTED_IMAGE_TEXT = "[Unsupported Image]"
"""What an image becomes for a model that takes none (V4)."""

_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_BASE64_SUFFIX = re.compile(r"; *b[\t\n\r]*a[\t\n\r]*s[\t\n\r]*e[\t\n\r]*6[\t\n\r]*4", re.I)
_MEDIA_TYPE = re.compile(
    r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)/([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t\n\r]*$"
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/]*(={0,2})")


class DataUrlFault(enum.Enum):
    """Why a data URL is not accepted as an image."""

    FORMAT = "not a base64 data URL"
    MEDIA_TYPE = "another media type"
    BASE64 = "broken base64"


def is_link(url: str) -> bool:
    """Whether a URL is to be fetched: it begins with http, in any case."""
    return url[:4].lower() == "http"


def link_length(url: str) -> int:
    """The length of a link in bytes, compared with `MAX_URL_BYTES`."""
    return len(url) if url.isascii() else len(url.encode("utf-8"))


def data_url_fault(url: str) -> DataUrlFault | None:
    """What is wrong with a data URL as an image in base64; None if nothing is.

    Follows the URL and forgiving base64 rules of the WHATWG, so blanks, percent escapes, missing
    padding and a fragment at the end are accepted.
    """
    return file_fault(url) if "base64," in url else DataUrlFault.FORMAT


def file_fault(url: str) -> DataUrlFault | None:
    """What is wrong with a data URL as an image in any spelling; None if nothing is."""
    rest = _after_scheme(url.rstrip(_CONTROLS_AND_SPACE))
    if rest is None:
        return DataUrlFault.FORMAT
    header, comma, body = rest.partition(",")
    if not comma or "#" in header:
        return DataUrlFault.FORMAT
    header = header.strip(" \t\n\r")
    is_base64 = False
    suffix = _base64_suffix(header)
    if suffix is not None:
        is_base64 = True
        header = header[:suffix]
    if _media_type(header) not in MEDIA_TYPES:
        return DataUrlFault.MEDIA_TYPE
    if is_base64 and not _is_forgiving_base64(body.partition("#")[0]):
        return DataUrlFault.BASE64
    return None


def _after_scheme(url: str) -> str | None:
    """What follows `data:`; None for another scheme. Tabs and newlines inside do not count."""
    start = 0
    while start < len(url) and url[start] <= " ":
        start += 1
    for expected in "data:":
        while start < len(url) and url[start] in "\t\n\r":
            start += 1
        if url[start : start + 1].lower() != expected:
            return None
        start += 1
    return url[start:]


def _base64_suffix(header: str) -> int | None:
    """Where `;base64` begins at the end of a header."""
    start = header.rfind(";")
    if start < 0 or _BASE64_SUFFIX.fullmatch(header, start) is None:
        return None
    return start


def _media_type(header: str) -> str | None:
    kind = header.partition(";")[0].lstrip(" \t\n\r")
    match = _MEDIA_TYPE.match(kind.translate({9: None, 10: None, 13: None}))
    return None if match is None else f"{match[1]}/{match[2]}".lower()


def _is_forgiving_base64(body: str) -> bool:
    return is_forgiving_base64(unquote_to_bytes(body))


def is_forgiving_base64(data: bytes) -> bool:
    """Whether bytes are base64 with ASCII blanks anywhere and padding that is right or absent."""
    match = _BASE64.fullmatch(data.translate(None, b" \t\n\r\x0c"))
    if match is None:
        return False
    padding = len(match[1])
    rest = (match.end() - padding) % 4
    return (rest, padding) in {(0, 0), (2, 0), (2, 2), (3, 0), (3, 1)}
