"""The engine behind the service, and what happens when it fails.

Decides whether the replica is ready, and when a failed engine is replaced. Never touches a request.
In: an engine and a way to make another. Out: an engine that runs, or a `Problem` of status 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from ds_jax.records import GenerateRequest
from ds_jax.serving.backend import Backend, Stream
from ds_jax.serving.problems import Problem

LOOK_S = 0.1  # between two looks at the engine
FIRST_PAUSE_S = 0.2  # before a second attempt to restart; doubled each time
LONGEST_PAUSE_S = 30.0
_LOG = logging.getLogger("ds_jax.serving")


class Replica:
    """Methods mutate it.

    Args:
      engine: runs requests.
      restart: makes a new engine in place of one that has failed; it may take long.
    """

    def __init__(self, engine: Backend, restart: Callable[[], Backend]):
        self.engine = engine
        self.restarts = 0
        self.on_restart: Callable[[], None] = lambda: None
        self._restart = restart
        self._closed = False

    @property
    def failure(self) -> str | None:
        """Why nothing can be submitted now; None: it can."""
        return self.engine.failure

    def submit(self, request: GenerateRequest, seed: int | None) -> Stream:
        """Sends a request off.

        Raises: Problem: the engine is down. RequestError: the engine refuses.
        """
        if self.engine.failure is not None:
            raise Problem(
                503,
                "the engine has failed and is being restarted; try again",
                code="engine_restarting",
                retry_after_s=2.0,
            )
        return self.engine.submit(request, seed)

    async def watch(self) -> None:
        """Replaces the engine whenever it has failed, until this is cancelled."""
        pause = FIRST_PAUSE_S
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(LOOK_S)
                if self.engine.failure is None or self._closed:
                    continue
                _LOG.error("engine failure: %s", self.engine.failure)
                try:
                    self.engine = await asyncio.to_thread(self._restart)
                except Exception:
                    _LOG.exception("the engine could not be restarted; next attempt in %g s", pause)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LONGEST_PAUSE_S)
                    continue
                pause = FIRST_PAUSE_S
                self.restarts += 1
                self.on_restart()
                _LOG.warning("the engine runs again")

    def close(self) -> None:
        """Ends the engine."""
        self._closed = True
        self.engine.close()
