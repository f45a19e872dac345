"""Facts about the rules of a grammar.

Decides which parts can produce a text, which can be empty, which are regular and how large those
are. Never translates. In: rules. Out: pruned rules, sets and numbers.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator

from ds_jax.structured import expression as ex

Rules = dict[str, ex.Expression]
_DEEPEST = 64


def names(value: ex.Expression) -> Iterator[str]:
    """Every rule that is named inside."""
    stack = [value]
    while stack:
        each = stack.pop()
        match each:
            case ex.Name():
                yield each.name
            case ex.Sequence() | ex.Choice():
                stack.extend(each.parts)
            case ex.Repeat():
                stack.append(each.part)
            case ex.Characters():
                pass


def least(rules: Rules, holds: Callable[[ex.Expression, set[str]], bool]) -> list[str]:
    """The smallest set of rules of which `holds(body, set)` is true, each behind those it needs."""
    users: dict[str, list[str]] = collections.defaultdict(list)
    for name, body in rules.items():
        for used in set(names(body)):
            users[used].append(name)
    found: dict[str, None] = {}
    known: set[str] = set()
    waiting = collections.deque(rules)
    queued = set(rules)
    while waiting:
        name = waiting.popleft()
        queued.discard(name)
        if name not in known and holds(rules[name], known):
            known.add(name)
            found[name] = None
            fresh = [user for user in users[name] if user not in known and user not in queued]
            waiting.extend(fresh)
            queued.update(fresh)
    return list(found)


def productive(rules: Rules) -> Rules:
    """The rules without alternatives that never come to an end, so no output can walk into one."""
    alive = set(least(rules, _ends))
    return {name: _pruned(body, alive) for name, body in rules.items() if name in alive}


def _ends(value: ex.Expression, alive: set[str]) -> bool:
    return _matches(value, alive, characters=True)


def _matches(value: ex.Expression, known: set[str], *, characters: bool) -> bool:
    """Whether some text matches, given the rules for which that is known and whether a character
    counts as such a text.
    """
    match value:
        case ex.Characters():
            return characters
        case ex.Name():
            return value.name in known
        case ex.Sequence():
            return all(_matches(each, known, characters=characters) for each in value.parts)
        case ex.Choice():
            return any(_matches(each, known, characters=characters) for each in value.parts)
        case ex.Repeat():
            return value.low == 0 or _matches(value.part, known, characters=characters)


def _pruned(value: ex.Expression, alive: set[str]) -> ex.Expression:
    match value:
        case ex.Sequence():
            return ex.sequence(_pruned(each, alive) for each in value.parts)
        case ex.Choice():
            return ex.choice(_pruned(each, alive) for each in value.parts if _ends(each, alive))
        case ex.Repeat():
            if not _ends(value.part, alive):
                return ex.EMPTY
            return ex.repeat(_pruned(value.part, alive), value.low, value.high)
        case ex.Characters() | ex.Name():
            return value


def reachable(rules: Rules, root: str) -> Rules:
    """The rules in use."""
    found: Rules = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = rules[name]
            waiting.extend(names(rules[name]))
    return found


def nullable(rules: Rules) -> set[str]:
    """Rules that match the empty text."""
    return set(least(rules, is_nullable))


def is_nullable(value: ex.Expression, empty: set[str]) -> bool:
    """Whether the empty text matches, given the rules that it matches."""
    return _matches(value, empty, characters=False)


def expanded(rules: Rules, most: int) -> Rules:
    """Rules without recursion, all names in them replaced; large ones are left out.

    Sizes are counted before anything is built, so doubling rules do not grow.

    Args:
      rules: every rule.
      most: characters of an expanded rule, repeats written out.
    """
    done: Rules = {}
    depths: dict[str, int] = {}
    sizes: dict[str, int] = {}
    order = least(rules, lambda body, known: all(name in known for name in names(body)))
    for name in order:
        sizes[name] = size(rules[name], sizes, most)
        depths[name] = _depth(rules[name], depths)
        if sizes[name] <= most and depths[name] <= _DEEPEST and _known(rules[name], done):
            done[name] = inlined(rules[name], done)
    return done


def _known(value: ex.Expression, done: Rules) -> bool:
    return all(name in done for name in names(value))


def size(value: ex.Expression, sizes: dict[str, int], most: int) -> int:
    """Characters when names are replaced and repeats written out; above `most`: `most` + 1."""
    match value:
        case ex.Characters():
            return 1
        case ex.Name():
            return sizes.get(value.name, most + 1)
        case ex.Repeat():
            times = value.low if value.high is None else value.high
            return min(size(value.part, sizes, most) * max(times, 1), most + 1)
        case ex.Sequence() | ex.Choice():
            count = 0
            for each in value.parts:
                count += size(each, sizes, most)
                if count > most:
                    return most + 1
            return count


def _depth(value: ex.Expression, depths: dict[str, int]) -> int:
    match value:
        case ex.Characters():
            return 0
        case ex.Name():
            return depths[value.name]
        case ex.Repeat():
            return min(1 + _depth(value.part, depths), _DEEPEST + 1)
        case ex.Sequence() | ex.Choice():
            inner = max((_depth(each, depths) for each in value.parts), default=0)
            return min(1 + inner, _DEEPEST + 1)


def inlined(value: ex.Expression, done: Rules) -> ex.Expression:
    """The expression with the names of expanded rules replaced."""
    match value:
        case ex.Name():
            return done.get(value.name, value)
        case ex.Sequence():
            return ex.sequence(inlined(each, done) for each in value.parts)
        case ex.Choice():
            return ex.choice(inlined(each, done) for each in value.parts)
        case ex.Repeat():
            return ex.repeat(inlined(value.part, done), value.low, value.high)
        case ex.Characters():
            return value
