"""Sizes and choices the scheduler plans within.

Decides how much one rank's step may hold and what can never fit. Never changes at run time.
In: `config.Engine`, `config.Cache` and the choices of a deployment. Out: `Limits`.
"""

from __future__ import annotations

import dataclasses

from ds_jax import config
from ds_jax.engine.buckets import pages_for
from ds_jax.errors import ConfigError
from ds_jax.kvcache import replay

CANONICAL_RUNS = 4  # of the program, in one step
UNLIMITED_WINDOW = replay.Rule(window=1, ratios=())


def replay_rule(model: config.Model, cache: config.Cache) -> replay.Rule:
    """What a model and the choices of a deployment fix about prefixes.

    Raises:
      ConfigError: too few tokens are kept.
    """
    return replay.Rule(
        window=model.sliding_window,
        ratios=model.compress_ratios[: model.num_hidden_layers],
        backtrack=cache.max_backtrack,
        mode=cache.replay,
        keep_tokens=cache.keep_tokens,
        bounded=cache.bounded_replay,
    )


def pages(engine: config.Engine, cache: config.Cache) -> int:
    """Pages of a rank: every slot can hold a whole context, unless they are given."""
    each = pages_for(engine.max_context + engine.nextn, cache.page_tokens)
    return engine.max_sequences * each if cache.pages is None else cache.pages


def snapshots(engine: config.Engine, cache: config.Cache) -> int:
    """Stored states of a rank."""
    if not cache.prefix:
        return 0
    return 3 * engine.max_sequences if cache.snapshots is None else cache.snapshots


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a replica has; every size is one data-parallel rank's.

    Attributes:
      ranks: data-parallel ranks.
      slots: sequences that run at once.
      pages: pages of compressed rows.
      page_tokens: tokens of a page.
      max_context: positions of a sequence, prompt and output together.
      step_tokens: tokens of a step. Decode rows come first; a quarter is prefill's in any case.
      chunk_tokens: longest prefill chunk of one sequence.
      chunk_grid: chunks end at every multiple and nowhere else but at the prompt's end, whatever
        else runs; 0: where it is cheapest.
      drafts: draft tokens of a decode row.
      prefix: keep pages for later sequences.
      snapshots: stored states; three a slot leave room for prompts beside what is decoding.
      rule: what is run again behind a prefix hit.
      end_token_ids: ids that end a sequence unless it ignores them.
      fingerprint: names what cached rows depend on, beside tokens: weights, numerics, layout.
    """

    ranks: int
    slots: int
    pages: int
    page_tokens: int
    max_context: int
    step_tokens: int
    chunk_tokens: int
    chunk_grid: int = 0
    drafts: int = 0
    prefix: bool = True
    snapshots: int = 0
    rule: replay.Rule = UNLIMITED_WINDOW
    end_token_ids: frozenset[int] = frozenset()
    fingerprint: bytes = b""

    def __post_init__(self):
        for name in ("ranks", "slots", "pages", "page_tokens", "max_context", "chunk_tokens"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("chunk_grid", "drafts", "snapshots"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must not be negative")
        if self.step_tokens < 1:
            raise ConfigError(f"step_tokens={self.step_tokens}: must be above 0")
        if self.page_tokens % self.rule.alignment:
            raise ConfigError(
                f"page_tokens={self.page_tokens}: must be a multiple of {self.rule.alignment}, so "
                "that no compressed row spans two pages"
            )
        if self.chunk_grid and (
            self.page_tokens % self.chunk_grid or self.chunk_grid > self.chunk_tokens
        ):
            raise ConfigError(
                f"chunk_grid={self.chunk_grid}: must divide page_tokens={self.page_tokens} and be "
                f"at most chunk_tokens={self.chunk_tokens}"
            )
        if self.context < 2:
            raise ConfigError(
                f"pages={self.pages} of {self.page_tokens} tokens hold no sequence: a prompt and "
                f"an output token need 2 positions, drafts another {self.drafts}; raise pages"
            )

    @classmethod
    def plan(
        cls,
        engine: config.Engine,
        cache: config.Cache,
        *,
        ranks: int = 1,
        **choices: object,
    ) -> Limits:
        """Limits for a replica.

        Args:
          choices: further fields.
        """
        longest = min(engine.chunk_tokens[-1], engine.max_context)
        step_tokens = engine.step_tokens or longest + engine.max_sequences * (1 + engine.nextn)
        if engine.canonical and engine.step_tokens is None:  # a step is some runs of one program
            step_tokens = max(CANONICAL_RUNS * engine.canonical_rows, engine.max_sequences)
        known: dict[str, object] = {
            "drafts": engine.nextn,
            "prefix": cache.prefix,
            "snapshots": snapshots(engine, cache),
        }
        return cls(
            ranks=ranks,
            slots=engine.max_sequences,
            pages=pages(engine, cache),
            page_tokens=cache.page_tokens,
            max_context=engine.max_context,
            step_tokens=step_tokens,
            chunk_tokens=longest,
            **known | choices,  # type: ignore[arg-type]
        )

    @property
    def context(self) -> int:
        """Positions that one sequence can have when it runs alone."""
        return min(self.max_context, self.pages * self.page_tokens - self.drafts)

    @property
    def row_tokens(self) -> int:
        """Tokens of a decode row."""
        return 1 + self.drafts

    @property
    def least_prefill(self) -> int:
        """Tokens of a step that decode cannot take from prefill."""
        return max(self.step_tokens // 4, self.chunk_grid, 1)

    def pages_for(self, positions: int) -> int:
        """Pages that hold so many positions."""
        return pages_for(positions, self.page_tokens)

    def chunk_stop(
        self, start: int, target: int, cuts: tuple[int, ...], room: int, *, first: bool
    ) -> int:
        """Where the chunk that begins at `start` ends; `start` itself: better none in this step.

        Args:
          target: where the last chunk ends.
          cuts: positions where a chunk must end, ascending.
          room: tokens the step has left.
          first: nothing else of the rank is in prefill in this step.
        """
        if self.chunk_grid:
            stop = min(target, (start // self.chunk_grid + 1) * self.chunk_grid)
            return stop if stop - start <= room else start
        stop = min(target, start + min(room, self.chunk_tokens))
        cut = next((c for c in cuts if start < c < stop), None)
        if cut is not None:
            return cut
        if stop < target and self.snapshots:
            whole = stop // self.page_tokens * self.page_tokens
            if whole > start:
                return whole
            if not first and room < self.chunk_tokens:
                return start
        return stop
