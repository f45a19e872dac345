"""Why a prompt was not found in the prefix index.

Decides the cause of a miss. Never decides what is kept. In: what was inserted, evicted and asked
for. Out: a `Miss`.

The memory is bounded: what was evicted long ago counts as never seen.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ds_jax.kvcache import keys
from ds_jax.kvcache.keys import KeyChain
from ds_jax.records import ImageSpan

MAX_ROOTS = 64


class Cause(enum.StrEnum):
    """Why the first page that is not found is not found."""

    NONE = "none"  # every whole page is found, and a state to go on from
    NO_STATE = "no state"  # pages are found; the windows behind them must be rebuilt
    NEVER_SEEN = "never seen"
    EVICTED = "evicted"
    OTHER_TENANT = "other tenant"  # another tenant has sent it
    OTHER_IMAGE = "other image"  # the same tokens with another image
    OTHER_MODEL = "other model"  # it was cached for other weights or numerics


@dataclasses.dataclass(frozen=True)
class Miss:
    """Where a prompt leaves what is cached.

    Attributes:
      page: number of the first page that is not found; with NO_STATE, of the first page behind the
        last stored state; with NONE, the number of pages found.
      position: first position of that page, or of the first token that differs from the most
        similar page cached behind the same prefix.
      cause: why.
      found_tokens: tokens in front whose pages are found.
      state_tokens: tokens in front of the last stored state.
    """

    page: int
    position: int
    cause: Cause
    found_tokens: int
    state_tokens: int


@dataclasses.dataclass(frozen=True)
class Query:
    """A prompt that is asked about."""

    token_ids: tuple[int, ...]
    tenant: str
    images: tuple[ImageSpan, ...]
    fingerprint: bytes
    page_tokens: int

    def chain(
        self,
        fingerprint: bytes | None = None,
        tenant: str | None = None,
        images: Sequence[ImageSpan] | None = None,
    ) -> KeyChain:
        """All keys of the prompt, or of the same prompt with something changed."""
        fingerprint = self.fingerprint if fingerprint is None else fingerprint
        tenant = self.tenant if tenant is None else tenant
        images = self.images if images is None else images
        chain = KeyChain(keys.root(fingerprint, tenant, self.page_tokens), self.page_tokens, images)
        chain.extend(self.token_ids)
        return chain


class History:
    """What the index has held. Methods mutate it, but for `explain`.

    Args:
      size: keys of evicted pages to remember.
    """

    def __init__(self, size: int):
        self._size = size
        self._roots: collections.OrderedDict[tuple[bytes, str], None] = collections.OrderedDict()
        self._evicted: collections.OrderedDict[bytes, None] = collections.OrderedDict()
        self._blank: collections.OrderedDict[bytes, None] = collections.OrderedDict()
        self._behind: dict[bytes, dict[bytes, bytes]] = {}  # key in front -> key -> packed ids

    def visit(self, fingerprint: bytes, tenant: str) -> None:
        """Notes that a tenant uses a model."""
        self._roots[fingerprint, tenant] = None
        self._roots.move_to_end((fingerprint, tenant))
        _trim(self._roots, MAX_ROOTS)

    def insert(self, parent: bytes, key: bytes, token_ids: Sequence[int], blank: bytes) -> None:
        """Notes a page; `blank` is its key without the contents of images."""
        self._behind.setdefault(parent, {})[key] = struct.pack(f"<{len(token_ids)}i", *token_ids)
        self._evicted.pop(key, None)
        if blank != key:
            self._blank[blank] = None
            _trim(self._blank, self._size)

    def evict(self, parent: bytes, key: bytes) -> None:
        """Notes that a page is not held any more."""
        siblings = self._behind[parent]
        del siblings[key]
        if not siblings:
            del self._behind[parent]
        self._evicted[key] = None
        _trim(self._evicted, self._size)

    def explain(
        self, query: Query, known: Callable[[bytes], bool], found: int, states: Sequence[int]
    ) -> Miss:
        """The cause of a miss. Complexity: hashes the prompt once for every tenant and model.

        Args:
          known: whether a key is held.
          found: whole pages found.
          states: numbers of pages after which a state is stored.
        """
        chain, size = query.chain(), query.page_tokens
        state = max(states, default=0)
        page, position = found, found * size
        if found == len(chain.keys):
            cause = Cause.NONE if state == found else Cause.NO_STATE
            if cause is Cause.NO_STATE:
                page, position = state, state * size
        else:
            cause = self._cause(query, chain, known, found)
            if cause is Cause.NEVER_SEEN:
                ids = query.token_ids[position : position + size]
                position += self._common(chain.parent(found), ids)
        return Miss(page, position, cause, found * size, state * size)

    def _cause(
        self, query: Query, chain: KeyChain, known: Callable[[bytes], bool], page: int
    ) -> Cause:
        if chain.keys[page] in self._evicted:
            return Cause.EVICTED
        if chain.blank_key(page) in self._blank:
            return Cause.OTHER_IMAGE
        others = [r for r in self._roots if r != (query.fingerprint, query.tenant)]
        others.sort(key=lambda other: other[0] != query.fingerprint)
        for fingerprint, tenant in others:
            key = query.chain(fingerprint, tenant).keys[page]
            if known(key) or key in self._evicted:
                same_model = fingerprint == query.fingerprint
                return Cause.OTHER_TENANT if same_model else Cause.OTHER_MODEL
        return Cause.NEVER_SEEN

    def _common(self, parent: bytes, ids: Sequence[int]) -> int:
        """Tokens that the most similar page behind the same prefix begins with as well."""
        best = 0
        for packed in self._behind.get(parent, {}).values():
            other = struct.unpack(f"<{len(ids)}i", packed)
            same = next((n for n, (a, b) in enumerate(zip(ids, other, strict=True)) if a != b), 0)
            best = max(best, same)
        return best


def _trim(memory: collections.OrderedDict[Any, None], size: int) -> None:
    while len(memory) > size:
        memory.popitem(last=False)
