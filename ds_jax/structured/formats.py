"""Formats of strings as regular expressions.

Decides which strings a format takes; never more than the standard. Never compiles. In: nothing.
Out: expressions that the whole string matches.

| format | narrower than the standard in |
|---|---|
| `date` | year 0000 |
| `time`, `date-time` | no leap seconds, upper case letters, at most 9 digits of a second |
| `hostname` | at most 8 labels of 30 or 3 of 63 characters, no `--` |
| `email` | dotted words in front, no quotes; at most 3 labels behind |
| `ipv6` | no dotted quad at the end |
"""

from __future__ import annotations

_QUARTERS = "(0[48]|[2468][048]|[13579][26])"  # two digits, a multiple of 4 above 0
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    f"({_YEAR}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)"
    f"|(0[13578]|1[02])-31)|([0-9]{{2}}{_QUARTERS}|{_QUARTERS}00)-02-29)"
)
_HOUR = "([01][0-9]|2[0-3])"
_TIME = rf"{_HOUR}:[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+\-]{_HOUR}:[0-5][0-9])"
_SHORT = "([A-Za-z0-9]{1,30}|[A-Za-z0-9]{1,9}(-[A-Za-z0-9]{1,9}){1,2})"
_LONG = "([A-Za-z0-9]{1,63}|[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20}){1,2})"
_ATOM = r"[A-Za-z0-9!#$%&'*+=?^_`{|}~\-]{1,20}"
_GROUP = "[0-9a-fA-F]{1,4}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_SHORTENED = "|".join(
    f"({_GROUP}(:{_GROUP}){{0,{left - 1}}})?::({_GROUP}(:{_GROUP}){{0,{6 - left}}})?"
    for left in range(1, 7)
)

PATTERNS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": rf"({_BYTE}\.){{3}}{_BYTE}",
    "ipv6": f"(({_GROUP}:){{7}}{_GROUP}|{_SHORTENED})",
    "hostname": rf"(({_SHORT}\.){{0,7}}{_SHORT}|{_LONG}(\.{_LONG}){{0,2}})",
    "email": rf"{_ATOM}(\.{_ATOM}){{0,2}}@{_LONG}(\.{_LONG}){{0,2}}",
}
"""Format to expression."""

OF_LIBRARY = frozenset({"duration", "email", "ipv4", "ipv6", "uuid", "uri"})
"""Formats of JSON strings that the library itself enforces exactly enough."""
