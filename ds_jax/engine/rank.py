"""What one data-parallel rank has to give: slots, pages, stored states.

Decides whether a sequence fits and what it takes and gives back. Never decides who goes first.
In: sequences. Out: the same sequences with slot and pages, or copies to plan.
"""

from __future__ import annotations

import dataclasses

from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import Copy
from ds_jax.engine.sequence import Sequence, State
from ds_jax.kvcache import replay
from ds_jax.kvcache.pages import PagePool
from ds_jax.kvcache.prefix import Match, PrefixIndex
from ds_jax.kvcache.snapshots import SnapshotStore


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """What a waiting sequence would get.

    Attributes:
      shared: cached pages.
      replay: what it would run.
      cuts: where its chunks would have to end.
      under_way: another sequence is computing the very next page; waiting for it costs less.
    """

    shared: tuple[int, ...]
    replay: replay.Replay
    cuts: tuple[int, ...]
    under_way: bool


class Rank:
    """One rank's resources. Methods mutate it and the sequences they get, but for `offer`.

    Attributes:
      running: sequences with a slot, in order of admission.
      changed: sequences whose list of pages has changed since the scheduler looked.
    """

    def __init__(self, limits: Limits, number: int):
        self.limits = limits
        self.number = number
        self.running: dict[int, Sequence] = {}
        self.changed: dict[Sequence, None] = {}
        spare = limits.pages - limits.pages_for(limits.context + limits.drafts)
        self.pool = PagePool(limits.pages, most_pinned=spare)
        self.snapshots = SnapshotStore(limits.snapshots if limits.prefix else 0)
        self.index = PrefixIndex(self.pool, self.snapshots, limits.page_tokens, limits.fingerprint)
        self._slots = list(range(limits.slots - 1, -1, -1))

    @property
    def free_slots(self) -> int:
        """Sequences that can still be admitted."""
        return len(self._slots)

    def offer(self, sequence: Sequence) -> Offer | None:
        """What a waiting sequence would get now; None: it does not fit.

        All pages of everything it has to compute are taken at once, so that two half admitted
        sequences never wait for each other. Running sequences that can still grow keep a page each.
        """
        if not self._slots:
            return None
        limits, total = self.limits, len(sequence.tokens)
        found = Match()
        if limits.prefix and sequence.request.reuse_prefix:
            found = self.index.match(sequence.chain.keys)
        size = limits.page_tokens
        hit = replay.usable(limits.rule, total, len(found.pages) * size, size)
        stored = [n * size for n in found.states if n * size <= hit]
        plan = replay.plan(
            limits.rule, sequence.prompt_tokens, hit, stored, total, max(limits.chunk_grid, 1)
        )
        shared = found.pages[: hit // size]
        wanted = limits.pages_for(min(total + 1, sequence.most_positions)) - len(shared)
        if wanted + self._growth() > self.pool.available - self.index.idle(shared):
            return None
        under_way = self._computes(sequence, len(found.pages))
        return Offer(shared, plan, self._cuts(sequence, plan, stored), under_way)

    def admit(self, sequence: Sequence, offer: Offer) -> Copy | None:
        """Gives a slot and pages; returns the state to restore, if one is stored."""
        total = len(sequence.tokens)
        sequence.pages = self.index.lock(offer.shared)
        assert self._take(sequence, total), "an offered page is gone"
        sequence.state = State.PREFILL
        sequence.rank, sequence.slot = self.number, self._slots.pop()
        sequence.target, sequence.computed = total, offer.replay.start
        sequence.sampled, sequence.published = sequence.received, len(offer.shared)
        sequence.replay, sequence.cuts = offer.replay, offer.cuts
        self.running[sequence.slot] = sequence
        if not sequence.preemptions:
            sequence.cached_tokens = offer.replay.start
            if self.limits.prefix:
                self.index.count(sequence.request.tenant, total, offer.replay.start)
        restored = offer.replay.restore
        if not restored:
            return None
        key = sequence.chain.keys[restored // self.limits.page_tokens - 1]
        return Copy(self.number, sequence.slot, self.snapshots.use(key), restored)

    def grow(self, sequence: Sequence, positions: int) -> bool:
        """Gives pages for so many positions; False: there are too few."""
        return self._take(sequence, positions)

    def save(self, sequence: Sequence, position: int, *, likely: bool) -> Copy | None:
        """Plans to store the state behind `position`; None: not at a border, or not worth it, or it
        holds rows that only rebuild windows.
        """
        number, rest = divmod(position, self.limits.page_tokens)
        if rest or not self.snapshots.capacity:
            return None
        assert sequence.replay is not None, "a sequence that runs has a plan"
        if position < sequence.replay.settled:
            return None
        keys = sequence.chain.keys
        if number <= len(keys) and self.snapshots.find(keys[number - 1]) is not None:
            return None
        handle = self.snapshots.reserve()
        if handle is None:
            return None
        sequence.saves.append((number, handle, likely))
        return Copy(self.number, sequence.slot, handle, position)

    def publish(self, sequence: Sequence) -> None:
        """Makes pages and states findable that launched steps complete with known tokens.

        To be called before the next plan's admissions, not after: a step must not read what it
        writes itself.
        """
        whole, size = sequence.committed // self.limits.page_tokens, self.limits.page_tokens
        if whole <= sequence.published or not self.limits.prefix:
            return
        sequence.chain.extend(sequence.tokens)
        for number in range(sequence.published, whole):
            page = sequence.pages[number]
            ids = sequence.tokens[number * size : (number + 1) * size]
            kept = self.index.insert(sequence.chain, number, page, ids)
            if kept != page:
                sequence.pages[number] = kept
                self.changed[sequence] = None
        sequence.published = whole
        self._bind(sequence)

    def release(self, sequence: Sequence) -> None:
        """Takes slot and pages back; a finished sequence's last state is kept longest."""
        for _, handle, _ in sequence.saves:
            self.snapshots.cancel(handle)
        sequence.saves.clear()
        if sequence.last_save is not None:
            self.snapshots.keep(sequence.last_save)
        self.index.unlock(sequence.pages)
        del self.running[sequence.slot]
        self._slots.append(sequence.slot)

    def check_integrity(self) -> None:
        """Asserts that pages, slots and states belong to the running sequences."""
        self.index.check_integrity()
        self.pool.check_integrity([s.pages for s in self.running.values()])
        assert sorted([*self._slots, *self.running]) == list(range(self.limits.slots)), "slots"
        saves = sum(len(s.saves) for s in self.running.values())
        assert self.snapshots.reserved == saves, f"{self.snapshots.reserved} reserved, {saves} used"

    def _take(self, sequence: Sequence, positions: int) -> bool:
        count = self.limits.pages_for(positions) - len(sequence.pages)
        if count > 0:
            pages = self.index.acquire(count)
            if pages is None:
                return False
            sequence.pages += pages
        self.changed[sequence] = None
        return True

    def _growth(self) -> int:
        """Running sequences that can come to need another page."""
        limits = self.limits
        return sum(
            len(s.pages) < limits.pages_for(s.most_positions + limits.drafts)
            for s in self.running.values()
        )

    def _computes(self, sequence: Sequence, number: int) -> bool:
        """Whether a running sequence is about to publish this page of the sequence."""
        keys = sequence.chain.keys
        helps = self.snapshots.capacity or (self.limits.prefix and self.limits.rule.bounded)
        if number >= len(keys) or not sequence.request.reuse_prefix or not helps:
            return False
        return any(
            s.state is State.PREFILL
            and number < len(s.chain.keys)
            and s.chain.keys[number] == keys[number]
            for s in self.running.values()
        )

    def _cuts(self, sequence: Sequence, plan: replay.Replay, stored: list[int]) -> tuple[int, ...]:
        """Where states are worth storing: at the prompt's borders, and where the hit ends.

        And where a longer chunk would have more decoder rows than a step computes.
        """
        limits, prompt = self.limits, sequence.prompt_tokens
        must = set(replay.decoder_cuts(limits.rule, prompt, len(sequence.tokens)))
        wanted = set[int]()
        if self.snapshots.capacity:
            borders = replay.borders(limits.rule, prompt, limits.page_tokens)
            wanted = {p for p in (plan.hit, *borders) if p >= plan.settled}
        return tuple(sorted(p for p in wanted - set(stored) | must if p > plan.start))

    def _bind(self, sequence: Sequence) -> None:
        saves, size = sequence.saves, self.limits.page_tokens
        while saves and saves[0][0] <= sequence.published:
            number, handle, likely = saves.pop(0)
            key = sequence.chain.keys[number - 1]
            self.index.bind(handle, key, likely=likely)
            if number * size > sequence.prompt_tokens:
                if sequence.last_save is not None:
                    self.snapshots.forget(sequence.last_save)
                sequence.last_save = key
