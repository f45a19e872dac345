"""Training rows: dialogues, repeats and prose packed into equal lengths.

Decides how documents share rows and which tokens count in the loss. Dialogues are never cut; what
they leave free at a row's end is filled with prose. Repeats are lists of task values written again
and again: only later copies count, so a small model learns early to look back and copy. Never
trains.
In: tokenizer, corpus folder, sizes, seed. Out: int32 tokens [num_rows, seq_len + 1] and float32
weights of the same shape.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ds_jax import errors
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.training import corpus, task_words, tasks
from ds_jax.training.task_words import Words
from ds_jax.training.tokenizer import PAD

DEFAULT_MIX = {
    "dialogues": 0.62,
    "repeats": 0.08,
    "django": 0.14,
    "wordnet": 0.08,
    "stdlib": 0.08,
}
_SMALLEST_PIECE = 16  # tokens; shorter gaps at a row's end are padded
_WAITING = 24  # dialogues to choose from when a gap is filled


@dataclasses.dataclass(frozen=True)
class Rows:
    """Packed rows; `weights[r, i]` is the loss weight of predicting `tokens[r, i]`."""

    tokens: np.ndarray  # [num_rows, seq_len + 1] int32
    weights: np.ndarray  # [num_rows, seq_len + 1] float32
    tokens_by_kind: dict[str, int]  # padding under "pad"


def build_rows(
    tokenizer: Tokenizer,
    corpus_dir: str | pathlib.Path,
    seq_len: int,
    seed: int,
    num_rows: int,
    mix: Mapping[str, float] | None = None,
    *,
    split: str = "train",
    prompt_weight: float = 0.1,
) -> Rows:
    """Packs rows; every row starts with the begin token of a document.

    Args:
      tokenizer: the tiny model's tokenizer.
      corpus_dir: folder written by `corpus.build`.
      seq_len: predicted tokens a row.
      seed: of dialogues, document order and row order.
      num_rows: rows to make.
      mix: share of the tokens per source; "dialogues", "repeats" or a corpus source. Default:
        `DEFAULT_MIX`.
      split: split of the dialogues.
      prompt_weight: loss weight of dialogue prompts; completions, later copies and prose have 1,
        padding 0.

    Raises:
      ConfigError: a source is unknown.
    """
    mix = {name: share for name, share in (mix or DEFAULT_MIX).items() if share > 0}
    unknown = set(mix) - {"dialogues", "repeats", *corpus.sources()}
    if unknown or not mix:
        raise errors.ConfigError(
            f"mix has {sorted(unknown) or 'no source'}; allowed are dialogues, "
            f"repeats, {', '.join(corpus.sources())} with shares above 0"
        )
    width = seq_len + 1
    counts = dict.fromkeys(mix, 0)
    prose = {
        name: _Prose(tokenizer, corpus.read(corpus_dir, name), f"{seed} {name}")
        for name in mix
        if name not in ("dialogues", "repeats")
    }
    # Held-out dialogues use their own few words only, so that their figures stay comparable.
    mixed = split == "train" and "wordnet" in mix
    more = task_words.vocabulary(corpus.read(corpus_dir, "wordnet")) if mixed else ()
    repeats = _Repeats(tokenizer, seed, split, more)
    dialogues = _Dialogues(tokenizer, tasks.generate(seed, split, more), prompt_weight, width)
    tokens = np.full((num_rows, width), tokenizer.control_id(PAD), np.int32)
    weights = np.zeros((num_rows, width), np.float32)
    for row in range(num_rows):
        # The source that is furthest behind its share starts the row.
        source = max(mix, key=lambda name: mix[name] * sum(counts.values()) - counts[name])
        used = 0
        if source == "dialogues":
            while (piece := dialogues.take(width - used)) is not None:
                end = used + len(piece[0])
                tokens[row, used:end], weights[row, used:end] = piece
                counts["dialogues"] += end - used
                used = end
        if source == "repeats":
            tokens[row], weights[row] = repeats.take(width)
            counts["repeats"] += width
            used = width
        while prose and width - used >= _SMALLEST_PIECE:
            if source == "dialogues":
                name = max(prose, key=lambda name: mix[name] * sum(counts.values()) - counts[name])
            else:
                name = source
            ids = prose[name].take(width - used)
            end = used + len(ids)
            tokens[row, used:end], weights[row, used:end] = ids, 1.0
            weights[row, used] = 0.0  # nothing predicts a begin token
            counts[name] += len(ids)
            used = end
        counts["pad"] = counts.get("pad", 0) + width - used
    order = np.random.default_rng(seed).permutation(num_rows)
    kinds = {name: count for name, count in counts.items() if name != "dialogues"}
    return Rows(tokens[order], weights[order], {**kinds, **dialogues.tokens_by_kind})


class _Dialogues:
    """Encoded dialogues; hands out the longest waiting one that fits. Mutates itself."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: Iterator[tasks.Dialogue],
        prompt_weight: float,
        width: int,
    ):
        self._tokenizer = tokenizer
        self._source = source
        self._prompt_weight = prompt_weight
        self._width = width
        self._waiting: list[tuple[str, list[int], list[int]]] = []
        self.tokens_by_kind: dict[str, int] = {}

    def take(self, room: int) -> tuple[np.ndarray, np.ndarray] | None:
        while len(self._waiting) < _WAITING:
            dialogue = next(self._source)
            ids, mask = tasks.encode(dialogue, self._tokenizer)
            if len(ids) <= self._width:
                self._waiting.append((dialogue.kind, ids, mask))
        if room == self._width:
            index = 0  # a fresh row takes the oldest, so that none waits forever
        else:
            fitting = [i for i, (_, ids, _) in enumerate(self._waiting) if len(ids) <= room]
            if not fitting:
                return None
            index = max(fitting, key=lambda i: len(self._waiting[i][1]))
        kind, ids, mask = self._waiting.pop(index)
        self.tokens_by_kind[kind] = self.tokens_by_kind.get(kind, 0) + len(ids)
        weights = np.where(np.array(mask) == 1, 1.0, self._prompt_weight).astype(np.float32)
        weights[0] = 0.0  # nothing predicts a begin token
        return np.array(ids, np.int32), weights


class _Repeats:
    """Lists written again and again: of values that dialogues hold, or of any text tokens, so that
    rare ones can be copied too. Mutates itself.
    """

    def __init__(self, tokenizer: Tokenizer, seed: int, split: str, more_words: Iterable[str]):
        self._tokenizer = tokenizer
        self._rng = random.Random(f"repeats {seed}")
        self._words = Words(self._rng, split, more_words)
        self._text = sorted(set(range(tokenizer.vocab_size)) - tokenizer.control_ids)

    def take(self, room: int) -> tuple[np.ndarray, np.ndarray]:
        """Fills `room` tokens; weight 1 on every copy but the first."""
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < room:
            copy = self._values() if self._rng.random() < 0.6 else self._any_tokens()
            copies = self._rng.choice((2, 2, 3, 4))
            ids += [self._tokenizer.bos_id, *copy * copies]
            weights += [0.0] * (1 + len(copy)) + [1.0] * (len(copy) * (copies - 1))
        return np.array(ids[:room], np.int32), np.array(weights[:room], np.float32)

    def _values(self) -> list[int]:
        make = (self._words.made_up, self._words.word, self._words.number)
        count = self._rng.choice((1, 2, 3, 5, 8, 12))
        values = [str(self._rng.choice(make)()) for _ in range(count)]
        separator = self._rng.choice((" ", ", ", "\n", '", "', "; "))
        return self._tokenizer.encode_text(separator.join(values) + separator)

    def _any_tokens(self) -> list[int]:
        return self._rng.choices(self._text, k=self._rng.randint(2, 24))


class _Prose:
    """Documents of one source in random order, cut into pieces. Mutates itself."""

    def __init__(self, tokenizer: Tokenizer, documents: list[str], seed: str):
        self._tokenizer = tokenizer
        self._documents = _forever(documents, random.Random(seed))
        self._rest: list[int] = []

    def take(self, room: int) -> list[int]:
        """A begin token and up to `room - 1` tokens of one document, its end token included."""
        if not self._rest:
            text = next(self._documents)
            self._rest = [*self._tokenizer.encode_text(text), self._tokenizer.eos_id]
        piece, self._rest = self._rest[: room - 1], self._rest[room - 1 :]
        return [self._tokenizer.bos_id, *piece]


def _forever(documents: list[str], rng: random.Random) -> Iterator[str]:
    while True:
        rng.shuffle(documents)
        yield from documents
