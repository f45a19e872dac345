"""Earlier turns that a Responses request refers to instead of repeating them.

Decides what `previous_response_id`, `store` and `encrypted_content` do when the options say that
they count. Never reads them otherwise. In: the raw body and the options. Out: `History`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

from ds_jax.recipe import decode, response_store, responses_input
from ds_jax.recipe.options import ConversionOptions, EncryptedContentBehavior
from ds_jax.recipe.request import invalid_request
from ds_jax.recipe.response_store import ResponseStore
from ds_jax.recipe.responses_declared import JsonObject
from ds_jax.recipe.responses_input import Item


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """What came before a request, and where it will be kept.

    Args:
      items: input items of the earlier turns.
      previous_response_id: the response that is continued; None: none.
      store: where the response will be kept; None: nowhere.
      own_items: the request's own items, to be kept with the response; empty without a store.
    """

    items: Sequence[Item] = ()
    previous_response_id: str | None = None
    store: ResponseStore | None = None
    own_items: tuple[JsonObject, ...] = ()


def read(raw: Any, options: ConversionOptions) -> History:
    """Looks up what a request refers to.

    Args:
      raw: the JSON value of the body.
      options: without a response store nothing is looked up.

    Raises:
      ConversionError: a value of the wrong type, or a response that is not in the store.
    """
    store = options.response_store
    if store is None or not isinstance(raw, dict):
        return History()
    fields = cast(JsonObject, raw)
    previous, keep = fields.get("previous_response_id"), fields.get("store")
    if not isinstance(previous, str | None):
        raise _wrong_type("previous_response_id", "a string")
    if not isinstance(keep, bool | None):
        raise _wrong_type("store", "a boolean")
    items = () if previous is None else _earlier(store, previous)
    if keep is False:
        return History(items, previous)
    return History(items, previous, store, _own_items(fields.get("input")))


def _earlier(store: ResponseStore, response_id: str) -> Sequence[Item]:
    values = response_store.earlier_items(store, response_id)
    if values is None:
        raise invalid_request(
            f"Previous response with id '{response_id}' not found. It was not stored or is no"
            " longer kept; send the whole conversation as 'input' instead."
        )
    try:
        return [responses_input.read_item(value) for value in values]
    except decode.DecodeError as error:
        raise invalid_request(
            f"Previous response with id '{response_id}' cannot be continued: {error}"
        ) from None


def _own_items(value: Any) -> tuple[JsonObject, ...]:
    if isinstance(value, str):
        return ({"type": "message", "role": "user", "content": value},)
    return tuple(cast("list[JsonObject]", value or ()))


def _wrong_type(field: str, expected: str) -> Exception:
    return invalid_request(f"Invalid type for '{field}': expected {expected}.")


def check_encrypted(raw: Any, options: ConversionOptions) -> None:
    """Refuses items whose content is there only in encrypted form, if the options say so.

    Nobody but the server that encrypted it can read it, so the model would miss it silently. An
    item that also holds the text is accepted.

    Args:
      raw: the JSON value of the body.
      options: by default nothing is refused.

    Raises:
      ConversionError: such an item.
    """
    if options.encrypted_content is EncryptedContentBehavior.Ignore or not isinstance(raw, dict):
        return
    items = cast(JsonObject, raw).get("input")
    for index, item in enumerate(
        cast("list[JsonObject]", items) if isinstance(items, list) else ()
    ):
        if item.get("encrypted_content") and not item.get("content"):
            raise invalid_request(
                f"input[{index}].encrypted_content: encrypted content cannot be read by this"
                " server; send the text in 'content' or leave the item out."
            )
