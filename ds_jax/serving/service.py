"""One server's parts, put together.

Decides how they find each other, and how the server begins, drains and ends. Never handles a
request. In: settings, a model, an engine. Out: `Service`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ds_jax.recipe.options import ConversionOptions, ModelVersion
from ds_jax.serving.admission import Admission, Limits
from ds_jax.serving.backend import Backend, Model
from ds_jax.serving.events import Pulse
from ds_jax.serving.exchange import Exchange
from ds_jax.serving.gate import Gate
from ds_jax.serving.generation import Desk
from ds_jax.serving.keys import KeyRing
from ds_jax.serving.metrics import Metrics
from ds_jax.serving.replica import Replica
from ds_jax.serving.settings import Settings
from ds_jax.serving.store import ResponseDatabase
from ds_jax.serving.tracing import Tracer

KEYS_S = 1.0  # between two looks at the file of keys
_LOG = logging.getLogger("ds_jax.serving")


class Service:
    """Methods mutate it.

    Args:
      restart: a new engine in place of one that has failed.
      clock: seconds that only grow.

    Raises: ConfigError.
    """

    def __init__(
        self,
        settings: Settings,
        model: Model,
        engine: Backend,
        restart: Callable[[], Backend],
        clock: Callable[[], float] = time.monotonic,
    ):
        self.settings = settings
        self.model = model
        self.clock = clock
        self.started = int(time.time())
        self.keys = KeyRing(settings.keys_file)
        self.store = ResponseDatabase(
            settings.store_path, ttl_s=settings.store_ttl_s, most=settings.max_stored
        )
        self.replica = Replica(engine, restart)
        most = settings.max_running or model.slots + max(2, model.slots // 4)
        limits = Limits(most, settings.max_waiting, settings.max_wait_s)
        self.gate = Gate(Admission(limits), clock)
        self.metrics = Metrics(
            settings.models[0],
            lambda: self.replica.engine.stats(),
            lambda: self.gate.admission.num_waiting,
            model.page_tokens,
        )
        self.pulse = Pulse(
            clock,
            keep_alive_s=settings.keep_alive_s,
            slow_reader_s=settings.slow_reader_s,
            max_backlog=settings.max_backlog,
            on_slow=self.metrics.slow_readers.inc,
        )
        self.replica.on_restart = self.metrics.restarts.inc
        self.desk = Desk(self.replica, self.gate, self.metrics, clock, settings.max_wait_s)
        endpoint = settings.otlp_endpoint
        self.tracer = None if endpoint is None else Tracer(endpoint)
        self.draining = False
        self.in_flight = 0  # requests that generate, waiting ones included
        self.live: dict[str, Exchange] = {}  # by response id
        self.encoded: dict[tuple[str, bool], list[int]] = {}  # `prepare.encode`
        self._options: dict[str, ConversionOptions] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def options(self, tenant: str) -> ConversionOptions:
        """How requests of a tenant are converted."""
        found = self._options.get(tenant)
        if found is None:
            settings = self.settings
            if len(self._options) > 4096:
                self._options.clear()
            found = self._options[tenant] = ConversionOptions(
                default_thinking_mode=settings.thinking,
                max_choices=settings.max_choices,
                response_store=self.store.of(tenant),
                shared_model_versions={
                    name: ModelVersion.DeepseekV41Flash for name in settings.models
                },
            )
        return found

    @property
    def not_ready(self) -> str | None:
        """Why no request should be sent here; None: it may."""
        if self.draining:
            return "draining"
        return self.replica.failure

    def begin(self) -> None:
        """Starts what runs beside requests; to be called on the event loop."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self.pulse.run()),
            loop.create_task(self.replica.watch()),
            loop.create_task(self._read_keys()),
        ]

    async def drain(self, timeout_s: float) -> bool:
        """Takes no more requests and waits for those under way; False: some did not end in time."""
        self.draining = True
        end = self.clock() + timeout_s
        while self.in_flight and self.clock() < end:
            await asyncio.sleep(0.02)
        return not self.in_flight

    async def end(self) -> None:
        """Cancels what is left."""
        self.draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.to_thread(self.replica.close)
        self.store.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    async def _read_keys(self) -> None:
        while True:
            await asyncio.sleep(KEYS_S)
            if self.keys.refresh():
                _LOG.warning("the keys were read again")
