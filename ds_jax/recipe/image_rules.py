"""Rules about images that the conversions share.

Decides which links are accepted and what an image becomes for a model that takes none. Never
fetches or decodes an image; data URLs are read by `data_url`. In: URLs as the request gives them.
Out: findings, or the error of a link that is too long.
"""

from __future__ import annotations

from ds_jax.recipe.request import invalid_request

MAX_URL_BYTES = 8192
UNSUPPORTED_IMAGE_TEXT = "[Unsupported Image]"
"""What an image becomes for a model that takes none (V4)."""


def is_link(url: str) -> bool:
    """Whether a URL is to be fetched: it begins with http, in any case."""
    return url[:4].lower() == "http"


def link_length(url: str) -> int:
    """The length of a link in bytes, compared with `MAX_URL_BYTES`."""
    return len(url) if url.isascii() else len(url.encode("utf-8"))


def check_link_length(url: str, what: str) -> None:
    """Refuses a link of more than `MAX_URL_BYTES`.

    Args:
      url: the link.
      what: what the error calls it, with its place (`messages.0: external link`).

    Raises:
      ConversionError: it is too long.
    """
    length = link_length(url)
    if length > MAX_URL_BYTES:
        raise invalid_request(
            f"{what} length {length} too long, max link length {MAX_URL_BYTES}. Consider passing"
            " file data directly with base64 data url instead."
        )
