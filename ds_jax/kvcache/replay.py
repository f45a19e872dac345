"""Which tokens of a prompt are run again behind a prefix hit, and which rows the decoder skips.

Decides ranges of positions and whether the result is exact. Never sees a token or an array.
In: lengths and a `Rule`. Out: a `Replay`.

A hit of P tokens finds the compressed rows and index keys of positions < P. It does not find the
window rows, unless a stored state holds them. A window row of a layer depends on W - 1 earlier
positions of the layer below, so rebuilding `layers` of them exactly takes layers * (W - 1) tokens.

Encoder side (all layers where the decoder skips nothing): the latest start of these.

| start | |
|---|---|
| S, the length of a stored state, S <= a | exact |
| a - backtrack - layers * (W - 1), with an empty window in front | exact |
| a - W, with an empty window in front, only if `bounded` | approximate |
| 0 | exact, as if cold |

a is the first position whose results must be right: P, or the first kept decoder row before it.
Positions below P are run to rebuild windows; their compressed rows are found, so never written.

Decoder side, for a prompt of N tokens:

| mode | layers from the first of ratio 1 on |
|---|---|
| `off` | run every position that is run: exact |
| `mask`, `compact` | run [N - K, N) with an empty window in front: approximate where N > K |

`mask` computes the other rows and hides them, `compact` leaves them out; the numbers are the same.
A step then computes the last K decoder rows of a chunk, so no chunk may need more.
The decoder side's window rows then serve decode only: a stored state holds the encoder's alone.

Source: V4.1 model notes, sliding-window bounded replay on both sides.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from ds_jax.errors import ConfigError

MODES = ("off", "mask", "compact")
KEEP_TOKENS = 140  # the serving setting of V4.1: window 128, 5 drafts, one more, rounded up


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a model and a deployment fix.

    Attributes:
      window: positions a query sees, itself included (W).
      ratios: compression ratio of every layer, 0 for window only.
      backtrack: rows behind the window that a rollback may need.
      mode: "off", "mask" or "compact".
      keep_tokens: decoder rows kept of a prompt (K); 0 with mode "off".
      bounded: rebuild missing encoder windows from one window of tokens.
    """

    window: int
    ratios: tuple[int, ...]
    backtrack: int = 0
    mode: str = "off"
    keep_tokens: int = 0
    bounded: bool = False

    def __post_init__(self):
        if self.window < 1 or self.backtrack < 0:
            raise ConfigError(
                f"window={self.window}, backtrack={self.backtrack}: window must be above 0, "
                "backtrack not negative"
            )
        if self.mode not in MODES:
            raise ConfigError(f"mode={self.mode!r}: must be one of {', '.join(MODES)}")
        least = self.window + self.backtrack
        if self.mode == "off":
            if self.keep_tokens:
                raise ConfigError(
                    f"keep_tokens={self.keep_tokens}: must be 0 with mode=off, which keeps all"
                )
        elif self.keep_tokens < least:
            raise ConfigError(
                f"keep_tokens={self.keep_tokens}: must be at least window + backtrack = {least} "
                f"with mode={self.mode}; {KEEP_TOKENS} is usual for a window of 128"
            )

    @property
    def encoder_layers(self) -> int:
        """Layers in front of the first with ratio 1."""
        return self.ratios.index(1) if 1 in self.ratios else len(self.ratios)

    @property
    def layers(self) -> int:
        """Layers whose windows a stored state holds and a replay rebuilds."""
        return len(self.ratios) if self.mode == "off" else self.encoder_layers

    @property
    def reach(self) -> int:
        """Tokens in front of a position that an exact rebuild of its windows takes."""
        return self.backtrack + self.layers * (self.window - 1)

    @property
    def alignment(self) -> int:
        """A hit must end at a multiple: no compressed row may be half found."""
        return math.lcm(*(r for r in self.ratios if r), 1)

    def first_kept(self, prompt_tokens: int) -> int:
        """First position that the decoder side runs of a prompt."""
        return 0 if self.mode == "off" else max(0, prompt_tokens - self.keep_tokens)


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """The plan of one prompt.

    Attributes:
      hit: positions below it are found and never written (P).
      restore: length of the stored state to start from; 0: none.
      start: first position that is run; what lies in front is not computed again.
      floor: no window key below it exists, on the encoder side.
      decoder_start: first position that the decoder side runs.
      decoder_floor: no window key below it exists, on the decoder side.
      settled: below it rows are run only to rebuild windows: they lack keys themselves, and no
        state that holds them may be stored.
      exact: the results are those of a run without a cache that skips no row.
    """

    hit: int
    restore: int
    start: int
    floor: int
    decoder_start: int
    decoder_floor: int
    settled: int
    exact: bool

    def decoder_rows(self, start: int, stop: int) -> range:
        """Positions of a chunk [start, stop) that the decoder side runs; may be empty."""
        return range(min(max(start, self.decoder_start), stop), stop)


def usable(rule: Rule, tokens: int, found: int, page_tokens: int) -> int:
    """The length of a hit: whole pages, and the last token is always run, for its logits."""
    unit = math.lcm(page_tokens, rule.alignment)
    return min(found, tokens - 1) // unit * unit


def plan(
    rule: Rule,
    prompt_tokens: int,
    hit: int,
    stored: Sequence[int] = (),
    total_tokens: int | None = None,
    align: int = 1,
) -> Replay:
    """What is run of a prompt.

    Args:
      prompt_tokens: N.
      hit: P, see `usable`.
      stored: lengths at most P at which a state is stored.
      total_tokens: prompt and the outputs of a sequence that is computed again; the decoder side
        keeps what it kept the first time, so that the outputs go on as they began.
      align: a rebuild starts at a multiple, further in front if need be.
    """
    total = prompt_tokens if total_tokens is None else total_tokens
    assert 0 <= hit < total, f"hit={hit} of {total} tokens: the last one must be run"
    kept = rule.first_kept(prompt_tokens)
    anchor = hit if rule.mode == "off" else min(hit, kept)
    restore = max((s for s in stored if s <= anchor), default=0)
    start, floor, exact = restore, 0, True
    rebuilt = (anchor - (rule.window if rule.bounded else rule.reach)) // align * align
    if rebuilt > start:
        restore, start, floor, exact = 0, rebuilt, rebuilt, not rule.bounded
    return Replay(
        hit=hit,
        restore=restore,
        start=start,
        floor=floor,
        decoder_start=max(start, kept),
        decoder_floor=max(floor, kept),
        settled=anchor if floor else 0,
        exact=exact and not kept,
    )


def borders(rule: Rule, prompt_tokens: int, page_tokens: int) -> tuple[int, ...]:
    """Lengths at which a state is worth storing: where the same or a longer prompt starts from.

    The longest start of the same prompt, the longest of a prompt that goes on, and in front of the
    kept rows if the decoder side keeps some.
    """
    whole = prompt_tokens // page_tokens * page_tokens
    same = usable(rule, prompt_tokens, prompt_tokens, page_tokens)
    if rule.mode != "off":
        same = min(same, rule.first_kept(prompt_tokens) // page_tokens * page_tokens)
    return tuple(sorted({same, whole} - {0}))


def decoder_cuts(rule: Rule, prompt_tokens: int, total_tokens: int) -> range:
    """Where chunks of a sequence that is computed again must end, so that none needs more than K
    decoder rows: it keeps those of its prompt and all of its outputs.
    """
    if rule.mode != "compact":
        return range(0)
    return range(prompt_tokens, total_tokens, rule.keep_tokens)
