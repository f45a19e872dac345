"""The sizes a step may have: the single source of truth for programs and warm-up.

Decides which sizes exist and to which one a need is rounded up. Never compiles, imports no jax.
In: `config.Engine`, `config.Cache`. Out: `StepKey`s, each of which is one compiled program.
"""

from __future__ import annotations

import dataclasses

from ds_jax import config


@dataclasses.dataclass(frozen=True)
class StepKey:
    """Static sizes of a step.

    Attributes:
      sequences: rows of the batch per data-parallel rank (B).
      tokens: tokens a sequence brings (U).
      pages: width of the page table (Z).
      fresh: every sequence starts at position 0.
      feeds_back: the token comes from the device (decode), not from the host.
      all_logits: logits of every row instead of the last one; nothing is sampled.
      scores: beside what a prefill step does, log probabilities of the token behind every row.
      flat: rows of one token each, of any sequences, several of one sequence among them.
      verify_rows: rows of anchors and drafts together in a decode step; 0: it knows no drafts.
      rests: a decode step of one such row a sequence verifies no drafts and makes none.
    """

    sequences: int
    tokens: int
    pages: int
    fresh: bool = False
    feeds_back: bool = False
    all_logits: bool = False
    flat: bool = False
    scores: bool = False
    verify_rows: int = 0
    rests: bool = False

    def drafts_of_one(self, drafts: int) -> int:
        """Drafts of one sequence that the step can verify: none if it has one row a sequence."""
        return 0 if self.verify_rows == self.sequences else min(drafts, self.verify_rows - 1)


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Ascending sizes; a need is rounded up to the next one.

    Attributes:
      chunks: tokens of a prefill chunk.
      sequences: sequences of a rank in one step.
      pages: widths of the page table.
      page_tokens: tokens of a page.
      flat_rows: rows of the only program of canonical mode; 0: the mode is off.
      drafts: drafts of a sequence and step.
      verify_widths: rows a sequence that a step which verifies drafts can have on average.
    """

    chunks: tuple[int, ...]
    sequences: tuple[int, ...]
    pages: tuple[int, ...]
    page_tokens: int
    flat_rows: int = 0
    drafts: int = 0
    verify_widths: tuple[int, ...] = ()

    @classmethod
    def plan(cls, engine: config.Engine, cache: config.Cache) -> Buckets:
        """Sizes for a replica: sequences in powers of 2, page widths in powers of 4."""
        most = pages_for(engine.max_context, cache.page_tokens)
        chunks = tuple(c for c in engine.chunk_tokens if c < engine.max_context)
        if len(chunks) < len(engine.chunk_tokens):
            chunks += (engine.max_context,)
        return cls(
            chunks=chunks,
            sequences=_powers(2, engine.max_sequences),
            pages=_powers(4, most),
            page_tokens=cache.page_tokens,
            flat_rows=engine.canonical_rows if engine.canonical else 0,
            drafts=engine.nextn,
            verify_widths=_widths(engine.nextn, varlen=engine.varlen_verify),
        )

    @property
    def flat(self) -> StepKey:
        """The one step of canonical mode: whatever a row is, it is computed by this program."""
        return StepKey(self.flat_rows, tokens=1, pages=self.pages[-1], flat=True)

    def decode(self, sequences: int, context: int) -> StepKey:
        """The decode step for so many sequences of at most `context` positions."""
        rows = _up(self.sequences, sequences)
        return StepKey(
            sequences=rows,
            tokens=1,
            pages=self.width(context),
            feeds_back=True,
            verify_rows=rows * (1 + self.drafts) if self.drafts else 0,
        )

    def verify(self, full: StepKey) -> list[StepKey]:
        """The steps that can run instead of one with room for all drafts, fewest rows first."""
        rows = [full.sequences * width for width in self.verify_widths]
        return [dataclasses.replace(full, verify_rows=n) for n in rows]

    def resting(self, full: StepKey) -> StepKey | None:
        """The step that can run instead where drafts do not pay; None: all drafts are verified."""
        if self.verify_widths[:1] != (1,):
            return None
        return dataclasses.replace(full, verify_rows=full.sequences, rests=True)

    def variants(self, full: StepKey) -> list[StepKey]:
        """All steps of so many sequences: those that verify drafts, and the one that rests."""
        rest = self.resting(full)
        return [*([] if rest is None else [rest]), *self.verify(full)]

    def prefill(
        self, sequences: int, tokens: int, context: int, *, fresh: bool, all_logits: bool = False
    ) -> StepKey:
        """The prefill step for chunks of at most `tokens` that end at most at `context`.

        A fresh chunk reads no page, so its table is just wide enough to write.
        """
        tokens = _up(self.chunks, tokens)
        pages = pages_for(tokens, self.page_tokens) if fresh else self.width(context)
        group = 1 if sequences == 1 else self.group(tokens)
        return StepKey(group, tokens, pages, fresh, False, all_logits)

    def scores(self, tokens: int) -> StepKey:
        """The prefill step of a chunk whose tokens are scored: alone, wherever it starts."""
        return StepKey(1, _up(self.chunks, tokens), self.pages[-1], scores=True)

    def group(self, tokens: int) -> int:
        """Sequences that share a prefill step: as many as fill the longest chunk."""
        room = max(1, self.chunks[-1] // _up(self.chunks, tokens))
        return max(s for s in self.sequences if s <= room)

    def width(self, context: int) -> int:
        """Width of the page table for sequences of at most `context` positions.

        Drafts may be counted that no sequence has room for: they are never verified.
        """
        need = pages_for(context, self.page_tokens)
        return _up(self.pages, min(need, self.pages[-1]) if self.drafts else need)

    def keys(self) -> list[StepKey]:
        """Every program that generating text can need."""
        if self.flat_rows:
            return [self.flat]
        found: dict[StepKey, None] = {}
        for pages in self.pages:
            context = pages * self.page_tokens
            for tokens in self.chunks:
                for sequences in sorted({1, self.group(tokens)}):
                    found[self.prefill(sequences, tokens, context, fresh=True)] = None
                    found[self.prefill(sequences, tokens, context, fresh=False)] = None
            for sequences in self.sequences:
                step = self.decode(sequences, context)
                found |= dict.fromkeys(self.variants(step) if self.drafts else [step])
        for tokens in self.chunks:
            found[self.scores(tokens)] = None
        return list(found)


def pages_for(tokens: int, page_tokens: int) -> int:
    """Pages that hold so many tokens."""
    return -(-tokens // page_tokens)


def _widths(drafts: int, *, varlen: bool) -> tuple[int, ...]:
    """Fine where most budgets lie; the last one has room for all drafts."""
    if not drafts:
        return ()
    if not varlen:
        return (1 + drafts,)
    return (*(n for n in (1, 2, 3, 4) if n <= drafts), 1 + drafts)


def _powers(base: int, most: int) -> tuple[int, ...]:
    sizes = [1]
    while sizes[-1] < most:
        sizes.append(min(sizes[-1] * base, most))
    return tuple(sizes)


def _up(sizes: tuple[int, ...], need: int) -> int:
    for size in sizes:
        if size >= need:
            return size
    raise AssertionError(f"{need} is above the largest size {sizes[-1]}: admission let it through")
