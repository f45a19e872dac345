"""The small JSON texts that events of every protocol are made of.

Decides how strings, 32-bit floats and log probabilities are spelled inside an event. Never knows
which event they go into. In: Python values. Out: JSON text.
"""

from __future__ import annotations

import json.encoder
import math
import struct
from collections.abc import Callable, Iterable

from ds_jax.recipe import json_text
from ds_jax.recipe.deltas import TokenLogprob

quote: Callable[[str], str] = json.encoder.encode_basestring
"""A JSON string: quotes, backslashes and control characters escaped, everything else as it is."""

_FLOAT32 = struct.Struct("f")


def float32(number: float) -> str:
    """Shortest digits that name the nearest 32-bit float; NaN and infinities are `null`.

    Decimal exponents -6 to 12 are written out (`0.000001`), others as `1.5e-7` and `1e+13`.
    """
    (number,) = _FLOAT32.unpack(_FLOAT32.pack(number))
    if not math.isfinite(number):
        return "null"
    if number == 0:
        return "-0.0" if math.copysign(1, number) < 0 else "0.0"
    sign = "-" if number < 0 else ""
    digits, exponent = _shortest(abs(number))
    if not -6 <= exponent <= 12:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    return f"{sign}{whole}.{digits[exponent + 1 :] or '0'}"


def _shortest(number: float) -> tuple[str, int]:
    """Digits without trailing zeros and the decimal exponent of the first of them."""
    # Six digits always survive in a normal float, so fewer need not be tried.
    first = 5 if number > 1.2e-38 else 0
    # A power of two has more room above than below: there the nearest decimal may be one too far.
    above = (number * (1 + 2**-24),) if math.frexp(number)[0] == 0.5 else ()
    for places in range(first, 9):
        for near in (number, *above):
            text = f"{near:.{places}e}"
            if _FLOAT32.unpack(_FLOAT32.pack(float(text)))[0] == number:
                mantissa, exponent = text.split("e")
                return mantissa.replace(".", "").rstrip("0"), int(exponent)
    raise AssertionError(f"nine digits name every 32-bit float, but not {number!r}")


def respelled(text: str) -> str | None:
    """JSON written anew: numbers in their usual form, of equal keys the last; None: no JSON."""
    try:
        return json_text.dumps_compact(json_text.loads(text))
    except ValueError:
        return None


def logprobs(entries: Iterable[TokenLogprob]) -> str:
    """A JSON array of tokens with their alternatives."""
    return f"[{','.join(map(_logprob, entries))}]"


def _logprob(entry: TokenLogprob) -> str:
    top = ",".join([f"{{{_token(token)}}}" for token in entry.top_logprobs])
    return f'{{{_token(entry)},"top_logprobs":[{top}]}}'


def _token(entry: TokenLogprob) -> str:
    number = ",".join(map(str, entry.bytes))
    return f'"token":{quote(entry.token)},"logprob":{float32(entry.logprob)},"bytes":[{number}]'
