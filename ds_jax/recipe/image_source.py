"""Where an image of a conversation comes from.

Decides which sources exist and what is known about each. Never fetches, decodes or checks an image.
In: a URL, a data URL or bytes. Out: frozen records.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, TypeAlias

from ds_jax.recipe import arguments
from ds_jax.recipe.quoting import quoted

ImageDetail: TypeAlias = Literal["low", "high", "original", "auto"]
ImageSourceKind: TypeAlias = Literal["data_url", "url", "bytes"]

DETAILS: tuple[ImageDetail, ...] = ("low", "high", "original", "auto")


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class ImageSource:
    """An image that belongs to a message; one of the three subclasses.

    `path` says where in the request the image stood (`messages.0.content[1]`), for error texts;
    conversion fills it in.
    """

    detail: ImageDetail
    path: str
    url: str | None
    data_url: str | None
    data: bytes | None
    kind: ClassVar[ImageSourceKind]

    def __init__(self) -> None:
        raise TypeError(f"cannot create '{type(self).__name__}' instances; use one of its kinds")

    def _fill(self, detail: str, path: str, **given: Any) -> None:
        """Sets every field, once. Mutates itself."""
        store = object.__setattr__
        arguments.text("detail", detail)
        store(self, "path", arguments.text("path", path))
        if detail not in DETAILS:
            raise ValueError(
                f'invalid detail {quoted(detail)}; expected "low", "high", "original", or "auto"'
            )
        store(self, "detail", detail)
        for name in ("url", "data_url", "data"):
            store(self, name, given.get(name))

    def _shown(self, what: str) -> str:
        name = type(self).__name__
        return f"{name}({what}, detail={quoted(self.detail)}, path={quoted(self.path)})"


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class UrlImageSource(ImageSource):
    """An image to fetch from a URL."""

    kind: ClassVar[ImageSourceKind] = "url"

    def __init__(self, url: str, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._fill(detail, path, url=arguments.text("url", url))

    def __repr__(self) -> str:
        return self._shown(quoted(self.url or ""))


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class DataUrlImageSource(ImageSource):
    """An image inside the request, as a data URL."""

    kind: ClassVar[ImageSourceKind] = "data_url"

    def __init__(self, data_url: str, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._fill(detail, path, data_url=arguments.text("data_url", data_url))

    def __repr__(self) -> str:
        return self._shown(quoted(self.data_url or ""))


@dataclasses.dataclass(frozen=True, slots=True, init=False, repr=False)
class BytesImageSource(ImageSource):
    """An image as encoded bytes (PNG, JPEG, ...)."""

    kind: ClassVar[ImageSourceKind] = "bytes"

    def __init__(self, data: bytes, detail: ImageDetail = "high", *, path: str = "") -> None:
        self._fill(detail, path, data=arguments.blob("data", data))

    def __repr__(self) -> str:
        return self._shown(f"<{len(self.data or b'')} bytes>")
