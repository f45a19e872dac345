"""Content blocks of Chat Completions messages as text with images.

Decides how blocks are joined and which images and files are accepted. Never looks beyond one
message. In: a string or decoded blocks. Out: `Content`, or `ConversionError`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from ds_jax.recipe import chat_body as body
from ds_jax.recipe import data_url, image_rules
from ds_jax.recipe.conversation import (
    DataUrlImageSource,
    ImageSource,
    SystemMessage,
    ToolMessage,
    UrlImageSource,
    UserMessage,
)
from ds_jax.recipe.data_url import DataUrlFault
from ds_jax.recipe.message import with_places
from ds_jax.recipe.request import invalid_request

BLOCK_SEPARATOR = "\n\n"
T = TypeVar("T", SystemMessage, UserMessage, ToolMessage)


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """The text of a message around the places of its images.

    Attributes:
      parts: the text before, between and after the images.
      sources: the images in order.
      image_token: how their places are spelled.
    """

    parts: list[str]
    sources: list[ImageSource]
    image_token: str

    @property
    def text(self) -> str:
        """The whole text."""
        return self.parts[0] if len(self.parts) == 1 else self.image_token.join(self.parts)

    def with_parts(self, parts: list[str]) -> Content:
        """The same images between other texts."""
        return Content(parts, self.sources, self.image_token)

    def placed(self, message: T) -> T:
        """A message made of this text and these images, with the images in their places."""
        if not self.sources:
            return message
        return with_places(message, self.parts, self.image_token)


class ContentReader:
    """Reads the contents of one request's messages.

    Args:
      images: whether the model takes images.
      image_token: how the place of an image is spelled.
    """

    def __init__(self, images: bool, image_token: str) -> None:
        self._images = images
        self._image_token = image_token

    def read(self, content: str | Sequence[body.Block], index: int) -> Content:
        """The content of the message at `index`.

        Raises:
          ConversionError: an image or a file that is not accepted.
        """
        if isinstance(content, str):
            return Content([content], [], self._image_token)
        path = f".messages[{index}]"
        items = self._items(content, path)
        return self._joined(
            [item if isinstance(item, str) else _source(item, path) for item in items]
        )

    def read_text(self, content: str | Sequence[body.Block], index: int) -> str:
        """The content of the message at `index` if it may have no images.

        Raises:
          ConversionError: there is an image or a file.
        """
        if isinstance(content, str):
            return content
        items = self._items(content, f".messages[{index}]")
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise invalid_request("Image in assistant message is not supported")
        return BLOCK_SEPARATOR.join(texts)

    def _items(self, blocks: Sequence[body.Block], path: str) -> list[str | body.ImageUrl]:
        """Blocks as texts and images; files are checked completely, links for their length."""
        items: list[str | body.ImageUrl] = []
        for index, block in enumerate(blocks):
            if isinstance(block, body.TextBlock):
                items.append(block.text)
            elif not self._images:
                items.append(image_rules.UNSUPPORTED_IMAGE_TEXT)
            elif isinstance(block, body.FileBlock):
                items.append(_file(block, path))
            else:
                _check_length(block.image_url.url, f"{path}.image_url.url[{index}]")
                items.append(block.image_url)
        return items

    def _joined(self, items: list[str | ImageSource]) -> Content:
        parts: list[str] = []
        sources: list[ImageSource] = []
        texts: list[str] = []
        for index, item in enumerate(items):
            if index:
                texts.append(BLOCK_SEPARATOR)
            if isinstance(item, str):
                texts.append(item)
            else:
                parts.append("".join(texts))
                sources.append(item)
                texts = []
        parts.append("".join(texts))
        return Content(parts, sources, self._image_token)


def _check_length(url: str, path: str) -> None:
    if image_rules.is_link(url):
        image_rules.check_link_length(url, f"{path}: image_url.url external link")


def _file(block: body.FileBlock, path: str) -> body.ImageUrl:
    if block.file_id is not None:
        if block.file_data is not None:
            raise invalid_request(f"{path}: file cannot have both file_id and file_data")
        if block.filename is not None:
            raise invalid_request(f"{path}: file cannot have filename when file_id is present")
        raise invalid_request(
            f"{path}: file_id is not supported. Pass the image as a base64 data url instead."
        )
    if block.file_data is None:
        raise invalid_request(f"{path}: file must have a file_id or file_data")
    fault = data_url.fault_of(block.file_data)
    if fault is DataUrlFault.MEDIA_TYPE:
        raise _unsupported(path, "file")
    if fault is not None:
        raise invalid_request(f"{path}: file_data is not a valid base64 data url")
    return body.ImageUrl(block.file_data, None)


def _source(image: body.ImageUrl, path: str) -> ImageSource:
    detail = image.detail or "high"
    if image_rules.is_link(image.url):
        return UrlImageSource(image.url, detail, path=path)
    fault = data_url.base64_fault_of(image.url)
    if fault is DataUrlFault.FORMAT:
        raise invalid_request(f"{path}: Unsupported image_url format")
    if fault is DataUrlFault.MEDIA_TYPE:
        raise _unsupported(path, "image")
    if fault is DataUrlFault.BASE64:
        raise invalid_request(f"{path}: Invalid base64 data")
    return DataUrlImageSource(image.url, detail, path=path)


def _unsupported(path: str, what: str) -> Exception:
    return invalid_request(
        f"{path}: You have uploaded an unsupported {what}. Please make sure your {what} is valid"
        " and has one of the following formats: webp, png, jpeg, and gif."
    )
