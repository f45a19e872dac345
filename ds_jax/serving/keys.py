"""API keys: who calls.

Decides whether a key is known and what its owner may do. A key is never kept: the file and the
memory hold its SHA-256 (keys are 256 random bits, so a slow hash would gain nothing). Never decides
how much an owner may use. In: a TOML file, the key of a request. Out: a `Principal`.

    [[keys]]
    name = "alice"
    sha256 = "9f86d0..."
    priority = "normal"              # high, normal or low
    requests_per_minute = 600        # left out: no limit
    uncached_tokens_per_minute = 200000
    max_concurrent = 32
    weight = 1.0                     # share among waiting keys
    tenant = "team-a"                # keys of one tenant share cached prefixes; default: the name
    admin = false
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import logging
import os
import pathlib
import secrets
import tomllib
from typing import Any, cast

from ds_jax.errors import ConfigError

PRIORITIES = {"high": 1, "normal": 0, "low": -1}
_LOG = logging.getLogger("ds_jax.serving")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Owner of a key.

    Attributes:
      name: in logs.
      priority: 1 high, 0 normal, -1 low.
      requests_per_minute, uncached_tokens_per_minute: quotas; None: none.
      max_concurrent: requests at once, waiting ones included; None: no limit.
      weight: share of the engine among the keys that wait.
      tenant: cached prefixes and stored responses are shared inside it.
      admin: whether admin endpoints are open to it.
    """

    name: str
    priority: int = 0
    requests_per_minute: float | None = None
    uncached_tokens_per_minute: float | None = None
    max_concurrent: int | None = None
    weight: float = 1.0
    tenant: str = ""
    admin: bool = False


ANYONE = Principal(name="anyone")
"""Who calls a server without keys."""


class KeyRing:
    """Keys of a file, read again when the file changes. `refresh` mutates it.

    Args:
      path: TOML; None: every key is `ANYONE`'s, and nobody is an admin.

    Raises: ConfigError: the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str] | None):
        self._path = None if path is None else pathlib.Path(path)
        self._by_digest: dict[bytes, Principal] = {}
        self._stamp: tuple[int, int, int] | None = None
        if self._path is not None:
            self._stamp = self._look(self._path)
            self._by_digest = load(self._path)

    @property
    def is_open(self) -> bool:
        """No keys are configured."""
        return self._path is None

    def find(self, key: str | None) -> Principal | None:
        """Who owns a key; None: nobody. Takes as long for a wrong key as for a right one."""
        if self._path is None:
            return ANYONE
        if key is None:
            return None
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
        found = None
        for known, principal in self._by_digest.items():
            if hmac.compare_digest(known, digest):
                found = principal
        return found

    def refresh(self) -> bool:
        """Reads the file if it has changed; a broken one is reported and the old keys stay."""
        if self._path is None:
            return False
        try:
            stamp = self._look(self._path)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self._by_digest = load(self._path)
        except ConfigError as error:
            _LOG.error("keys are not read again: %s", error)
            return False
        return True

    @staticmethod
    def _look(path: pathlib.Path) -> tuple[int, int, int]:
        try:
            found = path.stat()
        except OSError as error:
            raise ConfigError(f"{path}: cannot read the keys ({error.strerror})") from None
        return found.st_mtime_ns, found.st_size, found.st_ino


def load(path: pathlib.Path) -> dict[bytes, Principal]:
    """Digest of each key in a file, and whose it is.

    Raises: ConfigError naming the entry.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot read the keys ({error})") from None
    entries = table.pop("keys", None)
    if table or not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: expected one or more [[keys]] and nothing else")
    found: dict[bytes, Principal] = {}
    names: set[str] = set()
    for number, entry in enumerate(cast("list[Any]", entries), 1):
        digest, principal = _entry(entry, f"{path}: keys entry {number}")
        if digest in found or principal.name in names:
            raise ConfigError(f"{path}: keys entry {number}: name or sha256 is there twice")
        found[digest] = principal
        names.add(principal.name)
    return found


def make(name: str) -> tuple[str, str]:
    """A new key, and the entry of the file that stands for it."""
    key = f"sk-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    return key, f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\n'


def _entry(entry: Any, where: str) -> tuple[bytes, Principal]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: expected a table")
    values = dict(cast("dict[str, Any]", entry))
    name, digest = values.pop("name", None), values.pop("sha256", None)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}: name is missing")
    try:
        data = bytes.fromhex(digest)
    except (TypeError, ValueError):
        data = b""
    if len(data) != 32:
        raise ConfigError(
            f"{where} ({name}): sha256 must be the 64 hexadecimal digits of the key's SHA-256; "
            "python -m ds_jax.serving --new_key=NAME makes an entry"
        )
    priority = values.pop("priority", "normal")
    if priority not in PRIORITIES:
        raise ConfigError(f"{where} ({name}): priority={priority!r}: use high, normal or low")
    values.setdefault("tenant", name)
    try:
        principal = Principal(name=name, priority=PRIORITIES[priority], **values)
    except TypeError:
        known = {field.name for field in dataclasses.fields(Principal)}
        wrong = ", ".join(sorted(set(values) - known))
        raise ConfigError(f"{where} ({name}): unknown {wrong}") from None
    for field in ("requests_per_minute", "uncached_tokens_per_minute", "max_concurrent", "weight"):
        value: Any = getattr(principal, field)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ConfigError(f"{where} ({name}): {field}={value!r}: must be a number above 0")
    if not isinstance(cast("Any", principal.tenant), str):
        raise ConfigError(f"{where} ({name}): tenant must be a string")
    if not isinstance(cast("Any", principal.admin), bool):
        raise ConfigError(f"{where} ({name}): admin must be true or false")
    return data, principal
