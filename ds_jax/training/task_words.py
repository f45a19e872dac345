"""Words and numbers that fill the task templates.

Decides which values belong to training and which only to the held-out split: a stable hash of the
value itself, so a held-out value never occurs in training. Never builds a sentence. In: a seeded
random source, a split and, for training, more English words. Out: words, phrases, numbers.
"""

from __future__ import annotations

import collections
import hashlib
import random
import re
from collections.abc import Iterable

SPLITS = ("train", "heldout")
HELDOUT_SHARE = 10  # one value in ten
_MORE_SHARE = 0.6  # of English words and of known keys

_COMMON = """
apple river stone window garden market bridge paper silver winter summer train station coffee
letter kitchen yellow orange purple mountain forest island harbor castle village doctor teacher
painter sailor farmer baker singer dancer writer reader lamp table chair basket bottle button
candle carpet mirror pillow blanket ladder hammer needle pencil pocket ribbon rocket saddle shovel
spoon ticket towel tunnel violin wagon whistle bread butter cheese honey lemon melon onion pepper
potato salad tomato sugar pasta carrot cherry peach grape berry walnut olive ginger garlic cloud
storm thunder rain snow wind desert meadow valley canyon ocean beach coral shell whale dolphin
tiger lion rabbit turtle parrot eagle falcon sparrow pigeon spider beetle monkey camel donkey goat
horse sheep chicken engine motor pedal wheel anchor rudder signal camera radio piano guitar drum
trumpet flute opera novel poem story puzzle riddle secret journey meeting lunch dinner breakfast
birthday wedding holiday festival concert exam lesson project report budget invoice contract
morning evening midnight noon early late soon again today quiet bright gentle clever brave happy
lucky simple modern ancient famous hidden broken frozen golden wooden call bring open close start
stop check clean wash cook plant paint write read send find keep move carry build repair water
"""
_KEYS = """
name age city color count price title size weight author year level score owner team street
country animal food drink tool friend room speed height width amount brand model shape metal
planet number place product customer status total stock width length depth job sport song hobby
"""
_HELDOUT_KEYS = "rating author_id mileage capital nickname quantity material genre"
_ONSETS = "b br c ch d dr f fl g gr h j k kl l m n p pr qu r s sh st t th tr v w y z"
_VOWELS = "a e i o u ai ea ia io oo"
_CODAS = ("", "", "", "", "l", "n", "r", "s", "t", "m", "ck", "nd", "rk")
LANGUAGES = (
    "French", "German", "Spanish", "Italian", "Polish", "Turkish", "Greek", "Danish", "Czech",
    "Dutch",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def is_heldout(value: str) -> bool:
    """Whether a value belongs to the held-out split."""
    return hashlib.blake2b(value.lower().encode(), digest_size=4).digest()[0] % HELDOUT_SHARE == 0


def vocabulary(documents: Iterable[str], least: int = 5) -> tuple[str, ...]:
    """Lower-case words of 3 to 12 letters that documents hold at least `least` times, sorted."""
    counts = collections.Counter(
        word for text in documents for word in re.findall(r"\b[a-z]{3,12}\b", text)
    )
    return tuple(sorted(word for word, count in counts.items() if count >= least))


class Words:
    """Draws values of one split from a seeded random source. Mutates the random source.

    Args:
      rng: the source.
      split: "train" or "heldout".
      more: English words to mix in, so that a model meets most tokens as a value to copy; those
        of the other split are left out.
    """

    def __init__(self, rng: random.Random, split: str, more: Iterable[str] = ()):
        if split not in SPLITS:
            raise ValueError(f'split "{split}" does not exist; use "train" or "heldout"')
        self._rng = rng
        self._heldout = split == "heldout"
        self._common = [word for word in _COMMON.split() if is_heldout(word) == self._heldout]
        self._more = [word for word in more if is_heldout(word) == self._heldout]
        self._keys = (_HELDOUT_KEYS if self._heldout else _KEYS).split()
        self._onsets, self._vowels = _ONSETS.split(), _VOWELS.split()

    def made_up(self) -> str:
        """A pronounceable word nobody knows, lower case, two or three syllables."""
        while True:
            word = "".join(
                self._rng.choice(self._onsets)
                + self._rng.choice(self._vowels)
                + self._rng.choice(_CODAS)
                for _ in range(self._rng.choice((2, 2, 3)))
            )
            if 4 <= len(word) <= 9 and is_heldout(word) == self._heldout:
                return word

    def common(self) -> str:
        """An English word, lower case."""
        mixed = self._more and self._rng.random() < _MORE_SHARE
        return self._rng.choice(self._more if mixed else self._common)

    def word(self) -> str:
        """An English or a made-up word, lower case."""
        return self.common() if self._rng.random() < 0.6 else self.made_up()

    def name(self) -> str:
        """A made-up proper name."""
        return self.made_up().capitalize()

    def phrase(self, low: int = 2, high: int = 4) -> str:
        """A few words."""
        return " ".join(self.word() for _ in range(self._rng.randint(low, high)))

    def distinct(self, count: int) -> list[str]:
        """Different words."""
        words: dict[str, None] = {}
        while len(words) < count:
            words[self.word()] = None
        return list(words)

    def keys(self, count: int) -> list[str]:
        """Different names of JSON fields."""
        keys: dict[str, None] = {}
        while len(keys) < count:
            known = self._rng.random() < 0.75
            if known and self._more and self._rng.random() < _MORE_SHARE:
                keys[self._rng.choice(self._more)] = None
            else:
                keys[self._rng.choice(self._keys) if known else self.made_up()] = None
        return list(keys)

    def number(self, high: int = 999) -> int:
        """A positive integer of this split; small numbers have the same chance as large ones."""
        while True:
            number = self._rng.randint(1, 10 ** self._rng.randint(1, len(str(high))))
            if number <= high and is_heldout(f"number {number}") == self._heldout:
                return number

    def pair(self) -> tuple[int, int]:
        """Two numbers up to 99; the unordered pair belongs to this split."""
        while True:
            first, second = self._rng.randint(0, 99), self._rng.randint(0, 99)
            if is_heldout(f"pair {min(first, second)} {max(first, second)}") == self._heldout:
                return first, second
