"""An encoded image as the model expects it: its size, its padding, its encoding.

Decides which files are images and how they are scaled: the picture keeps its shape, is put in the
middle of the planned size (image_size) and is encoded as WebP. Never fetches. In: the bytes of a
PNG, JPEG, GIF (first frame) or WebP file. Out: an `ImageInfo`.

Sizes equal those of the deepseek-recipe library; the bytes of the encoded image need not.
"""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ds_jax.recipe import arguments, image_header, image_png, image_size
from ds_jax.recipe.image_errors import Fault
from ds_jax.recipe.image_source import DETAILS, ImageDetail
from ds_jax.recipe.quoting import quoted

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

_MAX_WEBP_SIDE = 16380  # the format allows 16383; a multiple of 42 as all sides here
_MAX_U32 = 2**32 - 1
_WEBP_QUALITY = 90
_MAX_JPEG_SCANS = 100  # each goes over all pixels; real files have about 10
_PADDING = 127  # grey
_STRIP_ROWS = 64  # rows resampled at a time: bounds the memory of the floats
_CUBIC = -0.75


@dataclasses.dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image that is ready for the model: encoded bytes and the size in pixels."""

    data: bytes
    width: int
    height: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", arguments.blob("data", self.data))
        object.__setattr__(self, "width", arguments.count("width", self.width, _MAX_U32))
        object.__setattr__(self, "height", arguments.count("height", self.height, _MAX_U32))


@dataclasses.dataclass(frozen=True, slots=True)
class PreprocessOptions:
    """How one image is treated.

    Attributes:
      detail: with "low" the longer side is first scaled down to `low_detail_max_dimension_px`.
      max_dimension_px: images with a longer side are refused.
      low_detail_max_dimension_px: pixels.
    """

    detail: ImageDetail
    max_dimension_px: int
    low_detail_max_dimension_px: int

    def __post_init__(self) -> None:
        if arguments.text("detail", self.detail) not in DETAILS:
            raise ValueError(
                f"invalid detail {quoted(self.detail)}; "
                'expected "low", "high", "original", or "auto"'
            )
        for name in ("max_dimension_px", "low_detail_max_dimension_px"):
            object.__setattr__(self, name, arguments.count(name, getattr(self, name), _MAX_U32))


class OpenCvImagePreprocessor:
    """Decodes, scales and encodes images. Keeps no state; the name is the library's."""

    __slots__ = ()

    def preprocess(self, data: bytes, options: PreprocessOptions) -> ImageInfo:
        """Prepares one image.

        Args:
          data: a PNG, JPEG, GIF or WebP file.
          options: limits and detail.

        Returns:
          The image as WebP: sides are multiples of 14 pixels, at most 1024 tokens.

        Raises:
          ImageError: EmptyImage (no bytes, or pixels that cannot be decoded),
            UnsupportedMediaType, Decode (a broken header) or ImageDimensionsTooLarge.

        Complexity: the size is read from the header, so what is too large is never decoded.
        """
        arguments.record("options", options, PreprocessOptions)
        try:
            return self.prepare(arguments.blob("data", data), options)
        except Fault as fault:
            raise fault.at("", 0) from None

    def prepare(self, data: bytes, options: PreprocessOptions) -> ImageInfo:
        """`preprocess`, with errors that do not know their place.

        Raises:
          Fault: as `preprocess`.
          CalcResizeError: the size cannot be planned.
        """
        kind = _checked(data, options.max_dimension_px)
        pixels = _decode(data, kind)
        height, width, _ = pixels.shape
        if options.detail == "low":
            width, height = image_size.limit_longer_side(
                width, height, options.low_detail_max_dimension_px
            )
        fit = image_size.fit_below(width, height, _MAX_WEBP_SIDE)
        return ImageInfo(_encode(_padded(pixels, fit.width, fit.height)), fit.width, fit.height)


def _checked(data: bytes, max_side: int) -> image_header.Format:
    """The format of a file whose header is sound and whose size is allowed."""
    if not data:
        raise Fault("EmptyImage")
    kind = image_header.sniff(data)
    if kind is None:
        raise Fault("UnsupportedMediaType")
    try:
        size = image_header.size(data, kind)
    except image_header.HeaderError:
        raise Fault("Decode") from None
    if max(size) > max_side:
        raise Fault("ImageDimensionsTooLarge")
    if not min(size):
        raise Fault("EmptyImage")
    return kind


def _decode(data: bytes, kind: image_header.Format) -> NDArray[np.uint8]:
    """The pixels [height, width, 3] of the first frame; transparent ones let white through."""
    try:
        with _opened(data, kind) as image:
            image.load()
            if image.mode.startswith("I"):  # 16 bits of grey
                grey = (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)
                return np.repeat(grey[:, :, None], 3, axis=2)
            if kind == "gif":
                return _on_screen(image.convert("RGBA"), data)
            if image.has_transparency_data:
                return _on_white(image.convert("RGBA"), image.size)
            return np.asarray(image.convert("RGB"))
    except (Fault, MemoryError):
        raise
    except Exception:  # broken files make the decoders raise anything
        raise Fault("Decode" if kind == "gif" else "EmptyImage") from None


def _opened(data: bytes, kind: image_header.Format) -> ImageFile:
    """The file opened by the decoder of its own format, so no other one sees it."""
    from PIL import GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

    match kind:
        case "png":
            return PngImagePlugin.PngImageFile(io.BytesIO(image_png.essentials(data)))
        case "jpeg":
            if b"\xff\xd9" not in data or data.count(b"\xff\xda") > _MAX_JPEG_SCANS:
                raise Fault("EmptyImage")
            return JpegImagePlugin.JpegImageFile(io.BytesIO(data))
        case "gif":
            image_header.gif_frame(data)
            return GifImagePlugin.GifImageFile(io.BytesIO(data))
        case "webp":
            return WebPImagePlugin.WebPImageFile(io.BytesIO(data))


def _on_screen(image: Image, data: bytes) -> NDArray[np.uint8]:
    """The first picture of a GIF file where it belongs; what it leaves free is white."""
    left, top, width, height = image_header.gif_frame(data)
    picture = image.crop((left, top, left + width, top + height))
    return _on_white(picture, image_header.size(data, "gif"), (left, top))


def _on_white(
    image: Image, size: tuple[int, int], corner: tuple[int, int] = (0, 0)
) -> NDArray[np.uint8]:
    from PIL import Image as pillow

    canvas = pillow.new("RGB", size, (255, 255, 255))
    canvas.paste(image, corner, mask=image.getchannel("A"))
    return np.asarray(canvas)


def _padded(pixels: NDArray[np.uint8], width: int, height: int) -> NDArray[np.uint8]:
    """The picture in its own shape, as large as fits, in the middle of `width` x `height`."""
    old_height, old_width, _ = pixels.shape
    inner_width, inner_height = width, height
    if old_width * height > old_height * width:
        inner_height = max(1, round(old_height / old_width * width))
    elif old_width * height < old_height * width:
        inner_width = max(1, round(old_width / old_height * height))
    canvas = np.full((height, width, 3), _PADDING, np.uint8)
    top, left = round((height - inner_height) / 2), round((width - inner_width) / 2)
    _resample(pixels, canvas[top : top + inner_height, left : left + inner_width])
    return canvas


def _resample(pixels: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Bicubic resampling without smoothing, as OpenCV does it. Mutates `out`.

    Cost: 8 multiplications for each value of `out`, or of its height and the old width.
    """
    if pixels.shape == out.shape:
        out[:] = pixels
        return
    rows, row_weights = _taps(pixels.shape[0], out.shape[0])
    columns, column_weights = _taps(pixels.shape[1], out.shape[1])
    for start in range(0, out.shape[0], _STRIP_ROWS):
        strip = slice(start, start + _STRIP_ROWS)
        tall = np.zeros((len(rows[0][strip]), *pixels.shape[1:]), np.float32)
        for row, weight in zip(rows, row_weights, strict=True):
            tall += pixels[row[strip]] * weight[strip, None, None]
        wide = np.zeros((len(tall), *out.shape[1:]), np.float32)
        for column, weight in zip(columns, column_weights, strict=True):
            wide += tall[:, column] * weight[:, None]
        out[strip] = np.clip(np.rint(wide), 0, 255)


def _taps(old: int, new: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Which 4 old positions [4, new] make up each new one, and with which weights [4, new]."""
    position = (np.arange(new) + 0.5) * (old / new) - 0.5
    first = np.floor(position)
    offsets = np.arange(-1, 3)[:, None]
    distance = np.abs(position - first - offsets)
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = _CUBIC * (((distance - 5) * distance + 8) * distance - 4)
    indices = np.clip(first.astype(np.intp) + offsets, 0, old - 1)
    return indices, np.where(distance <= 1, near, far).astype(np.float32)


def _encode(pixels: NDArray[np.uint8]) -> bytes:
    from PIL import Image as pillow

    file = io.BytesIO()
    pillow.fromarray(pixels).save(file, "WEBP", quality=_WEBP_QUALITY)
    return file.getvalue()
