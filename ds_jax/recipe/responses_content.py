"""Texts and images inside a Responses item, joined.

Decides how parts become one text and where its images stand. Never decides whose text it is. In:
the content of a message or of a tool output. Out: text parts and image sources.
"""

from __future__ import annotations

import dataclasses

from ds_jax.recipe import data_url, image_rules
from ds_jax.recipe.data_url import DataUrlFault
from ds_jax.recipe.image_source import DataUrlImageSource, ImageSource, UrlImageSource
from ds_jax.recipe.options import ModelVersion
from ds_jax.recipe.request import invalid_request
from ds_jax.recipe.responses_input import Content, File, Image, Text

_BETWEEN = "\n\n"
_DOCUMENT = "[Unsupported Document]"
_FAULTS = {
    DataUrlFault.FORMAT: "Unsupported image_url format",
    DataUrlFault.MEDIA_TYPE: (
        "You have uploaded an unsupported image. Please make sure your image is valid and has one"
        " of the following formats: webp, png, jpeg, and gif."
    ),
    DataUrlFault.BASE64: "Invalid base64 data",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Joined:
    """A text with images in it; `parts` is the text before, between and after them."""

    parts: tuple[str, ...]
    sources: tuple[ImageSource, ...] = ()


def join(
    content: Content, version: ModelVersion, item: str, field: str, *, may_show: bool = True
) -> Joined:
    """The parts of a message or tool output, blank lines between them.

    Args:
      content: a text or its parts.
      version: V4 has no images; there they become a text, whatever they hold.
      item: where the item stands (`input[3]`), for errors and as the path of the images.
      field: the field of the item that holds the parts, for errors.
      may_show: whether images are allowed; the assistant's are not.

    Raises:
      ConversionError: an image that is not allowed, or neither a URL nor a data URL of a known
        type.
    """
    if isinstance(content, str):
        return Joined((content,))
    if version is ModelVersion.DeepseekV4Pro:
        return Joined((_BETWEEN.join([_text(part) for part in content]),))
    for index, part in enumerate(content):
        if isinstance(part, Image):
            _check_given(part, f"{item}.{field}[{index}]")
    if not may_show and any(isinstance(part, Image) for part in content):
        raise invalid_request(f"{item}: Image in assistant message is unsupported")
    texts: list[str] = []
    parts: list[str] = []
    sources: list[ImageSource] = []
    for part in content:
        if isinstance(part, Image):
            sources.append(_source(part, item))
            # The place of the image is a block of its own: the text before it ends with the
            # separator, the text after it begins with one.
            parts.append(_BETWEEN.join([*texts, ""]))
            texts = [""]
        else:
            texts.append(_text(part))
    parts.append(_BETWEEN.join(texts))
    return Joined(tuple(parts), tuple(sources))


def _text(part: Text | Image | File) -> str:
    if isinstance(part, Text):
        return part.text
    return image_rules.UNSUPPORTED_IMAGE_TEXT if isinstance(part, Image) else _DOCUMENT


def _check_given(image: Image, location: str) -> None:
    """Refuses an image that is not given by exactly one acceptable URL."""
    if image.image_url and image.file_id is not None:
        raise invalid_request(f"{location}: input_image cannot have both image_url and file_id")
    if image.file_id is not None:
        raise invalid_request(
            f"{location}: file_id is not supported. Pass the image as a base64 data url instead."
        )
    if not image.image_url:
        raise invalid_request(f"{location}: input_image must have image_url or file_id")
    if image_rules.is_link(image.image_url):
        image_rules.check_link_length(image.image_url, f"{location}: image_url external link")


def _source(image: Image, item: str) -> ImageSource:
    url, detail = image.image_url or "", image.detail or "high"
    if image_rules.is_link(url):
        return UrlImageSource(url, detail, path=item)
    fault = data_url.base64_fault_of(url)
    if fault is not None:
        raise invalid_request(f"{item}: {_FAULTS[fault]}")
    return DataUrlImageSource(url, detail, path=item)
