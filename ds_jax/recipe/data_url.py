"""Data URLs, as browsers read them.

Decides which data URLs are images and what bytes they hold. Never looks at the bytes. In: a data
URL. Out: bytes.

Follows the URL processor of the Fetch standard: spaces around the URL, tabs and line ends anywhere
and everything from `#` on are left out, and base64 may lack its padding.
"""

from __future__ import annotations

import binascii
import re
import urllib.parse

from ds_jax.recipe.image_errors import Fault

_IMAGE_TYPES = frozenset({"gif", "jpeg", "jpg", "png", "webp"})
_CONTROLS_AND_SPACE = "".join(map(chr, range(0x21)))
_LINE_ENDS = str.maketrans("", "", "\t\n\r")
_BASE64 = re.compile(r"; *base64\Z", re.IGNORECASE)


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
    text = data_url.strip(_CONTROLS_AND_SPACE).translate(_LINE_ENDS)
    scheme, colon, rest = text.partition(":")
    header, comma, body = rest.partition("#")[0].partition(",")
    if not colon or scheme.lower() != "data" or not comma:
        raise Fault("InvalidDataUrl")
    media_type, in_base64 = _BASE64.subn("", header.strip(" "))
    if not _is_image(media_type):
        raise Fault("UnsupportedMediaType")
    decoded = urllib.parse.unquote_to_bytes(body.encode("utf-8", "surrogatepass"))
    return _base64(decoded) if in_base64 else decoded


def _is_image(media_type: str) -> bool:
    kind, _, rest = media_type.strip(" ").partition("/")
    subtype = rest.partition(";")[0].rstrip(" ")
    return kind.lower() == "image" and subtype.lower() in _IMAGE_TYPES


def _base64(text: bytes) -> bytes:
    """Decodes base64 that may hold white space and may lack its padding."""
    packed = text.translate(None, b"\t\n\f\r ")
    if len(packed) % 4 == 0 and packed.endswith(b"="):
        packed = packed[:-2] + packed[-2:].rstrip(b"=")
    if b"=" in packed:
        raise Fault("InvalidDataUrl")
    try:
        return binascii.a2b_base64(packed + b"=" * (-len(packed) % 4), strict_mode=True)
    except binascii.Error:
        raise Fault("InvalidDataUrl") from None
