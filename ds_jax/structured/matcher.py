"""Where one sequence stands in its grammar.

Decides which tokens may come next and whether the output may end. Never samples, never compiles.
In: token ids as they are committed or drafted. Out: packed mask rows, forced tokens.

| phase | allowed |
|---|---|
| waiting | everything (but the end token, if the trigger holds it), or the next trigger id |
| inside | what the grammar allows; the end token where the text may end |
| ended | the end token |

The end token is never fed to the parser, which would not always count it: a length of its own says
what a rollback has to undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ds_jax import errors
from ds_jax.structured.trigger import Trigger
from ds_jax.structured.vocabulary import BITS, Vocabulary

if TYPE_CHECKING:
    import llguidance

Rows = NDArray[np.int32]
"""[rows, words]: bit i of word w, lowest first, is token 32 w + i; 1 is allowed."""


_DEAD_END = "NoExtension"  # how the library names it


class GrammarFault(errors.StepError):
    """A sequence that cannot go on in its grammar; only that sequence ends."""


class Matcher:
    """The place of one sequence. Methods that change it say so.

    Args:
      vocabulary: the tokens.
      handle: a parser at the start of the grammar; it becomes this matcher's own.
      trigger: what has to come first.
    """

    def __init__(
        self, vocabulary: Vocabulary, handle: llguidance.LLMatcher, trigger: Trigger | None = None
    ):
        self.vocabulary = vocabulary
        self._handle = handle
        self._trigger = trigger
        self._seen: list[tuple[int, bool]] = [(0, False)]  # of the trigger, after each free token
        self._length = 0
        self._start: int | None = None if trigger else 0
        self._end: int | None = None

    @property
    def length(self) -> int:
        """Tokens taken, the end token included."""
        return self._length

    @property
    def is_waiting(self) -> bool:
        """Whether the grammar has not started."""
        return self._start is None and self._end is None

    @property
    def has_ended(self) -> bool:
        """Whether the end token was taken."""
        return self._end is not None

    @property
    def is_accepting(self) -> bool:
        """Whether the text so far is complete: it may end here."""
        if self._start is None:
            return False
        return self.has_ended or self._handle.is_accepting()

    @property
    def is_finished(self) -> bool:
        """Whether nothing but the end token can follow."""
        return self.has_ended or (
            self._start is not None and self._handle.is_stopped() and self._handle.is_accepting()
        )

    @property
    def needs_row(self) -> bool:
        """Whether the next token is constrained at all."""
        if not self.is_waiting:
            return True
        assert self._trigger is not None, "only a trigger makes a matcher wait"
        return self._trigger.holds_end or self._seen[-1][1]

    def accept(self, token_id: int) -> None:
        """Takes a committed token. Mutates.

        Raises:
          GrammarFault: the grammar does not allow it; the matcher is as before.
        """
        if not self._take(token_id):
            raise GrammarFault(
                f"token {token_id} after {self._length} tokens: not allowed by the grammar; "
                "sample with the mask row of this position"
            )

    def accept_while_valid(self, token_ids: Iterable[int]) -> int:
        """Takes tokens up to the first refused one; how many. Mutates."""
        count = 0
        for token_id in token_ids:
            if not self._take(token_id):
                break
            count += 1
        return count

    def count_valid(self, token_ids: Iterable[int]) -> int:
        """How many of the tokens could be taken, one after the other."""
        count = self.accept_while_valid(token_ids)
        self.rollback(count)
        return count

    def count_inside(self, token_ids: list[int]) -> int:
        """The same for a matcher inside its grammar and tokens without the end token.

        Raises:
          GrammarFault: the parser ran into a limit.
        """
        count = self._handle.validate_tokens(token_ids) if token_ids else 0
        self._check()
        return count

    def rollback(self, count: int) -> None:
        """Takes back the last `count` tokens. Mutates."""
        assert 0 <= count <= self._length, f"{count} tokens cannot be taken back of {self._length}"
        target = self._length - count
        inside = self._inside()
        self._length = target
        if self._end is not None and target < self._end:
            self._end = None
        if self._trigger is not None:
            if self._start is not None and target < self._start:
                self._start = None
            del self._seen[target + 1 :]
        undone = inside - self._inside()
        if undone and not self._handle.rollback(undone):
            self._check()

    def fork(self) -> Matcher:
        """An independent matcher at the same place."""
        other = Matcher(self.vocabulary, self._handle.deep_copy(), self._trigger)
        other._seen = list(self._seen)
        other._length, other._start, other._end = self._length, self._start, self._end
        return other

    def forced_tokens(self) -> list[int]:
        """Tokens that must follow, in their usual cut into tokens; without the end token.

        Each is the only one that the mask row of its position allows, so appending them without a
        forward pass each gives what sampling would give.
        """
        if self.has_ended:
            return []
        if self._start is None:
            assert self._trigger is not None, "only a trigger makes a matcher wait"
            matched, bound = self._seen[-1]
            return list(self._trigger.token_ids[matched:]) if bound else []
        forced = self._handle.compute_ff_tokens()
        self._check()
        if self.vocabulary.eos_id in forced:
            del forced[forced.index(self.vocabulary.eos_id) :]
        return forced

    def fill_row(self, row: Rows) -> None:
        """Writes the mask of the next token.

        Args:
          row: [words] int32, contiguous, at least as long as the vocabulary's.

        Raises:
          GrammarFault: no token can follow, or the parser ran into a limit.
        """
        words = self.vocabulary.words
        if self.is_waiting:
            self._fill_free(row)
        elif self.has_ended:
            row[:] = 0
            _allow(row, self.vocabulary.eos_id)
        else:
            row[words:] = 0
            self._handle.unsafe_compute_mask_ptr(row.ctypes.data, 4 * words)
            self._check()

    def fill_rows(self, draft_ids: Sequence[int], rows: Rows) -> int:
        """Writes the masks of an anchor's next token and of each draft's, as one verify step needs.

        Args:
          draft_ids: proposed tokens that follow each other.
          rows: [1 + len(draft_ids), words] int32, contiguous.

        Returns:
          How many drafts are allowed: the draft is to be cut there. Rows behind the cut allow the
          end token only. A draft behind which the grammar cannot go on is cut as well: nobody has
          drawn it yet.

        Raises:
          GrammarFault: as for `fill_row`. The matcher is as before.
        """
        self.fill_row(rows[0])
        allowed = 0
        if len(draft_ids):
            probe = self.fork()  # a fault would stay with the parser that had it
            try:
                for draft_id in draft_ids:
                    if probe.has_ended or not probe._take(draft_id):
                        break
                    probe.fill_row(rows[allowed + 1])
                    allowed += 1
            except GrammarFault:
                pass
        self.close_rows(rows[allowed + 1 :])
        return allowed

    def close_rows(self, rows: Rows) -> None:
        """Allows the end token only, in all of these rows."""
        rows[:] = 0
        for row in rows:
            _allow(row, self.vocabulary.eos_id)

    def parser(self) -> llguidance.LLMatcher | None:
        """The parser, if only the grammar decides about the next tokens."""
        return None if self.is_waiting or self.has_ended else self._handle

    def _inside(self) -> int:
        """Tokens the parser has taken."""
        if self._start is None:
            return 0
        end = self._length if self._end is None else self._end - 1
        return min(self._length, end) - self._start

    def _take(self, token_id: int) -> bool:
        if self.has_ended or not self.vocabulary.is_id(token_id):
            return False
        if self._start is None:
            return self._take_free(token_id)
        if token_id == self.vocabulary.eos_id:
            if not self._handle.is_accepting():
                return False
            self._length += 1
            self._end = self._length
            return True
        # A refused token would put the parser into an error state for good.
        if self._handle.validate_tokens([token_id]) != 1:
            self._check()
            return False
        if not self._handle.consume_token(token_id):
            self._check()
        self._length += 1
        return True

    def _take_free(self, token_id: int) -> bool:
        trigger, (matched, bound) = self._trigger, self._seen[-1]
        assert trigger is not None, "only a trigger makes a matcher wait"
        if bound and token_id != trigger.token_ids[matched]:
            return False
        ends = token_id == self.vocabulary.eos_id
        if ends and trigger.holds_end and token_id != trigger.token_ids[matched]:
            return False
        matched = trigger.advance(matched, token_id)
        self._length += 1
        self._seen.append((matched, bound or token_id == trigger.bound_token_id))
        if matched == len(trigger.token_ids):
            self._start = self._length
        elif ends:
            self._end = self._length
        return True

    def _fill_free(self, row: Rows) -> None:
        trigger, (matched, bound) = self._trigger, self._seen[-1]
        assert trigger is not None, "only a trigger makes a matcher wait"
        if bound:
            row[:] = 0
            _allow(row, trigger.token_ids[matched])
            return
        row[:] = -1
        if trigger.holds_end and trigger.token_ids[matched] != self.vocabulary.eos_id:
            word, bit = divmod(self.vocabulary.eos_id, BITS)
            row[word] &= np.int32(~(1 << bit) if bit < 31 else 2**31 - 1)

    def _check(self) -> None:
        """Raises if the parser cannot go on."""
        handle = self._handle
        reason = handle.get_error().strip().partition("\n")[0] if handle.is_error() else ""
        if reason and _DEAD_END not in reason:
            raise GrammarFault(f"the grammar's parser stopped: {reason}; simplify the grammar")
        if reason or (handle.is_stopped() and not handle.is_accepting()):
            raise GrammarFault(
                f"no token can follow after {self._length} tokens "
                f"({reason or handle.stop_reason()}); the grammar leads into a dead end"
            )


def _allow(row: Rows, token_id: int) -> None:
    word, bit = divmod(token_id, BITS)
    row[word] |= np.int32(1 << bit if bit < 31 else -(2**31))
