"""What can go wrong with an image, and what the client reads about it.

Decides kinds, texts and which failures are worth another attempt. Never looks for a fault. In: a
kind. Out: a `Fault`, which becomes an `ImageError` once it is known where the image stands.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from ds_jax.recipe import image_rules
from ds_jax.recipe.quoting import quoted

Kind: TypeAlias = Literal[
    "Decode",
    "DestinationRejected",
    "EmptyImage",
    "Fetch",
    "FetchStatus",
    "ImageDimensionsTooLarge",
    "ImageTooLarge",
    "InvalidDataUrl",
    "InvalidUrl",
    "TooManyImages",
    "TotalSizeTooLarge",
    "UnsupportedMediaType",
    "UrlTooLong",
]

MIB = 1 << 20

_UNSUPPORTED = (
    "You have uploaded an unsupported image. Please make sure your image is valid and has one of "
    "the following formats: webp, png, jpeg, and gif."
)


class ImageError(Exception):
    """An image cannot be used: it cannot be fetched or decoded, or a limit is exceeded.

    The text is meant for the client and says where the image stands in the request. A server
    answers with status 400, or with 500 where `is_retryable`.

    Attributes:
      kind: which of the cases of `Kind` it is.
      is_retryable: whether the same request may succeed later.
    """

    def __init__(self, message: str = "", kind: str = "", is_retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.is_retryable = is_retryable


class Fault(Exception):
    """A failure of one image whose place in the request is not known yet. Never leaves the package.

    Attributes:
      kind: the kind of the `ImageError`.
      text: what follows the place in its message.
      is_retryable: what the `ImageError` says.
      again: whether another attempt to fetch may help.
    """

    def __init__(
        self,
        kind: Kind,
        text: str = _UNSUPPORTED,
        *,
        is_retryable: bool = False,
        again: bool = False,
    ) -> None:
        super().__init__(kind)
        self.kind: Kind = kind
        self.text = text
        self.is_retryable = is_retryable
        self.again = again

    def at(self, path: str, number: int) -> ImageError:
        """The error of image `number` (from 0) of those that were given, which stands at `path`."""
        place = f"{path}.image[{number}]" if path else f"image[{number}]"
        return ImageError(f"{place}: {self.text}", self.kind, self.is_retryable)


def too_large(limit_bytes: int) -> Fault:
    """One file has more than `limit_bytes`."""
    return Fault("ImageTooLarge", f"image file size exceeds limit {limit_bytes // MIB} MB")


def not_fetched(url: str, *, again: bool) -> Fault:
    """No usable answer came from `url`."""
    return Fault("Fetch", _download(url), is_retryable=True, again=again)


def bad_status(url: str, status: int) -> Fault:
    """The server answered with something else than the image."""
    retryable = status >= 500
    return Fault("FetchStatus", _download(url), is_retryable=retryable, again=retryable)


def rejected(url: str) -> Fault:
    """The destination filter allows no address of the host."""
    return Fault("DestinationRejected", _download(url))


def url_too_long(num_bytes: int, path: str) -> ImageError:
    """The link of the image at `path` has too many bytes."""
    limit = image_rules.MAX_URL_BYTES
    text = f"external link length {num_bytes} too long, max link length {limit}"
    return ImageError(_in(path) + text, "UrlTooLong")


def invalid_url(url: str, path: str) -> ImageError:
    """The link of the image at `path` is no web address."""
    return ImageError(f"{_in(path)}invalid url: {quoted(url)}", "InvalidUrl")


def too_many(limit: int, given: int) -> ImageError:
    """The request has more images than allowed."""
    text = f"Too many images: max {limit} images per request, got {given}"
    return ImageError(text, "TooManyImages")


def total_too_large(limit_bytes: int, given_bytes: int) -> ImageError:
    """The images of the request have too many bytes together."""
    limit, given = limit_bytes // MIB, given_bytes // MIB
    text = f"Total image size exceeds the limit: max {limit} MB per request, got {given} MB"
    return ImageError(text, "TotalSizeTooLarge")


def _download(url: str) -> str:
    return f"Failed to download image from {url}"


def _in(path: str) -> str:
    return f"{path}: " if path else ""
