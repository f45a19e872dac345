"""What the first bytes of an image say: its format and its size.

Decides which of the four formats a file is and how many pixels it holds, before anything is
decoded: a few bytes can stand for billions of pixels. Never decodes a pixel. In: a file. Out: a
format, a width and a height.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["png", "jpeg", "gif", "webp"]

GIF_FRAME_PIXELS = 8192 * 8192
"""A picture may be larger than its screen, whose size is the one that is checked."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_GIF_EXTENSION, _GIF_FRAME, _GIF_CONTROL, _GIF_PALETTE = 0x21, 0x2C, 0xF9, 0x80
_GIF_LABELS = frozenset({0x01, _GIF_CONTROL, 0xFE, 0xFF})
_WEBP_ANIMATED = 0x02
_WEBP_PROMISES = {_WEBP_ANIMATED: (b"ANIM", b"ANMF"), 0x04: (b"XMP ",), 0x08: (b"EXIF",)}
_JPEG_WITHOUT_LENGTH = frozenset({0x00, 0x01, *range(0xD0, 0xD9)})
_JPEG_FRAMES = frozenset({0xC0, 0xC1, 0xC2})
_JPEG_SCAN = 0xDA
_JPEG_UNREADABLE = frozenset(
    {0xC3, *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0), 0xD9}
)


class HeaderError(ValueError):
    """The file begins like an image and does not go on like one."""


def sniff(data: bytes) -> Format | None:
    """The format by the first bytes, whatever the sender says."""
    if data.startswith(b"\x89PNG"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(b"GIF"):
        return "gif"
    return "webp" if data[8:12] == b"WEBP" else None


def size(data: bytes, kind: Format) -> tuple[int, int]:
    """Width and height in pixels.

    Args:
      data: the file.
      kind: what `sniff` says of it.

    Raises:
      HeaderError: the header is cut short or contradicts itself.

    Complexity: reads headers; skips over data by its length.
    """
    try:
        return _READERS[kind](data)
    except (IndexError, struct.error):
        raise HeaderError(f"{kind}: the file ends inside its header") from None


def _png(data: bytes) -> tuple[int, int]:
    length, kind = struct.unpack_from(">I4s", data, 8)
    if not data.startswith(_PNG_SIGNATURE) or kind != b"IHDR" or length != 13:
        raise HeaderError("png: does not begin with its header")
    *fields, checksum = struct.unpack_from(">II5BI", data, 16)
    width, height, depth, color, compression, filters, interlace = fields
    known = depth in _PNG_DEPTHS.get(color, ()) and interlace <= 1
    if compression or filters or not known or not width or not height:
        raise HeaderError("png: impossible header")
    if zlib.crc32(data[12:29]) != checksum:
        raise HeaderError("png: wrong checksum")
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    position, found = 2, (0, 0)
    while True:
        position = data.find(b"\xff", position)
        if position < 0:
            raise HeaderError("jpeg: no pixels")
        while data[position] == 0xFF:
            position += 1
        marker = data[position]
        position += 1
        if marker in _JPEG_WITHOUT_LENGTH:
            continue
        if marker in _JPEG_UNREADABLE:
            raise HeaderError("jpeg: no readable frame")
        (length,) = struct.unpack_from(">H", data, position)
        if marker in _JPEG_FRAMES:
            depth, height, width, parts = struct.unpack_from(">BHHB", data, position + 2)
            if depth != 8 or parts not in (1, 3, 4) or length != 8 + 3 * parts:
                raise HeaderError("jpeg: impossible frame")
            found = width, height
        position += length
        if length < 2 or position > len(data):
            raise HeaderError("jpeg: cut short")
        if marker == _JPEG_SCAN:
            break
    if not found[0] or not found[1]:
        raise HeaderError("jpeg: no size before the pixels")
    return found


def gif_frame(data: bytes) -> tuple[int, int, int, int]:
    """Left, top, width and height of the first picture on the screen of a GIF file.

    Raises:
      HeaderError: there is none, or it has no palette, or it is larger than `GIF_FRAME_PIXELS`.
    """
    position = _first_gif_block(data)
    kind, *rectangle, flags = struct.unpack_from("<B4HB", data.ljust(position + 10), position)
    if kind != _GIF_FRAME or not (flags | data[10]) & _GIF_PALETTE:
        raise HeaderError("gif: no picture, or no palette")
    left, top, width, height = rectangle
    if width * height > GIF_FRAME_PIXELS:
        raise HeaderError(f"gif: the picture has more than {GIF_FRAME_PIXELS} pixels")
    return left, top, width, height


def _gif(data: bytes) -> tuple[int, int]:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise HeaderError("gif: wrong signature")
    _ = data[_first_gif_block(data) + 1]
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _first_gif_block(data: bytes) -> int:
    """Where the first block that is no extension begins."""
    flags = data[10]
    position = 13 + (3 << (1 + (flags & 7)) if flags & _GIF_PALETTE else 0)
    while data[position] == _GIF_EXTENSION:
        label, position = data[position + 1], position + 2
        lengths: list[int] = []
        while not lengths or lengths[-1]:
            lengths.append(data[position])
            position += 1 + lengths[-1]
        if label not in _GIF_LABELS or (label == _GIF_CONTROL and lengths != [4, 0]):
            raise HeaderError("gif: unknown extension")
    return position


def _webp(data: bytes) -> tuple[int, int]:
    kind, length = struct.unpack_from("<4sI", data, 12)
    if not data.startswith(b"RIFF"):
        raise HeaderError("webp: wrong signature")
    if kind == b"VP8 ":
        tag, magic, width, height = struct.unpack_from("<H1x3sHH", data, 20)
        if tag & 1 or magic != b"\x9d\x01\x2a":
            raise HeaderError("webp: does not begin with a whole picture")
        width, height = width & 0x3FFF, height & 0x3FFF
    elif kind == b"VP8L":
        signature, packed = struct.unpack_from("<BI", data, 20)
        if signature != 0x2F or packed >> 29:
            raise HeaderError("webp: wrong signature of the lossless form")
        return (packed + 1) & 0x3FFF, ((packed >> 14) + 1) & 0x3FFF
    elif kind == b"VP8X":
        flags, low, high, low2, high2 = struct.unpack_from("<B3xHBHB", data, 20)
        width, height = (low | high << 16) + 1, (low2 | high2 << 16) + 1
        _check_webp_chunks(data, 20 + length + (length & 1), flags)
    else:
        raise HeaderError("webp: unknown first chunk")
    if not width or not height or width * height >= 1 << 32:
        raise HeaderError("webp: impossible size")
    return width, height


def _check_webp_chunks(data: bytes, position: int, flags: int) -> None:
    """Refuses an extended file that lacks its picture or something else that it promises."""
    (riff_bytes,) = struct.unpack_from("<I", data, 4)
    end = min(len(data) - 7, position + max(0, riff_bytes - 12))
    kinds: set[bytes] = set()
    lossy = False
    while position < end:
        kind, length = struct.unpack_from("<4sI", data, position)
        kinds.add(kind)
        if kind == b"ANMF":
            if length < 24 or position + (24 if lossy else 32) > len(data):
                raise HeaderError("webp: cut short")
            lossy |= data[position + 24 : position + 28] in (b"VP8 ", b"ALPH")
        position += 8 + length + (length & 1)
    promised = {kind for flag, needed in _WEBP_PROMISES.items() if flags & flag for kind in needed}
    has_picture = flags & _WEBP_ANIMATED or len(kinds & {b"VP8 ", b"VP8L"}) == 1
    if not promised <= kinds or not has_picture:
        raise HeaderError("webp: a part is missing")


_READERS: dict[Format, Callable[[bytes], tuple[int, int]]] = {
    "png": _png,
    "jpeg": _jpeg,
    "gif": _gif,
    "webp": _webp,
}
