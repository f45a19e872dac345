"""The mask rows of one step, for all constrained sequences together.

Decides which rows are sent and how they are padded. Never samples. In: matchers and their drafts.
Out: packed rows with the logits rows they belong to, and where each draft is cut.

With several threads the rows are filled side by side, without Python's lock; with one thread each
matcher fills its own, which costs less than handing the work over. Sequences without a matcher cost
nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ds_jax import errors
from ds_jax.structured import backend
from ds_jax.structured.matcher import GrammarFault, Matcher, Rows
from ds_jax.structured.vocabulary import BITS, Vocabulary

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One sequence of a step.

    Attributes:
      matcher: behind the anchor.
      draft_ids: proposed tokens.
      first_row: the anchor's row of the logits of its rank; those of the drafts follow it.
      rank: whose logits they are.
      always: the row is needed even where it refuses nothing.
    """

    matcher: Matcher
    draft_ids: Sequence[int]
    first_row: int
    rank: int = 0
    always: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Filled:
    """What a step needs.

    Attributes:
      rows: [ranks * N, words] int32, N one of the buckets; those of a rank follow each other.
      targets: [ranks * N] int32, the logits row each belongs to; `num_logits` in padding.
      owners: the job of each row, by its place among `rows`; padding has none.
      valid: for each job, how many of its drafts are allowed.
      faults: for jobs that cannot go on, why; their rows allow the end token.
    """

    rows: Rows
    targets: NDArray[np.int32]
    owners: dict[int, int]
    valid: tuple[int, ...]
    faults: dict[int, GrammarFault]


@dataclasses.dataclass(frozen=True, slots=True)
class Blocks:
    """What a step that judges drafts under masks needs: a block of rows a sequence.

    Attributes:
      rows: [ranks * N * width, words] int32, N one of the buckets.
      places: [ranks * N] int32, `Job.first_row` of each sequence; `num_logits` in padding.
      owners: the job of each sequence, by its place among `places`.
      valid: for each job, how many of its drafts are allowed.
      faults: for jobs that cannot go on, why; they have no block.
    """

    rows: Rows
    places: NDArray[np.int32]
    owners: dict[int, int]
    valid: tuple[int, ...]
    faults: dict[int, GrammarFault]


def bucket_sizes(most: int, first: int = 8, factor: int = 4) -> tuple[int, ...]:
    """Row counts for which steps are compiled: 0, then growing by a factor up to `most`."""
    sizes = [0]
    size = first
    while sizes[-1] < most:
        sizes.append(min(size, most))
        size *= factor
    return tuple(sizes)


class Filler:
    """Fills the rows of steps.

    Args:
      vocabulary: of all grammars.
      buckets: ascending row counts of a rank; the last one holds the largest step.
      num_logits: rows of a step's logits.
      threads: that fill masks; 1: the caller's.
      ranks: data-parallel ranks.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        buckets: Sequence[int],
        num_logits: int,
        threads: int = 1,
        ranks: int = 1,
    ):
        self._vocabulary = vocabulary
        self._buckets = tuple(buckets)
        self._num_logits = num_logits
        self._ranks = ranks
        self._executor = backend.make_executor(threads) if threads > 1 else None
        self._scratch = np.zeros((0, vocabulary.words), np.int32)

    def fill(self, jobs: Sequence[Job]) -> Filled:
        """The rows of one step; the matchers are left as they are. Mutates its scratch memory."""
        starts, rows, valid, faults = self._filled(jobs)
        ranks: list[list[tuple[int, int, int]]] = [[] for _ in range(self._ranks)]
        for index, job in enumerate(jobs):
            for offset in range(1 + len(job.draft_ids)):
                row = starts[index] + offset
                if job.always or not _is_free(job, rows[row]):
                    ranks[job.rank].append((row, index, job.first_row + offset))
        size = self._size(ranks)
        out = np.full((self._ranks * size, rows.shape[1]), -1, np.int32)
        targets = np.full(self._ranks * size, self._num_logits, np.int32)
        owners: dict[int, int] = {}
        for rank, kept in enumerate(ranks):
            for place, (row, index, target) in enumerate(kept, rank * size):
                out[place], targets[place], owners[place] = rows[row], target, index
        return Filled(out, targets, owners, tuple(valid), faults)

    def fill_blocks(self, jobs: Sequence[Job], width: int) -> Blocks:
        """The same with a block of `width` rows for each sequence of which a row refuses something.

        Rows behind those of the drafts refuse nothing. Mutates its scratch memory.
        """
        starts, rows, valid, faults = self._filled(jobs)
        ranks: list[list[int]] = [[] for _ in range(self._ranks)]
        for index, job in enumerate(jobs):
            mine = rows[starts[index] : starts[index] + 1 + len(job.draft_ids)]
            if index not in faults and (job.always or not _is_free(job, mine)):
                ranks[job.rank].append(index)
        size = self._size(ranks)
        out = np.full((self._ranks * size, width, rows.shape[1]), -1, np.int32)
        places = np.full(self._ranks * size, self._num_logits, np.int32)
        owners: dict[int, int] = {}
        for rank, kept in enumerate(ranks):
            for place, index in enumerate(kept, rank * size):
                count = 1 + len(jobs[index].draft_ids)
                out[place, :count] = rows[starts[index] : starts[index] + count]
                places[place], owners[place] = jobs[index].first_row, index
        return Blocks(out.reshape(-1, out.shape[-1]), places, owners, tuple(valid), faults)

    def _filled(
        self, jobs: Sequence[Job]
    ) -> tuple[list[int], Rows, list[int], dict[int, GrammarFault]]:
        """First row of each job, rows in scratch memory, allowed drafts, faults."""
        starts, total = _starts(jobs)
        if total > len(self._scratch):
            self._scratch = np.zeros((total, self._vocabulary.words), np.int32)
        rows = self._scratch[:total]
        faults: dict[int, GrammarFault] = {}
        valid = [0] * len(jobs)
        if self._executor is not None:
            self._fill_inside(self._executor, jobs, starts, rows)
        for index, job in enumerate(jobs):
            block = rows[starts[index] : starts[index] + 1 + len(job.draft_ids)]
            try:
                if self._executor is not None and job.matcher.parser() is not None:
                    valid[index] = self._cut(job, block)
                else:
                    valid[index] = job.matcher.fill_rows(job.draft_ids, block)
            except GrammarFault as fault:
                faults[index] = fault
                job.matcher.close_rows(block)
        return starts, rows, valid, faults

    def _fill_inside(
        self, executor: LLExecutor, jobs: Sequence[Job], starts: list[int], rows: Rows
    ) -> None:
        single: list[tuple[LLMatcher, int]] = []
        drafted: list[tuple[LLMatcher, int, list[int]]] = []
        for start, job in zip(starts, jobs, strict=True):
            parser = job.matcher.parser()
            if parser is not None:
                drafts = self._before_end(job)
                if drafts:
                    drafted.append((parser, start, drafts))
                else:
                    single.append((parser, start))
        where = (rows.ctypes.data, 4 * self._vocabulary.words, len(rows))
        if single:
            executor.unsafe_compute_mask_ptr(single, *where)
        if drafted:
            executor.unsafe_compute_mask_ptr_with_draft_token(drafted, *where)

    def _before_end(self, job: Job) -> list[int]:
        """The drafts in front of an end token, which the parser is never given."""
        out: list[int] = []
        for draft_id in job.draft_ids:
            if draft_id == self._vocabulary.eos_id or not self._vocabulary.is_id(draft_id):
                break
            out.append(draft_id)
        return out

    def _cut(self, job: Job, block: Rows) -> int:
        """How many drafts are allowed; closes the rows behind them."""
        matcher, drafts = job.matcher, self._before_end(job)
        valid = matcher.count_inside(drafts)
        eos_id = self._vocabulary.eos_id
        word, bit = divmod(eos_id, BITS)
        ends = valid == len(drafts) < len(job.draft_ids) and job.draft_ids[valid] == eos_id
        if ends and int(block[valid, word]) >> bit & 1:
            valid += 1
            matcher.close_rows(block[valid : valid + 1])
        matcher.close_rows(block[valid + 1 :])
        return valid

    def _size(self, ranks: Sequence[Sequence[object]]) -> int:
        """The smallest bucket with room for every rank."""
        most = max(map(len, ranks))
        size = next((size for size in self._buckets if size >= most), None)
        if size is None:
            raise errors.StepError(f"{most} mask rows in one step; at most {self._buckets[-1]}")
        return size


def _is_free(job: Job, rows: Rows) -> bool:
    return job.matcher.is_waiting and bool((rows == -1).all())


def _starts(jobs: Sequence[Job]) -> tuple[list[int], int]:
    starts: list[int] = []
    total = 0
    for job in jobs:
        starts.append(total)
        total += 1 + len(job.draft_ids)
    return starts, total
