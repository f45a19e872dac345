"""What of a PNG file makes its pixels.

Decides which chunks the decoder sees: the header, the palette, transparency and the compressed
pixels. Everything else (texts, color profiles, animation) can neither break nor burden it. Never
decompresses. In: a PNG file with a sound header. Out: a smaller PNG file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ds_jax.recipe.image_errors import Fault

_SIGNATURE_BYTES = 8
_TRANSPARENCY_BYTES = {0: 2, 2: 6}  # by color type; with a palette up to 256
_PALETTE_COLOR = 3


def essentials(data: bytes) -> bytes:
    """The file without what is no part of the picture.

    Raises:
      Fault: Decode (broken before the pixels) or EmptyImage (broken or cut short from there on).

    Complexity: linear; checksums of the kept chunks are verified.
    """
    kept: list[bytes] = [data[:_SIGNATURE_BYTES]]
    color, last = data[25], b""
    seen: set[bytes] = set()
    for kind, body, whole, sound in _chunks(data):
        is_critical = not kind[0] & 0x20
        broken = Fault("EmptyImage") if b"IDAT" in seen else Fault("Decode")
        if kind == b"IDAT" and not seen & {b"PLTE"} and color == _PALETTE_COLOR:
            raise Fault("EmptyImage")
        if kind == b"IDAT" and ((kind in seen and last != kind) or not sound):
            raise Fault("EmptyImage")
        if is_critical and (not sound or kind not in (b"IHDR", b"PLTE", b"IDAT", b"IEND")):
            raise broken
        if kind in (b"IHDR", b"PLTE") and kind in seen:
            raise broken
        if kind == b"PLTE" and (len(body) % 3 or not 3 <= len(body) <= 768):
            raise broken
        if kind == b"IEND":
            if b"IDAT" not in seen:
                raise broken
            kept.append(b"\0\0\0\0IEND\xaeB`\x82")
            return b"".join(kept)
        if is_critical or (kind == b"tRNS" and sound and _fits(body, color)):
            kept.append(whole)
        seen.add(kind)
        last = kind
    raise Fault("EmptyImage" if b"IDAT" in seen else "Decode")


def _fits(transparency: bytes, color: int) -> bool:
    if color == _PALETTE_COLOR:
        return 1 <= len(transparency) <= 256
    return len(transparency) == _TRANSPARENCY_BYTES.get(color)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes, bytes, bool]]:
    """Kind, body and the whole of each chunk, and whether its checksum is right.

    A chunk of pixels that is cut short comes with what there is of it, as unsound.
    """
    position = _SIGNATURE_BYTES
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 12 + length
        if end > len(data) and kind != b"IDAT":
            return
        body = data[position + 8 : end - 4]
        checksum = data[end - 4 : end]
        sound = zlib.crc32(body, zlib.crc32(kind)).to_bytes(4) == checksum
        yield kind, body, data[position:end], sound
        position = end
