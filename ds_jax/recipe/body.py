"""A request body as a JSON value.

Decides what counts as a body: strict JSON as text or UTF-8 bytes, or Python values. Never looks at
what the value means. In: bytes, str, or Python values. Out: None, bool, int, float, str, list and
dict only, in fresh containers; keys keep their order, and a repeated key keeps its first place and
its last value.

Reading is `json_text`; when that refuses a text, `json_errors` reads it again and says where.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ds_jax.recipe import json_errors, json_text
from ds_jax.recipe.decode import DecodeError, Reader

T = TypeVar("T")


class BodyError(ValueError):
    """A body that is no JSON, or a field that is missing or has another type.

    Attributes:
      path: where in the body the value is, such as `messages.3.content[1].text`; empty if the body
        as a whole is wrong.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.path = path


class Parsed:
    """What `read_body` has read, so that it is not read or copied again.

    Args:
      value: belongs to the reader from now on.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def read_typed(value: Any, reader: Reader[T]) -> T:
    """What `reader` reads from the JSON value of a body.

    Raises:
      BodyError: the value has another shape (`invalid request body: …`).
    """
    try:
        return reader(value)
    except DecodeError as error:
        raise BodyError(f"invalid request body: {error}", _spelled(error.path)) from None


def _spelled(path: tuple[str | int, ...]) -> str:
    """A path with a dot before keys and before the first index, later indices in brackets."""
    spelled = ""
    for place, step in enumerate(path):
        if isinstance(step, int) and place > 1:
            spelled += f"[{step}]"
        else:
            spelled += f".{step}" if spelled else f"{step}"
    return spelled


def read_body(body: object) -> Any:
    """The JSON value of a request body.

    Args:
      body: JSON text as bytes or str, or Python values (dict, list, tuple, str, bool, int, float,
        None, nested); or `Parsed`.

    Returns:
      A value in fresh containers.

    Raises:
      BodyError: text that is not JSON (`invalid JSON request: … at line L column C`).
      ValueError: a number that is not finite, or a container that holds itself.
      UnicodeEncodeError: a str with a lone surrogate.
      TypeError: a Python value or key that JSON does not have.
      OverflowError: a Python integer outside 64 bits.
      RecursionError: Python values nested deeper than 128 levels.
    """
    if type(body) is Parsed:
        return body.value
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
    raise BodyError(f"invalid JSON request: {json_errors.first_error(data)}")


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
