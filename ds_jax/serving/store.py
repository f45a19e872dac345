"""Responses that are kept in SQLite.

Decides how long they are kept, who may see them, and what goes when there are too many. Never reads
what is in them. In: response ids and JSON. Out: JSON.

A response belongs to a tenant; for every other one it does not exist.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable

from ds_jax.errors import ConfigError
from ds_jax.recipe.response_store import StoredResponse

_TABLE = """
CREATE TABLE IF NOT EXISTS responses (
  id TEXT NOT NULL, tenant TEXT NOT NULL, previous TEXT, items TEXT NOT NULL, body TEXT,
  created REAL NOT NULL, PRIMARY KEY (tenant, id)
) WITHOUT ROWID
"""
_INDEX = "CREATE INDEX IF NOT EXISTS by_age ON responses (created)"
SWEEP = 256  # responses put between two looks for old ones


class ResponseDatabase:
    """All tenants' responses; may be used from any thread. Methods mutate it.

    Args:
      path: the file; None: memory.
      ttl_s: seconds a response is kept.
      most: responses kept at most.
      clock: seconds since 1970.

    Raises: ConfigError: the file cannot be used.
    """

    def __init__(
        self,
        path: str | None,
        *,
        ttl_s: float,
        most: int,
        clock: Callable[[], float] = time.time,
    ):
        self._ttl_s, self._most, self._clock = ttl_s, most, clock
        self._lock = threading.Lock()
        self._puts = 0
        try:
            self._db = sqlite3.connect(path or ":memory:", check_same_thread=False)
            with self._db:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.execute(_TABLE)
                self._db.execute(_INDEX)
        except sqlite3.Error as error:
            raise ConfigError(f"{path}: cannot keep responses there ({error})") from None

    def of(self, tenant: str) -> TenantResponses:
        """What one tenant sees."""
        return TenantResponses(self, tenant)

    def get(self, tenant: str, response_id: str) -> tuple[str | None, str, str | None] | None:
        """(previous id, items as JSON, response as JSON), or None."""
        oldest = self._clock() - self._ttl_s
        with self._lock:
            return self._db.execute(
                "SELECT previous, items, body FROM responses"
                " WHERE tenant = ? AND id = ? AND created > ?",
                (tenant, response_id, oldest),
            ).fetchone()

    def put(self, tenant: str, response_id: str, previous: str | None, items: str) -> None:
        """Keeps a turn."""
        with self._lock, self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO responses (id, tenant, previous, items, created)"
                " VALUES (?, ?, ?, ?, ?)",
                (response_id, tenant, previous, items, self._clock()),
            )
            self._puts += 1
            if self._puts % SWEEP == 1:
                self._sweep()

    def finish(self, tenant: str, response_id: str, body: str) -> None:
        """Adds the response object to a turn that is kept."""
        with self._lock, self._db:
            self._db.execute(
                "UPDATE responses SET body = ? WHERE tenant = ? AND id = ?",
                (body, tenant, response_id),
            )

    def delete(self, tenant: str, response_id: str) -> bool:
        """Forgets a response; False: there was none."""
        with self._lock, self._db:
            return (
                self._db.execute(
                    "DELETE FROM responses WHERE tenant = ? AND id = ?", (tenant, response_id)
                ).rowcount
                > 0
            )

    def close(self) -> None:
        """Nothing can be read or kept afterwards."""
        with self._lock:
            self._db.close()

    def _sweep(self) -> None:
        self._db.execute("DELETE FROM responses WHERE created <= ?", (self._clock() - self._ttl_s,))
        self._db.execute(
            "DELETE FROM responses WHERE (tenant, id) IN (SELECT tenant, id FROM responses"
            " ORDER BY created DESC LIMIT -1 OFFSET ?)",
            (self._most,),
        )


class TenantResponses:
    """The store of one tenant, as the recipe wants it."""

    def __init__(self, database: ResponseDatabase, tenant: str):
        self._database = database
        self._tenant = tenant

    def get(self, response_id: str) -> StoredResponse | None:
        """The kept turn, or None."""
        found = self._database.get(self._tenant, response_id)
        return None if found is None else StoredResponse(found[0], tuple(json.loads(found[1])))

    def put(self, response_id: str, response: StoredResponse) -> None:
        """Keeps a turn."""
        items = json.dumps(response.items, ensure_ascii=False)
        self._database.put(self._tenant, response_id, response.previous_response_id, items)
