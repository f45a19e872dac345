"""The error family of ds_jax.

Decides which mistakes are whose. Never formats HTTP bodies. In: nothing. Out: exception classes.

| class | raised | meaning |
|---|---|---|
| `ConfigError` | at start-up, before device work | config, checkpoint, mesh or platform unusable |
| `RequestError` | before the engine runs the request | one request is invalid; the rest goes on |
| `StepError` | while sequences run | the sequences of one step ended; the rest goes on |

Every message says what was given, what is allowed, and what to do.
"""

from __future__ import annotations


class DsJaxError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(DsJaxError):
    """A configuration, checkpoint, mesh or platform that cannot work; raised before device work."""


class CheckpointError(ConfigError):
    """A checkpoint that cannot be read; lists every offending tensor or file."""


class RequestError(DsJaxError):
    """One invalid request.

    Args:
      message: what was given, what is allowed, what to do.
      status: HTTP status the service answers with.
      param: the request field at fault, or None.
      code: machine-readable cause.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str = "invalid_request_error",
    ):
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


class StepError(DsJaxError):
    """A step of the device that failed, or failed for one sequence; ends only those it touched."""
