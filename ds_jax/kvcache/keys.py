"""Names of cached pages: a page's key says everything its rows depend on.

Decides what enters a key: model, tenant, the page before, its tokens and its images. Never stores
one. In: token ids and images. Out: 32-byte keys, the same in every process and on every machine.

A key is blake2b over the key in front, the token ids as little-endian 32-bit integers, and
(offset in the page, digest) of every image that starts in the page. The first page's key in front
is the root: blake2b over fingerprint, tenant and page size. So equal keys mean equal tokens from
the sequence's start, and another tenant or model has no key in common.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence

from ds_jax.records import ImageSpan

KEY_BYTES = 32


def root(fingerprint: bytes, tenant: str, page_tokens: int) -> bytes:
    """The key in front of the first page.

    Args:
      fingerprint: names the weights and whatever else changes cached rows (numerics, layout).
      tenant: who may share the pages.
    """
    salt = tenant.encode()
    head = struct.pack("<qqq", page_tokens, len(fingerprint), len(salt))
    return _digest(head + fingerprint + salt)


def page_key(
    parent: bytes, token_ids: Sequence[int], start: int, images: Iterable[ImageSpan]
) -> bytes:
    """The key of the page that holds positions start .. start + len(token_ids)."""
    parts = [parent, struct.pack(f"<{len(token_ids)}i", *token_ids)]
    for image in images:
        offset = image.start - start
        if 0 <= offset < len(token_ids):
            parts += [struct.pack("<ii", offset, len(image.digest)), image.digest]
    return _digest(b"".join(parts))


class KeyChain:
    """Keys of a growing sequence's whole pages. `extend` mutates it.

    Args:
      root: see `root`.
      page_tokens: tokens of a page.
      images: images of the prompt.
    """

    __slots__ = ("_blank", "_images", "_root", "keys", "page_tokens")

    def __init__(self, root: bytes, page_tokens: int, images: Sequence[ImageSpan] = ()):
        self._root = root
        self._images = tuple(images)
        self.page_tokens = page_tokens
        self.keys: list[bytes] = []
        blank = [ImageSpan(image.start, b"") for image in images]
        self._blank = KeyChain(root, page_tokens, blank) if any(i.digest for i in images) else None

    def extend(self, token_ids: Sequence[int]) -> list[bytes]:
        """Adds the keys of pages that the sequence's ids, all of them, now fill; returns all keys.

        Complexity: only new pages are hashed, about 2 us each.
        """
        size, keys = self.page_tokens, self.keys
        while (len(keys) + 1) * size <= len(token_ids):
            start = len(keys) * size
            ids = token_ids[start : start + size]
            keys.append(page_key(self.parent(len(keys)), ids, start, self._images))
        if self._blank is not None:
            self._blank.extend(token_ids)
        return keys

    def parent(self, number: int) -> bytes:
        """The key in front of a page."""
        return self.keys[number - 1] if number else self._root

    def blank_key(self, number: int) -> bytes:
        """The key the page would have if no image had a content."""
        return self.keys[number] if self._blank is None else self._blank.keys[number]


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=KEY_BYTES).digest()
