"""Small image files of every format, whole and broken, and the recorded image cases.

`run(library, case)` replays a recorded case with any module that offers the public names.
"""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from types import ModuleType
from typing import Any

from PIL import Image

SIGNATURE = b"\x89PNG\r\n\x1a\n"
WHITE_GIF = base64.b64decode("R0lGODlhAQABAIAAAP///wAAACH5BAEAAAEALAAAAAABAAEAAAICRAEAOw==")


def chunk(kind: bytes, body: bytes, checksum: bytes | None = None) -> bytes:
    """One part of a PNG file."""
    found = zlib.crc32(kind + body).to_bytes(4)
    return struct.pack(">I", len(body)) + kind + body + (checksum or found)


def png_of(*chunks: bytes) -> bytes:
    """A PNG file of these parts."""
    return SIGNATURE + b"".join(chunks)


def png_header(width: int, height: int, depth: int = 8, color: int = 2) -> bytes:
    """The first part of a PNG file."""
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0))


def png(width: int, height: int, color: tuple[int, int, int] = (255, 0, 0)) -> bytes:
    """A picture of one color, byte for byte as the recorded cases have it."""
    rows = (b"\x00" + bytes(color) * width) * height
    pixels = chunk(b"IDAT", zlib.compress(rows, 9))
    return png_of(png_header(width, height), pixels, chunk(b"IEND", b""))


def saved(image: Image.Image, file_format: str, **options: Any) -> bytes:
    """A picture in a file format."""
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def samples() -> dict[str, bytes]:
    """One file for every kind of pixels that the formats have."""
    rng = random.Random(0)
    noise = Image.frombytes("RGBA", (9, 7), rng.randbytes(9 * 7 * 4))
    second = Image.frombytes("RGBA", (9, 7), rng.randbytes(9 * 7 * 4))
    files = {f"png {mode}": saved(noise.convert(mode), "PNG") for mode in ("RGB", "LA", "P", "1")}
    files |= {f"jpeg {mode}": saved(noise.convert(mode), "JPEG") for mode in ("RGB", "L", "CMYK")}
    files |= {f"gif {mode}": saved(noise.convert(mode), "GIF") for mode in ("RGB", "L")}
    files |= {f"webp {mode}": saved(noise.convert(mode), "WEBP") for mode in ("RGB", "RGBA")}
    more: dict[str, Any] = {"save_all": True, "append_images": [second]}
    return files | {
        "png RGBA": saved(noise, "PNG"),
        "png I;16": saved(noise.convert("I;16"), "PNG"),
        "png animated": saved(noise, "PNG", **more),
        "jpeg progressive": saved(noise.convert("RGB"), "JPEG", progressive=True),
        "gif animated": saved(noise, "GIF", **more),
        "webp lossless": saved(noise, "WEBP", lossless=True),
        "webp animated": saved(noise, "WEBP", **more),
    }


def broken(rng: random.Random, data: bytes) -> bytes:
    """The file cut short, or with some bytes changed, removed or added."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        position = rng.randrange(min(len(changed), rng.choice((40, 200, 2000))) or 1)
        match rng.randrange(4):
            case 0:
                del changed[position:]
            case 1:
                del changed[position : position + rng.randint(1, 4)]
            case 2:
                changed[position:position] = rng.randbytes(rng.randint(1, 4))
            case _:
                changed[position : position + 1] = rng.randbytes(1)
    return bytes(changed)


def run(library: ModuleType, case: dict[str, Any]) -> Any:
    """The outcome of a recorded case, in its recorded form."""
    if case["op"] == "tokens":
        info = library.ImageInfo(b"", case["width"], case["height"])
        return {"tokens": library.MultiModalData([info]).image_token_adjustment() + 1}
    if case["op"] == "size":
        options = library.PreprocessOptions(
            case["detail"],
            case.get("max_dimension_px", 8192),
            case.get("low_detail_max_dimension_px", 512),
        )
        try:
            made = library.OpenCvImagePreprocessor().preprocess(
                png(case["width"], case["height"]), options
            )
        except library.ImageError as error:
            return {"error": described(error)}
        return {"width": made.width, "height": made.height}
    resolver = library.ImageResolver(
        library.ReqwestImageFetcher(), library.OpenCvImagePreprocessor()
    )
    quota = library.ImageQuota()
    calls = [resolved(library, resolver, call, quota) for call in case["calls"]]
    return {"calls": calls}


def resolved(library: ModuleType, resolver: Any, call: list[dict[str, Any]], quota: Any) -> Any:
    """The outcome of one call, and what the quota says afterwards."""
    sources = [source(library, one) for one in call for _ in range(one.get("repeat", 1))]
    outcome: dict[str, Any]
    try:
        made = resolver.resolve(sources, quota)
        outcome = {
            "images": [[image.width, image.height] for image in made.images][:8],
            "n": len(made.images),
            "adjustment": made.image_token_adjustment(),
        }
    except library.ImageError as error:
        outcome = {"error": described(error)}
    return outcome | {"quota": [quota.image_count(), quota.byte_size()]}


def described(error: Any) -> dict[str, Any]:
    """An image error in its recorded form."""
    return {"kind": error.kind, "retryable": error.is_retryable, "message": str(error)}


def source(library: ModuleType, given: dict[str, Any]) -> Any:
    """An image source from its recorded form."""
    rest = {"detail": given.get("detail", "high"), "path": given.get("path", "")}
    match given["kind"]:
        case "url":
            return library.UrlImageSource(given["url"], **rest)
        case "data_url":
            return library.DataUrlImageSource(given["data_url"], **rest)
        case "base64":
            return library.BytesImageSource(base64.b64decode(given["base64"]), **rest)
        case _:
            data = png(*given["size"])
            return library.BytesImageSource(data.ljust(given.get("pad_to", 0), b"\0"), **rest)
