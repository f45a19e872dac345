"""The process: a socket, signals, and an orderly end.

Decides what SIGTERM and SIGINT do: /ready says 503 at once, new requests are refused, those under
way end, then the socket closes; a second signal ends at once. Never handles a request. In: a
service. Out: a server that runs.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import types

from ds_jax.errors import ConfigError
from ds_jax.serving.service import Service

try:
    import uvicorn

    from ds_jax.serving import app, protocol
except ImportError as error:
    raise ConfigError(
        f"the service needs {error.name}; install the extra: pip install 'ds_jax[serve]'"
    ) from error

LEFTOVER_S = 2  # for answers that were cut off to be sent
_LOG = logging.getLogger("ds_jax.serving")


class Server(uvicorn.Server):
    """One server. Methods mutate it."""

    def __init__(self, service: Service):
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                app.make(service),
                host=settings.host,
                port=settings.port,
                http=protocol.limited(settings.header_timeout_s, settings.max_connections),
                ws="none",
                lifespan="on",
                loop="auto",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=max(1, int(settings.idle_timeout_s)),
                timeout_graceful_shutdown=LEFTOVER_S,
                backlog=4096,
            )
        )
        self.service = service
        self._drain: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def port(self) -> int:
        """The port it listens on, once it has started."""
        return self.servers[0].sockets[0].getsockname()[1]

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listens."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            _LOG.warning("listening on http://%s:%d", self.service.settings.host, self.port)

    def handle_exit(self, sig: int, frame: types.FrameType | None) -> None:
        """A signal has come."""
        if self._loop is None or self._drain is not None:
            self.force_exit = self.should_exit
            self.should_exit = True
            return
        self._loop.call_soon_threadsafe(self.begin_drain, signal.Signals(sig).name)

    def begin_drain(self, why: str) -> None:
        """Drains, then ends; to be called on the event loop."""
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._end_orderly(why))

    async def _end_orderly(self, why: str) -> None:
        service, settings = self.service, self.service.settings
        _LOG.warning("%s: draining %d requests", why, service.in_flight)
        service.draining = True
        await asyncio.sleep(settings.drain_notice_s)
        if not await service.drain(settings.drain_timeout_s):
            _LOG.warning("%d requests are cut off after the drain timeout", service.in_flight)
            for exchange in list(service.live.values()):
                exchange.cancel()
        self.should_exit = True
