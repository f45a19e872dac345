"""Errors as each API spells them.

Decides status, type, code and headers of an error, and both forms of its body. Never decides what
is an error. In: an exception. Out: `Problem`, and its bytes.
"""

from __future__ import annotations

import json
import math
from typing import Any, Literal

from ds_jax.errors import RequestError
from ds_jax.recipe.body import BodyError
from ds_jax.recipe.request import ConversionError

Api = Literal["openai", "anthropic"]

_OPENAI_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_ANTHROPIC_TYPES = {
    **_OPENAI_TYPES,
    405: "invalid_request_error",
    408: "invalid_request_error",
    500: "api_error",
}


class Problem(Exception):
    """An answer that is an error.

    Args:
      status: HTTP status.
      message: what was given, what is allowed, what to do.
      code: machine-readable cause; None: the type.
      param: field of the request at fault.
      retry_after_s: when another attempt has a chance; None: it is not said.
      headers: further headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ):
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self._headers = headers

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that belong to the error."""
        found = list(self._headers)
        if self.retry_after_s is not None:
            milliseconds = max(1, math.ceil(self.retry_after_s * 1e3))
            found.append((b"retry-after", b"%d" % max(1, math.ceil(self.retry_after_s))))
            found.append((b"retry-after-ms", b"%d" % milliseconds))
        return found

    def body(self, api: Api, request_id: str) -> bytes:
        """The error object of an API, as JSON."""
        if api == "anthropic":
            kind = _ANTHROPIC_TYPES.get(self.status, "api_error")
            return _dump(
                {
                    "type": "error",
                    "error": {"type": kind, "message": self.message},
                    "request_id": request_id,
                }
            )
        kind = _OPENAI_TYPES.get(self.status, "server_error")
        error = {
            "message": self.message,
            "type": kind,
            "param": self.param,
            "code": self.code or kind,
        }
        return _dump({"error": error})


class ClientGone(Exception):
    """The client has closed its connection: nobody reads an answer."""


def of(error: Exception) -> Problem:
    """The answer to an exception; what nobody foresaw is a 500 that tells nothing."""
    match error:
        case Problem():
            return error
        case ConversionError():
            return Problem(error.status_code, str(error), code="invalid_request_error")
        case BodyError():
            return Problem(400, str(error), param=error.path or None, code="invalid_request_error")
        case RequestError():
            retry = 1.0 if error.status == 503 else None
            return Problem(
                error.status, str(error), code=error.code, param=error.param, retry_after_s=retry
            )
        case _:
            return Problem(500, "the server made a mistake; its log says which", code="internal")


def _dump(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
