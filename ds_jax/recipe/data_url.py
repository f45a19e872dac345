"""Data URLs, as browsers read them.

Decides which data URLs are images and what bytes they hold. Never looks at the bytes. In: a data
URL. Out: what is wrong with it, or the bytes.

Follows the URL processor of the Fetch standard: spaces around the URL, tabs and line ends anywhere
and everything from `#` on are left out, and base64 may lack its padding.
"""

from __future__ import annotations

import binascii
import enum
import re
import urllib.parse

from ds_jax.recipe.image_errors import Fault

_IMAGE_TYPES = frozenset({"gif", "jpeg", "jpg", "png", "webp"})
_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_LINE_ENDS = str.maketrans("", "", "\t\n\r")
_BASE64 = re.compile(r"; *base64\Z", re.IGNORECASE)


class DataUrlFault(enum.Enum):
    """Why a data URL is not accepted as an image."""

    FORMAT = "not a data URL"
    MEDIA_TYPE = "another media type"
    BASE64 = "broken base64"


def fault_of(data_url: str) -> DataUrlFault | None:
    """What is wrong with a data URL as an image, in base64 or percent-encoded; None: nothing."""
    data = _read(data_url)
    return data if isinstance(data, DataUrlFault) else None


def base64_fault_of(data_url: str) -> DataUrlFault | None:
    """`fault_of`; anything without `base64,` is no data URL."""
    return fault_of(data_url) if "base64," in data_url else DataUrlFault.FORMAT


def image_bytes(data_url: str) -> bytes:
    """The bytes of an image, in base64 or percent-encoded.

    Args:
      data_url: `data:image/png;base64,...` or `data:image/png,...`.

    Returns:
      The decoded bytes; they may be empty and need not be an image.

    Raises:
      Fault: InvalidDataUrl (no data URL, or bad base64) or UnsupportedMediaType (says it is
        something else than an image).

    Complexity: linear.
    """
    data = _read(data_url)
    if isinstance(data, bytes):
        return data
    another_type = data is DataUrlFault.MEDIA_TYPE
    raise Fault("UnsupportedMediaType" if another_type else "InvalidDataUrl")


def _read(data_url: str) -> bytes | DataUrlFault:
    text = data_url.strip(_CONTROLS_AND_SPACE).translate(_LINE_ENDS)
    scheme, colon, rest = text.partition(":")
    header, comma, body = rest.partition("#")[0].partition(",")
    if not colon or scheme.lower() != "data" or not comma:
        return DataUrlFault.FORMAT
    media_type, in_base64 = _BASE64.subn("", header.strip(" "))
    if not _is_image(media_type):
        return DataUrlFault.MEDIA_TYPE
    decoded = urllib.parse.unquote_to_bytes(body.encode("utf-8", "surrogatepass"))
    return _base64(decoded) if in_base64 else decoded


def _is_image(media_type: str) -> bool:
    kind, _, rest = media_type.strip(" ").partition("/")
    subtype = rest.partition(";")[0].rstrip(" ")
    return kind.lower() == "image" and subtype.lower() in _IMAGE_TYPES


def _base64(text: bytes) -> bytes | DataUrlFault:
    """Decodes base64 that may hold white space and may lack its padding."""
    packed = text.translate(None, b"\t\n\f\r ")
    if len(packed) % 4 == 0 and packed.endswith(b"="):
        packed = packed[:-2] + packed[-2:].rstrip(b"=")
    if b"=" in packed:
        return DataUrlFault.BASE64
    try:
        return binascii.a2b_base64(packed + b"=" * (-len(packed) % 4), strict_mode=True)
    except binascii.Error:
        return DataUrlFault.BASE64
