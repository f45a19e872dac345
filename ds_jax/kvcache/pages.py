"""The pages of one rank: who holds them and which of them are worth keeping.

Decides which page is given out and which cached page is dropped first. Never knows what a page
holds: names of contents are the prefix index's. In: page numbers. Out: page numbers.

| a page is | references | in order of |
|---|---|---|
| free | 0 | last given back, first given out |
| held | 1 or more | |
| cached | 0, content may be found again | last use: the oldest is evicted first |
| pinned | any, never evicted | |

A rank's steps run in the order of their plans. So a page may be given to a new holder while a step
of the old one still runs: the new holder's step writes later.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence


class PagePool:
    """Counts references and remembers the order of use. Every method but the last mutates it.

    Args:
      num_pages: pages of the rank, numbered from 0.
      most_pinned: pages that may be pinned; the others are left to sequences.
    """

    def __init__(self, num_pages: int, most_pinned: int | None = None):
        assert num_pages >= 0, f"num_pages={num_pages}: must not be negative"
        self.num_pages = num_pages
        self.most_pinned = num_pages if most_pinned is None else most_pinned
        self._pinned = 0
        self._free = list(range(num_pages - 1, -1, -1))
        self._references = [0] * num_pages
        self._cached = [False] * num_pages
        self._pins = [0] * num_pages
        self._unused: collections.OrderedDict[int, None] = collections.OrderedDict()

    @property
    def free(self) -> int:
        """Pages nobody holds and that hold nothing."""
        return len(self._free)

    @property
    def evictable(self) -> int:
        """Cached pages that may be dropped."""
        return len(self._unused)

    @property
    def available(self) -> int:
        """Pages that can be given out, evicting if need be."""
        return len(self._free) + len(self._unused)

    @property
    def held(self) -> int:
        """Pages with at least one reference."""
        return self.num_pages - self.available - self._idle_pinned()

    @property
    def pinned(self) -> int:
        """Pages that are never evicted."""
        return self._pinned

    def can_pin(self, pages: Iterable[int]) -> bool:
        """Whether all these cached pages may be pinned."""
        return self._pinned + sum(not self._pins[p] for p in pages) <= self.most_pinned

    def references(self, page: int) -> int:
        """How many hold the page."""
        return self._references[page]

    def is_evictable(self, page: int) -> bool:
        """Whether the page is cached and nobody holds or pins it."""
        return page in self._unused

    def acquire(self, count: int) -> list[int]:
        """Gives out free pages with one reference each; evict first where too few are free."""
        assert count <= len(self._free), f"{count} pages wanted, {len(self._free)} are free"
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, page: int) -> None:
        """Adds a reference to a page that is held or cached."""
        assert self._references[page] or self._cached[page], f"page {page} is free"
        self._references[page] += 1
        self._unused.pop(page, None)

    def release(self, page: int) -> None:
        """Drops a reference; without one the page is cached, if it is kept, or free."""
        assert self._references[page] > 0, f"page {page} has no reference to release"
        self._references[page] -= 1
        self._settle(page)

    def keep(self, page: int) -> None:
        """Its content may be found again."""
        assert self._references[page], f"page {page} is kept but nobody holds it"
        self._cached[page] = True

    def forget(self, page: int) -> None:
        """Its content is not found any more and no pin counts; held pages stay held."""
        assert self._cached[page], f"page {page} is not cached"
        self._cached[page] = False
        self._pinned -= self._pins[page] > 0
        self._pins[page] = 0
        self._unused.pop(page, None)
        self._settle(page)

    def pin(self, page: int) -> None:
        """Keeps a cached page until it is unpinned as often."""
        assert self._cached[page], f"page {page} is not cached, only cached pages can be pinned"
        self._pinned += self._pins[page] == 0
        assert self._pinned <= self.most_pinned, f"more than {self.most_pinned} pages are pinned"
        self._pins[page] += 1
        self._unused.pop(page, None)

    def unpin(self, page: int) -> None:
        """Takes one pin away."""
        assert self._pins[page] > 0, f"page {page} is not pinned"
        self._pins[page] -= 1
        self._pinned -= self._pins[page] == 0
        self._settle(page)

    def evict(self) -> int | None:
        """Frees the cached page that was used longest ago; None where there is none."""
        if not self._unused:
            return None
        page, _ = self._unused.popitem(last=False)
        self._cached[page] = False
        self._settle(page)
        return page

    def check_integrity(self, holders: Iterable[Sequence[int]] | None = None) -> None:
        """Asserts that every page is in one place; with `holders`, that references are theirs."""
        free = set(self._free)
        assert len(free) == len(self._free), "a page is free twice"
        for page in range(self.num_pages):
            references, unused = self._references[page], page in self._unused
            idle = references == 0
            assert references >= 0, f"page {page} has {references} references"
            assert (page in free) == (idle and not self._cached[page]), f"page {page} is not free"
            cached_idle = idle and self._cached[page] and not self._pins[page]
            assert unused == cached_idle, f"page {page} is in the wrong list"
            assert self._cached[page] or not self._pins[page], f"page {page}: pinned, not cached"
        assert self._pinned == sum(p > 0 for p in self._pins), f"{self._pinned} pages pinned"
        if holders is not None:
            counted = collections.Counter(page for pages in holders for page in pages)
            for page in range(self.num_pages):
                known, found = self._references[page], counted[page]
                assert known == found, f"page {page} has {known} references, {found} holders"

    def _settle(self, page: int) -> None:
        """Puts a page without references where it belongs."""
        if self._references[page] or self._pins[page]:
            return
        if self._cached[page]:
            self._unused[page] = None
        else:
            self._free.append(page)

    def _idle_pinned(self) -> int:
        return sum(1 for p, r in zip(self._pins, self._references, strict=True) if p and not r)
