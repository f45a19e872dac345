"""A device in plain Python: slots, rings, pages and stored states hold numbers that depend on
everything a real row depends on, so a wrong page, slot, state or range changes the tokens.

Layers have a window each. The first layer with a ratio above 0 and the first with ratio 1 write
compressed rows, which all layers behind them read. Rows carry their positions: reading a row that
is not there fails at once.
"""

from __future__ import annotations

import collections
import copy
import dataclasses

from ds_jax.engine.limits import Limits
from ds_jax.engine.plan import Chunk, Copy, Plan, StepResult
from ds_jax.engine.sequence import Sequence
from ds_jax.kvcache.replay import Rule

BIG = (1 << 31) - 1
NOTHING = (-1, 0)
TAIL = 16  # rows of a compressor's ring: more than drafts and a pair


def mix(*values: int) -> int:
    total = 17
    for value in values:
        total = (total * 1000003 + value) % BIG
    return total


class Memory:
    """What one sequence's rows are read from and written to: here, of an endless machine."""

    def __init__(self, rule: Rule):
        self.windows = [dict[int, tuple[int, int]]() for _ in rule.ratios]
        self.rows = collections.defaultdict[int, dict[int, tuple[int, int]]](dict)
        self.tails = dict[tuple[int, int], tuple[int, int]]()  # (layer, place): position, value

    def window(self, layer: int, position: int) -> tuple[int, int]:
        return self.windows[layer][position]

    def put_window(self, layer: int, position: int, value: int) -> None:
        self.windows[layer][position] = (position, value)

    def row(self, source: int, number: int) -> tuple[int, int]:
        return self.rows[source][number]

    def put_row(self, source: int, number: int, value: int) -> None:
        self.rows[source][number] = (number, value)


@dataclasses.dataclass(frozen=True)
class Model:
    """The mathematics: one position through all layers."""

    rule: Rule
    vocabulary: int = 40

    @property
    def sources(self) -> dict[int, int]:
        """Layers that write compressed rows, and their ratios."""
        ratios = self.rule.ratios
        return {ratios.index(r): r for r in dict.fromkeys(ratios) if r}

    def run(
        self,
        memory: Memory,
        position: int,
        token: int,
        floors: tuple[int, int] = (0, 0),
        write_from: int = 0,
        decoder_start: int = 0,
    ) -> int | None:
        """The last layer's value; None where the decoder side is left out."""
        x, encoder = mix(token, position), self.rule.encoder_layers
        sources = self.sources
        for layer, ratio in enumerate(self.rule.ratios):
            decoder = layer >= encoder
            if layer in sources:
                self._write(memory, layer, ratio, position, x, write_from)
            if decoder and position < decoder_start:
                return None
            memory.put_window(layer, position, mix(x, position))
            total = x
            first = max(floors[decoder], position - self.rule.window + 1)
            for key in range(first, position + 1):
                found, value = memory.window(layer, key)
                assert found == key, f"layer {layer}: window row {key} holds {found}"
                total += value
            if ratio:
                source = max(s for s in sources if s <= layer)
                for number in range((position + 1) // sources[source]):
                    found, value = memory.row(source, number)
                    assert found == number, f"layer {layer}: row {number} holds {found}"
                    total += value
            x = mix(total, layer)
        return x

    def _write(
        self, memory: Memory, layer: int, ratio: int, position: int, x: int, write_from: int
    ) -> None:
        if ratio == 1:
            if position >= write_from:
                memory.put_row(layer, position, mix(x, layer))
        elif position % 2 == 0:
            memory.tails[layer, position % TAIL] = (position, x)
        elif position >= write_from:
            found, before = memory.tails[layer, (position - 1) % TAIL]
            assert found == position - 1, f"layer {layer}: tail {position - 1} holds {found}"
            memory.put_row(layer, position // 2, mix(before, x, layer))

    def sample(self, hidden: int, seed: int, position: int) -> int:
        return mix(hidden, seed, position) % self.vocabulary

    def generate(self, prompt: tuple[int, ...], seed: int, count: int) -> list[int]:
        """The tokens of a sequence alone on an endless machine."""
        memory, out = Memory(self.rule), list[int]()
        kept = self.rule.first_kept(len(prompt))
        hidden = None
        for position, token in enumerate(prompt):
            hidden = self.run(memory, position, token, (0, kept), 0, kept)
        for position in range(len(prompt), len(prompt) + count):
            assert hidden is not None
            out.append(self.sample(hidden, seed, position))
            hidden = self.run(memory, position, out[-1], (0, kept), 0, kept)
        return out


class SlotMemory(Memory):
    """A slot's rings and a sequence's pages."""

    def __init__(self, device: RankDevice, slot: int, pages: list[int]):
        self.device, self.slot, self.pages = device, slot, pages
        self.tails = device.tails[slot]

    def window(self, layer: int, position: int) -> tuple[int, int]:
        ring = self.device.rings[self.slot][layer]
        return ring[position % len(ring)]

    def put_window(self, layer: int, position: int, value: int) -> None:
        ring = self.device.rings[self.slot][layer]
        ring[position % len(ring)] = (position, value)

    def row(self, source: int, number: int) -> tuple[int, int]:
        return self._page(source, number)[(source, number % self._size(source))]

    def put_row(self, source: int, number: int, value: int) -> None:
        self._page(source, number)[(source, number % self._size(source))] = (number, value)

    def _size(self, source: int) -> int:
        return self.device.limits.page_tokens // self.device.model.sources[source]

    def _page(self, source: int, number: int) -> dict[tuple[int, int], tuple[int, int]]:
        place = number // self._size(source)
        assert place < len(self.pages), f"row {number} lies behind the {len(self.pages)} pages"
        return self.device.pages[self.pages[place]]


class RankDevice:
    """The memory of one rank, and what it does with a plan."""

    def __init__(self, limits: Limits, model: Model):
        self.limits, self.model = limits, model
        size = limits.rule.window + limits.drafts + limits.rule.backtrack
        layers = len(limits.rule.ratios)
        self.rings = [[[NOTHING] * size for _ in range(layers)] for _ in range(limits.slots)]
        self.tails = [dict[tuple[int, int], tuple[int, int]]() for _ in range(limits.slots)]
        self.pages = [dict[tuple[int, int], tuple[int, int]]() for _ in range(limits.pages)]
        self.next = [NOTHING] * limits.slots  # (position, token) of the next decode row
        self.states: list[tuple[int, list[list[tuple[int, int]]]] | None] = [
            None for _ in range(limits.snapshots)
        ]

    def restore(self, order: Copy) -> None:
        state = self.states[order.handle]
        assert state is not None and state[0] == order.length, f"{order} finds {state}"
        rings = copy.deepcopy(state[1])
        size = len(self.rings[order.slot][0])
        missing = len(self.limits.rule.ratios) - len(rings)
        self.rings[order.slot] = rings + [[NOTHING] * size for _ in range(missing)]

    def save(self, order: Copy) -> None:
        layers = self.limits.rule.layers
        self.states[order.handle] = (order.length, copy.deepcopy(self.rings[order.slot][:layers]))

    def prefill(self, chunk: Chunk) -> list[int]:
        sequence = chunk.sequence
        replay = sequence.replay
        assert replay is not None
        memory = SlotMemory(self, sequence.slot, sequence.pages)
        hidden = None
        for position, token in enumerate(chunk.token_ids, chunk.start):
            hidden = self.model.run(
                memory,
                position,
                token,
                (replay.floor, replay.decoder_floor),
                chunk.write_from,
                replay.decoder_start,
            )
        if not chunk.samples:
            return []
        assert hidden is not None, "the last row of a prompt is not run"
        return self._sample(sequence, hidden, chunk.stop)

    def decode(self, sequence: Sequence, planned: int) -> list[int]:
        position, token = self.next[sequence.slot]
        drafts = self.limits.drafts
        assert position <= planned, f"planned {planned}, device {position}"
        assert drafts or position == planned, f"planned {planned}, device {position}"
        accepted = mix(sequence.seed, position) % (drafts + 1)
        memory = SlotMemory(self, sequence.slot, sequence.pages)
        replay = sequence.replay
        assert replay is not None
        floors = (0, self.model.rule.first_kept(sequence.prompt_tokens))
        got = list[int]()
        for number in range(drafts + 1):
            row = position + number
            assert row < len(sequence.pages) * self.limits.page_tokens, "a row without a page"
            hidden = self.model.run(memory, row, token, floors)
            if number <= accepted:
                assert hidden is not None
                got += self._sample(sequence, hidden, row + 1)
                token = got[-1]
            if number >= accepted:
                token = mix(token, number) % self.model.vocabulary  # a draft that is rejected
        return got

    def _sample(self, sequence: Sequence, hidden: int, position: int) -> list[int]:
        token = self.model.sample(hidden, sequence.seed, position)
        self.next[sequence.slot] = (position, token)
        return [token]


class MockDevice:
    """All ranks. `launch` runs a plan at once and returns what would be read later."""

    def __init__(self, limits: Limits, model: Model):
        self.ranks = [RankDevice(limits, model) for _ in range(limits.ranks)]

    def launch(self, plan: Plan) -> StepResult:
        for order in plan.restores:
            self.ranks[order.rank].restore(order)
        tokens = list[list[int]]()
        for chunk in plan.prefill:
            got = self.ranks[chunk.sequence.rank].prefill(chunk)
            if chunk.samples:
                tokens.append(got)
        for row in plan.decode:
            tokens.append(self.ranks[row.sequence.rank].decode(row.sequence, row.start))
        for order in plan.saves:
            self.ranks[order.rank].save(order)
        return StepResult(plan.number, tokens)
