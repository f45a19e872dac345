"""What the requests of the three protocols have in common.

Decides how a body is typed and how converting it uses it up. Never converts. In: the JSON value of
a body and the reader of its protocol. Out: the base class of the requests.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from ds_jax.recipe import arguments
from ds_jax.recipe.body import read_typed
from ds_jax.recipe.decode import Reader
from ds_jax.recipe.options import ConversionOptions


class HasModel(Protocol):
    """A body that names a model."""

    @property
    def model(self) -> str:
        """The requested model name."""
        ...


B = TypeVar("B", bound=HasModel)


class ProtocolRequest(Generic[B]):
    """A request of one protocol; converting it uses it up, even if that fails.

    Args:
      value: the JSON value of a body.
      read: reads the protocol's shape.

    Raises:
      ValueError: the value has another shape (`invalid request body: ...`); its `path` says where.
    """

    __slots__ = ("_body",)

    def __init__(self, value: Any, read: Reader[B]) -> None:
        self._body: B | None = read_typed(value, read)

    @property
    def model(self) -> str:
        """The requested model name.

        Raises:
          RuntimeError: the request was converted already.
        """
        return self._unused().model

    def _unused(self) -> B:
        if self._body is None:
            raise RuntimeError("protocol request has been consumed")
        return self._body

    def _taken(self, options: ConversionOptions) -> B:
        """The body, once; not if the options are none. Mutates itself."""
        arguments.record("options", options, ConversionOptions)
        body = self._unused()
        self._body = None
        return body
