"""A server in a thread of the test process, on a free port, over a mock engine.

The mock answers what the prompt says: the text between `[[` and `]]` is the raw output, control
strings included; `[[@500]]` is 500 tokens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx

import ds_jax
from ds_jax.recipe.tokenizer import Tokenizer
from ds_jax.records import GenerateRequest
from ds_jax.serving.backend import Model
from ds_jax.serving.mock import MockEngine
from ds_jax.serving.server import Server
from ds_jax.serving.service import Service
from ds_jax.serving.settings import Settings

TINY = pathlib.Path(ds_jax.__file__).parent / "assets" / "tiny"
DEFAULT = "A thought.</think>Hello world."
_WANTED = re.compile(r"\[\[(.*?)\]\]", re.DOTALL)
_TOKENIZERS: list[Tokenizer] = []


def tokenizer() -> Tokenizer:
    """The embedded model's, read once."""
    if not _TOKENIZERS:
        _TOKENIZERS.append(Tokenizer.from_file(TINY / "tokenizer.json"))
    return _TOKENIZERS[0]


def script(request: GenerateRequest) -> list[int]:
    """What the prompt asks for."""
    text = tokenizer().decode(request.prompt_token_ids)
    wanted = _WANTED.findall(text)
    answer = wanted[-1] if wanted else DEFAULT
    if answer.startswith("@"):
        return tokenizer().encode_text(" word") * int(answer[1:])
    return tokenizer().encode(answer)


def model(slots: int = 16) -> Model:
    return Model(
        tokenizer=tokenizer(),
        bos_token_id=tokenizer().bos_id,
        vocab_size=tokenizer().vocab_size,
        max_context=8192,
        slots=slots,
        page_tokens=128,
        fingerprint="fp_mock",
    )


@dataclasses.dataclass
class Running:
    """A server that runs."""

    server: Server
    service: Service
    url: str
    http: httpx.Client

    @property
    def engine(self) -> Any:
        return self.service.replica.engine

    @property
    def port(self) -> int:
        return self.server.port

    def connect(self) -> socket.socket:
        """A plain connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def call(self, function: Any, *arguments: Any) -> None:
        """Calls a function on the server's event loop and waits for it."""
        done = threading.Event()

        def run() -> None:
            function(*arguments)
            done.set()

        loop = self.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(run)
        assert done.wait(10)


@contextlib.contextmanager
def running(
    engine: Any = None,
    restart: Any = None,
    *,
    known: Model | None = None,
    step_s: float = 0.001,
    slots: int = 16,
    key: str = "any",
    **settings: Any,
) -> Iterator[Running]:
    """Starts a server; `settings` are those of `Settings`."""

    def mocked() -> MockEngine:
        return MockEngine(script, slots=slots, step_s=step_s)

    made = mocked() if engine is None else engine
    chosen = Settings(port=0, models=("tiny", "DeepSeek-V4.1-Flash"), **settings)
    service = Service(chosen, known or model(slots), made, restart or mocked)
    server = Server(service)
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    eventually(lambda: server.started)
    url = f"http://127.0.0.1:{server.port}"
    try:
        with httpx.Client(base_url=url, timeout=30, headers={"x-api-key": key}) as client:
            yield Running(server, service, url, client)
    finally:
        server.should_exit = True
        thread.join(120)  # a real engine may be compiling
        assert not thread.is_alive(), "the server did not end"


def eventually(condition: Any, timeout_s: float = 10.0) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def chat(text: str, **fields: Any) -> dict[str, Any]:
    """A Chat Completions body."""
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **fields}
