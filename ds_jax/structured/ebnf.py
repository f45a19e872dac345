"""A grammar in GBNF as one in the library's own language.

Decides how rules and lexemes are spelled there. Never changes the language. In: text. Out: text of
a Lark grammar, or a `RequestError` with the place.

A grammar without recursion becomes one regular expression, which is read exactly; else lexemes are
cut by `ebnf_lexemes`.
"""

from __future__ import annotations

from ds_jax.structured import ebnf_lexemes, ebnf_rules, gbnf
from ds_jax.structured import expression as ex
from ds_jax.structured.ebnf_lexemes import Lexeme, Unit
from ds_jax.structured.limits import Limits
from ds_jax.structured.refusal import refused

_LARGEST_REGEX = 10_000


def to_lark(text: str, limits: Limits) -> str:
    """The same grammar for the library.

    Raises:
      RequestError: not a grammar, too large, or no text can come out of it.
    """
    rules = ebnf_rules.productive(gbnf.parse(text, limits))
    if gbnf.ROOT not in rules:
        raise refused(
            gbnf.KIND,
            "no text comes out of the rule 'root': every way leads into a recursion without end; "
            "give one of its rules an alternative without recursion",
        )
    rules = ebnf_rules.reachable(rules, gbnf.ROOT)
    flat = ebnf_rules.expanded(rules, _LARGEST_REGEX).get(gbnf.ROOT)
    if flat is not None:
        return f"start: /{spelled(flat)}/\n" if flat != ex.EMPTY else 'start: ""\n'
    units = ebnf_lexemes.cut(rules)
    numbers = {name: number for number, name in enumerate(units)}
    lexemes: dict[ex.Expression, int] = {}
    lines = ["start: r0"]
    lines += [f"r{numbers[name]}: {_unit(unit, numbers, lexemes)}" for name, unit in units.items()]
    lines += [f"T{number}: /{spelled(value)}/" for value, number in lexemes.items()]
    return "\n".join(lines) + "\n"


def _unit(unit: Unit, numbers: dict[str, int], lexemes: dict[ex.Expression, int]) -> str:
    if isinstance(unit, Lexeme):
        return f"T{lexemes.setdefault(unit.expression, len(lexemes))}"
    if isinstance(unit, ex.Name):
        return f"r{numbers[unit.name]}"
    parts = [_unit(part, numbers, lexemes) for part in unit.parts]
    if unit.kind is ex.Repeat:
        return f"({parts[0]}){_times(unit.low, unit.high)}"
    if unit.kind is ex.Choice:
        return f"({' | '.join(parts)})"
    return " ".join(parts) if parts else '""'


def spelled(value: ex.Expression) -> str:
    """A regular expression of an expression without names."""
    match value:
        case ex.Characters():
            return _characters(value)
        case ex.Sequence():
            return "".join(spelled(part) for part in value.parts)
        case ex.Choice():
            return f"(?:{'|'.join(spelled(part) for part in value.parts)})"
        case ex.Repeat():
            return f"(?:{spelled(value.part)}){_times(value.low, value.high)}"
        case ex.Name():
            raise AssertionError("names are replaced before")


def _characters(value: ex.Characters) -> str:
    (low, high), *more = value.ranges
    if low == high and not more:
        return _character(low)
    pairs = (
        _character(low) if low == high else f"{_character(low)}-{_character(high)}"
        for low, high in value.ranges
    )
    return f"[{''.join(pairs)}]"


def _character(code: int) -> str:
    character = chr(code)
    plain = character.isascii() and character.isalnum()
    return character if plain else f"\\x{{{code:X}}}"


def _times(low: int, high: int | None) -> str:
    marks: dict[tuple[int, int | None], str] = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (low, high) in marks:
        return marks[low, high]
    return f"{{{low},{'' if high is None else high}}}"
