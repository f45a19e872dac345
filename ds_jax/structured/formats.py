"""Formats of strings as regular expressions.

Decides which strings a format takes; never more than the standard. Never compiles. In: nothing.
Out: expressions that the whole string matches.

| format | narrower than the standard in |
|---|---|
| `date` | year 0000 |
| `time`, `date-time` | no leap seconds (no expression knows their days), 18 digits of a second |
| `hostname` | at most 8 labels of 30 or 3 of 63 characters, no labels in Punycode (`xn--`) |
| `email` | no quotes in front, no IPv6 literals behind |
"""

from __future__ import annotations

_QUARTERS = "(0[48]|[2468][048]|[13579][26])"  # two digits, a multiple of 4 above 0
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    f"({_YEAR}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)"
    f"|(0[13578]|1[02])-31)|([0-9]{{2}}{_QUARTERS}|{_QUARTERS}00)-02-29)"
)
_HOUR = "([01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,18}})?([Zz]|[+\-]{_HOUR}:[0-5][0-9])"


def _label(most: int) -> str:
    """A label of a host name; not both of its third and fourth character are hyphens."""
    end, any_, some = "[A-Za-z0-9]", "[A-Za-z0-9\\-]", most - 5
    long = f"{end}{any_}({end}{any_}|-{end}){any_}{{0,{some}}}{end}"
    return f"({end}({any_}{{0,2}}{end})?|{long})"


_SHORT, _LONG = _label(30), _label(63)
_ATOM = r"[A-Za-z0-9!#$%&'*+=?^_`{|}~\-]{1,20}"
_GROUP = "[0-9a-fA-F]{1,4}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_QUAD = rf"(({_BYTE}\.){{3}}{_BYTE})"
_SHORTENED = "|".join(
    f"({_GROUP}(:{_GROUP}){{0,{left - 1}}})?::({_GROUP}(:{_GROUP}){{0,{6 - left}}})?"
    for left in range(1, 7)
)
_MIXED = "|".join(
    f"({_GROUP}(:{_GROUP}){{0,{left - 1}}})?::({_GROUP}:){{0,{5 - left}}}{_QUAD}"
    for left in range(1, 6)
)

PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": _QUAD,
    "ipv6": (
        f"(({_GROUP}:){{7}}({_GROUP}|:)|:(:{_GROUP}){{7}}|{_SHORTENED}"
        f"|({_GROUP}:){{6}}{_QUAD}|::({_GROUP}:){{5}}{_QUAD}|{_MIXED})"
    ),
    "hostname": rf"(({_SHORT}\.){{0,7}}{_SHORT}|{_LONG}(\.{_LONG}){{0,2}})",
    "email": rf"{_ATOM}(\.{_ATOM}){{0,2}}@{_LONG}(\.{_LONG}){{0,2}}",
}
"""Format to expression."""

OF_LIBRARY = frozenset({"duration", "email", "ipv4", "uuid", "uri"})
"""Formats of JSON strings that the library itself enforces exactly enough."""
