"""Which parts of a grammar may be read as one lexeme.

Decides how a grammar is cut for a parser that reads the longest lexeme it can. Never changes the
language: a regular part becomes one lexeme only if, wherever a word of it ends, no lexeme that
could be read there instead goes on with a character that may also follow. In: rules. Out: units.

The library reads `[a-z]* "end"` wrongly (the class takes everything), and `[a-z]+` beside `"if ("`
wrongly if the class is read character by character. So parts are made as large as possible first;
those that would swallow too much are split into their own parts, until no conflict is left. A
lexeme of one character cannot conflict, hence this ends.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable
from typing import TypeAlias

from ds_jax.structured import ebnf_automaton, ebnf_rules
from ds_jax.structured import expression as ex
from ds_jax.structured.ebnf_automaton import Alphabet, Automaton
from ds_jax.structured.ebnf_rules import Rules

_LARGEST_LEXEME = 256
_PAIR_BUDGET = 20_000
_TOTAL_BUDGET = 400_000
_MOST_LEXEMES = 400


@dataclasses.dataclass(frozen=True, slots=True)
class Lexeme:
    """A regular expression without names that does not match the empty text."""

    expression: ex.Expression


Unit: TypeAlias = "Lexeme | Units | ex.Name"


@dataclasses.dataclass(frozen=True, slots=True)
class Units:
    """Units in a sequence or a choice, or one unit `low` to `high` times."""

    kind: type[ex.Sequence] | type[ex.Choice] | type[ex.Repeat]
    parts: tuple[Unit, ...]
    low: int = 1
    high: int | None = 1


def cut(rules: Rules) -> dict[str, Unit]:
    """The rules as units over lexemes.

    Args:
      rules: productive ones, all in use; `root` is the first.
    """
    cutter = _Cutter(rules)
    while True:
        units = cutter.units()
        conflicts = cutter.conflicts(units)
        if not conflicts:
            return units
        cutter.split |= conflicts


class _Cutter:
    """The lexemes that were split so far. Mutates itself."""

    def __init__(self, rules: Rules):
        self.split: set[ex.Expression] = set()
        self._rules = rules
        self._root = next(iter(rules))
        self._small = ebnf_rules.expanded(rules, _LARGEST_LEXEME)
        self._empty = ebnf_rules.nullable(rules)
        sets = (each for body in rules.values() for each in ebnf_automaton.character_sets(body))
        self._alphabet = Alphabet(sets)
        self._automata: dict[ex.Expression, Automaton] = {}
        self._extensions: dict[tuple[ex.Expression, ex.Expression], int | None] = {}
        self._spent = 0

    def units(self) -> dict[str, Unit]:
        """The rules that are named after cutting."""
        out: dict[str, Unit] = {}
        waiting = [self._root]
        while waiting:
            name = waiting.pop()
            if name not in out:
                out[name] = self._unit(self._rules[name])
                waiting.extend(_names(out[name]))
        return out

    def _unit(self, value: ex.Expression) -> Unit:
        whole = ebnf_rules.inlined(value, self._small)
        if self._is_lexeme(whole):
            return Lexeme(whole)
        match value:
            case ex.Characters():
                return Lexeme(value)
            case ex.Name():
                return value
            case ex.Sequence():
                return Units(ex.Sequence, tuple(self._runs(value.parts)))
            case ex.Choice():
                return Units(ex.Choice, tuple(self._unit(each) for each in value.parts))
            case ex.Repeat():
                if value.low == 0 and (value.high is None or value.high > 1):
                    inner = self._unit(ex.repeat(value.part, 1, value.high))
                    if isinstance(inner, Lexeme):
                        return Units(ex.Repeat, (inner,), 0, 1)
                return Units(ex.Repeat, (self._unit(value.part),), value.low, value.high)

    def _runs(self, parts: tuple[ex.Expression, ...]) -> list[Unit]:
        """A sequence, neighbouring regular parts as one lexeme where that is possible."""
        out: list[Unit] = []
        run: list[ex.Expression] = []
        length = 0
        for part in parts:
            whole = ebnf_rules.inlined(part, self._small)
            size = ebnf_rules.size(whole, {}, _LARGEST_LEXEME)
            if run and length + size > _LARGEST_LEXEME:
                out += self._run(run)
                run, length = [], 0
            if size > _LARGEST_LEXEME:
                out.append(self._unit(part))
            else:
                run.append(whole)
                length += size
        return out + self._run(run)

    def _run(self, parts: list[ex.Expression]) -> list[Unit]:
        whole = ex.sequence(parts)
        if len(parts) > 1 and self._is_lexeme(whole):
            return [Lexeme(whole)]
        return [self._unit(part) for part in parts]

    def _is_regular(self, value: ex.Expression) -> bool:
        """Names that are left have no size, so they are too large."""
        return ebnf_rules.size(value, {}, _LARGEST_LEXEME) <= _LARGEST_LEXEME

    def _is_lexeme(self, value: ex.Expression) -> bool:
        return (
            value not in self.split
            and self._is_regular(value)
            and not ebnf_rules.is_nullable(value, self._empty)
        )

    def conflicts(self, units: dict[str, Unit]) -> set[ex.Expression]:
        """Lexemes that would swallow what belongs to the next one."""
        found = {each for unit in units.values() for each in _lexemes(unit)}
        if len(found) > _MOST_LEXEMES:
            return {each for each in found if not isinstance(each, ex.Characters)}
        order = _Order(units, self._root)
        automata = [self._automaton(each) for each in order.lexemes]
        starts = [each.starts() for each in automata]
        order.join_same(starts)
        next_characters = [_union(starts, order.follow[each]) for each in range(len(automata))]
        found = set[ex.Expression]()
        for family in order.families():
            members = list(_bits(family))
            for one, two in itertools.product(members, members):
                long = order.lexemes[two]
                if isinstance(long, ex.Characters) or long in found:
                    continue
                if not starts[one] & starts[two]:
                    continue
                longer = self._extension(order.lexemes[one], long)
                if longer is None or longer & next_characters[one]:
                    found.add(long)
        return found

    def _automaton(self, value: ex.Expression) -> Automaton:
        if value not in self._automata:
            self._automata[value] = ebnf_automaton.automaton(value, self._alphabet)
        return self._automata[value]

    def _extension(self, one: ex.Expression, two: ex.Expression) -> int | None:
        if self._spent > _TOTAL_BUDGET:
            return None
        if (one, two) not in self._extensions:
            left, right = self._automaton(one), self._automaton(two)
            self._spent += len(left.labels) * len(right.labels)
            self._extensions[one, two] = ebnf_automaton.extensions(left, right, _PAIR_BUDGET)
        return self._extensions[one, two]


class _Order:
    """Which lexemes can follow which; sets of lexemes are integers. Mutates itself."""

    def __init__(self, units: dict[str, Unit], root: str):
        found = (each for unit in units.values() for each in _lexemes(unit))
        self.lexemes = list(dict.fromkeys(found))
        self._number = {each: number for number, each in enumerate(self.lexemes)}
        self._known: dict[str, tuple[bool, int, int]] = dict.fromkeys(units, (False, 0, 0))
        self.follow = [0] * len(self.lexemes)
        users: dict[str, list[str]] = collections.defaultdict(list)
        for name, unit in units.items():
            for used in set(_names(unit)):
                users[used].append(name)
        # Found from the root on: the last ones first, so that most names are known when used.
        waiting = collections.deque(reversed(units))
        queued = set(units)
        while waiting:
            name = waiting.popleft()
            queued.discard(name)
            known = self._add(units[name])
            if known != self._known[name]:
                self._known[name] = known
                fresh = [user for user in users[name] if user not in queued]
                waiting.extend(fresh)
                queued.update(fresh)
        self.follow = [0] * len(self.lexemes)
        for unit in units.values():
            self._add(unit)
        self._start = self._known[root][1]

    def _add(self, unit: Unit) -> tuple[bool, int, int]:
        """(matches the empty text, first lexemes, last lexemes) as far as known."""
        if isinstance(unit, Lexeme):
            bit = 1 << self._number[unit.expression]
            return False, bit, bit
        if isinstance(unit, ex.Name):
            return self._known[unit.name]
        if unit.kind is ex.Choice:
            known = [self._add(part) for part in unit.parts]
            empty = any(each[0] for each in known)
            return empty, _merge(each[1] for each in known), _merge(each[2] for each in known)
        if unit.kind is ex.Repeat:
            empty, first, last = self._add(unit.parts[0])
            if unit.high is None or unit.high > 1:
                self._link(last, first)
            return empty or unit.low == 0, first, last
        empty, first, last = True, 0, 0
        for part in unit.parts:
            one_empty, one_first, one_last = self._add(part)
            self._link(last, one_first)
            first |= one_first if empty else 0
            last = one_last | (last if one_empty else 0)
            empty = empty and one_empty
        return empty, first, last

    def _link(self, before: int, after: int) -> None:
        for number in _bits(before):
            self.follow[number] |= after

    def families(self) -> list[int]:
        """Sets of lexemes among which the reader may have to choose at one place."""
        return list({self._start, *self.follow} - {0})

    def join_same(self, starts: list[int]) -> None:
        """Lexemes that may read the same word leave open which of them was read, so what follows
        one of them competes with what follows the other."""
        grown = True
        while grown:
            grown = False
            for family in self.families():
                members = list(_bits(family))
                for one, two in itertools.combinations(members, 2):
                    both = self.follow[one] | self.follow[two]
                    if starts[one] & starts[two] and (
                        both != self.follow[one] or both != self.follow[two]
                    ):
                        self.follow[one] = self.follow[two] = both
                        grown = True


def _lexemes(unit: Unit) -> list[ex.Expression]:
    if isinstance(unit, Lexeme):
        return [unit.expression]
    if isinstance(unit, ex.Name):
        return []
    return [each for part in unit.parts for each in _lexemes(part)]


def _names(unit: Unit) -> list[str]:
    if isinstance(unit, Lexeme):
        return []
    if isinstance(unit, ex.Name):
        return [unit.name]
    return [each for part in unit.parts for each in _names(part)]


def _merge(sets: Iterable[int]) -> int:
    out = 0
    for each in sets:
        out |= each
    return out


def _union(values: list[int], members: int) -> int:
    return _merge(values[number] for number in _bits(members))


def _bits(members: int) -> list[int]:
    out: list[int] = []
    while members:
        lowest = members & -members
        out.append(lowest.bit_length() - 1)
        members ^= lowest
    return out
