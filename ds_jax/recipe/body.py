"""A request body as a JSON value.

Decides what counts as a body: strict JSON as text or UTF-8 bytes, or Python values. Never looks at
what the value means. In: bytes, str, or Python values. Out: None, bool, int, float, str, list and
dict only, in fresh containers; keys keep their order, and a repeated key keeps its first place and
its last value.

Reading is `json_text`; when that refuses a text, `json_errors` reads it again and says where.
"""

from __future__ import annotations

from typing import Any

from ds_jax.recipe import json_errors, json_text


def read_body(body: object) -> Any:
    """The JSON value of a request body.

    Args:
      body: JSON text as bytes or str, or Python values (dict, list, tuple, str, bool, int, float,
        None, nested).

    Returns:
      A value in fresh containers.

    Raises:
      ValueError: text that is not JSON (`invalid JSON request: … at line L column C`), a number
        that is not finite, or a container that holds itself.
      UnicodeEncodeError: a str with a lone surrogate.
      TypeError: a Python value or key that JSON does not have.
      OverflowError: a Python integer outside 64 bits.
      RecursionError: Python values nested deeper than 128 levels.
    """
    if isinstance(body, str):
        data = body if body.isascii() else body.encode("utf-8")
        text = body
    elif isinstance(body, bytes):
        data = body
        text = _decoded(body)
    else:
        return json_text.copy(body)
    try:
        if text is not None:
            return json_text.loads(text)
    except ValueError:
        pass
    data = data.encode("ascii") if isinstance(data, str) else data
    raise ValueError(f"invalid JSON request: {json_errors.first_error(data)}")


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
