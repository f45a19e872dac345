"""What an operator can set about the service.

Decides names, defaults and which values make sense. Never reads flags or files. In: values. Out:
`Settings`, or a `ConfigError` that names the field.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress

from ds_jax.errors import ConfigError

HELP = {
    "host": "Address to listen on; without --keys_file only loopback.",
    "port": "Port to listen on; 0: any.",
    "keys_file": "TOML file of API keys, read again when it changes; none: any key is accepted.",
    "models": "Names under which the model is served; the first is the main one.",
    "max_body_bytes": "Largest request body.",
    "body_timeout_s": "Time a client has to send its body.",
    "header_timeout_s": "Time a client has to send the head of a request.",
    "idle_timeout_s": "How long a connection stays open between requests.",
    "max_connections": "Open connections; more are answered 503 and closed.",
    "max_running": "Sequences in the engine at once; none: a little more than it has slots.",
    "max_waiting": "Requests that wait for the engine; more are answered 429.",
    "max_wait_s": "Longest wait; a longer one, also a foreseen one, is answered 429.",
    "max_choices": "Largest n.",
    "keep_alive_s": "Silence after which a stream gets a comment.",
    "slow_reader_s": "How long a client may leave a stream unread before it is cut off.",
    "max_backlog": "Events of a sequence that may wait for a slow client.",
    "drain_timeout_s": "How long requests under way may still run after SIGTERM.",
    "drain_notice_s": "How long the socket stays open at least while /ready says 503.",
    "store_path": "SQLite file of stored responses; none: memory.",
    "store_ttl_s": "How long a response is kept.",
    "max_stored": "Responses kept at most; the oldest go.",
    "thinking": "Whether the model thinks when a request says nothing about it.",
    "log_prompts": "Write request bodies into the log.",
    "page": "Serve the playground at /.",
    "otlp_endpoint": "URL that takes spans of requests (OTLP over HTTP); none: no spans.",
}
"""What each setting means; times in seconds, sizes in bytes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one server; `HELP` says what each means."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys_file: str | None = None
    models: tuple[str, ...] = ("tiny", "DeepSeek-V4.1-Flash")
    max_body_bytes: int = 16 * 2**20
    body_timeout_s: float = 30.0
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    max_connections: int = 4096
    max_running: int | None = None
    max_waiting: int = 512
    max_wait_s: float = 600.0
    max_choices: int = 16
    keep_alive_s: float = 10.0
    slow_reader_s: float = 30.0
    max_backlog: int = 8192
    drain_timeout_s: float = 60.0
    drain_notice_s: float = 0.0
    store_path: str | None = None
    store_ttl_s: float = 30 * 86400.0
    max_stored: int = 100_000
    thinking: bool = True
    log_prompts: bool = False
    page: bool = True
    otlp_endpoint: str | None = None

    def __post_init__(self) -> None:
        if not self.models or not all(self.models):
            raise ConfigError("models=(): give at least one name under which the model is served")
        for name in ("max_body_bytes", "max_connections", "max_waiting", "max_choices"):
            _at_least(name, getattr(self, name), 1)
        _at_least("max_backlog", self.max_backlog, 16)
        _at_least("max_stored", self.max_stored, 1)
        if self.max_running is not None:
            _at_least("max_running", self.max_running, 1)
        if self.max_choices > 255:
            raise ConfigError(f"max_choices={self.max_choices}: must be at most 255")
        for name in (
            *("body_timeout_s", "header_timeout_s", "idle_timeout_s", "max_wait_s"),
            *("keep_alive_s", "slow_reader_s", "store_ttl_s"),
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be above 0 seconds")
        for name in ("drain_timeout_s", "drain_notice_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name}={getattr(self, name)}: must be 0 seconds or more")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port={self.port}: must be from 0 (any) to 65535")
        if self.keys_file is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host={self.host}: without API keys the service listens on loopback only; "
                "give --keys_file (python -m ds_jax.serving --new_key=NAME makes a key), or "
                "--host=127.0.0.1"
            )


@functools.lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address or host name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"{name}={value}: must be a whole number from {low}")
