"""Rules about JSON schemas of answers that the conversions share.

Decides which schemas are accepted and which one is enforced. Never checks an answer. In: a schema
as the request gives it. Out: the schema to enforce.
"""

from __future__ import annotations

from typing import Any

from ds_jax.recipe import schema_check, strict_schema
from ds_jax.recipe.request import invalid_request


def enforced_schema(schema: Any, strict: bool | None) -> Any:
    """The schema that constrained decoding takes; the prompt shows the given one.

    Args:
      schema: any JSON value.
      strict: whether it is to be brought into strict form; the strict subset has its own rules, so
        nothing else is checked then.

    Raises:
      ConversionError: it is no schema, or outside the strict subset.
    """
    if strict:
        try:
            return strict_schema.normalize(
                schema, prefix="Invalid json schema: ", top="json", may_be_empty=False
            )
        except strict_schema.StrictSchemaError as error:
            raise invalid_request(str(error)) from None
    error = schema_check.first_error(schema)
    if error is not None:
        raise invalid_request(f"Invalid json schema: {error}")
    return schema
