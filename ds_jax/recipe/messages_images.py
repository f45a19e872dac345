"""Images of a Messages request as image sources.

Decides which sources are acceptable and how a base64 image is written as a data URL. Never fetches
or decodes an image. In: the source of an image block. Out: an `ImageSource`.
"""

from __future__ import annotations

import re

from ds_jax.recipe import image_rules
from ds_jax.recipe.image_source import DataUrlImageSource, ImageSource, UrlImageSource
from ds_jax.recipe.messages_content import Base64Image, FileImage, UrlImage
from ds_jax.recipe.quoting import quoted
from ds_jax.recipe.request import invalid_request

_DIGITS = re.compile("[A-Za-z0-9+/]*+(=*+)")
_SPARE_BITS = {2: frozenset("AQgw"), 3: frozenset("AEIMQUYcgkosw048")}


def image_source(
    source: Base64Image | UrlImage | FileImage, location: str, path: str
) -> ImageSource:
    """The image source of a block.

    Args:
      source: as the request gives it.
      location: where the block stands, for errors (`messages.0.content[1]`).
      path: where it stands, for errors of a later fetch.

    Returns:
      A URL, or a data URL with canonical base64.

    Raises:
      ConversionError: a file, a URL of another scheme or a too long one, broken base64.
    """
    match source:
        case Base64Image():
            data = canonical_base64(source.data)
            if data is None:
                raise invalid_request(f"{location}: base64 decode error")
            return DataUrlImageSource(f"data:{source.media_type};base64,{data}", path=path)
        case UrlImage():
            url = source.url
            if not image_rules.is_link(url):
                raise invalid_request(f"{location}: invalid url: {quoted(url)}")
            image_rules.check_link_length(url, f"{location}: external link")
            return UrlImageSource(url, path=path)
        case FileImage():
            raise invalid_request(
                f"{location}: file_id is not supported. Pass the image as a base64 data url "
                "instead."
            )


def canonical_base64(text: str) -> str | None:
    """`text` with the padding it should have.

    Any number of `=` may stand at the end, none only if nothing is to be padded. Other characters,
    blanks and set bits that belong to no byte are refused.

    Args:
      text: base64 with the standard alphabet.

    Returns:
      The same bytes in canonical base64, or None if `text` is not acceptable. Linear time.
    """
    found = _DIGITS.fullmatch(text)
    if found is None:
        return None
    end = found.start(1)
    rest = end % 4
    if rest == 0:
        return text[:end]
    if rest == 1 or end == len(text) or text[end - 1] not in _SPARE_BITS[rest]:
        return None
    return text[:end] + "=" * (4 - rest)
