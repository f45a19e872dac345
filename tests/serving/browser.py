"""Chromium without a window, driven over a pipe (Chrome DevTools Protocol, one JSON a message)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Page:
    """One page. Methods mutate it."""

    def __init__(self, to_browser: int, from_browser: int):
        self._to, self._from = to_browser, from_browser
        self._count = 0
        self._session: str | None = None
        self._held = b""
        self.messages: list[str] = []  # errors of scripts and of the console

    def call(self, method: str, **params: Any) -> Any:
        """Calls a method and waits for its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._count:
                assert "error" not in found, found["error"]
                return found["result"]

    def open(self, url: str, width: int, height: int) -> None:
        """Shows a page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, timeout_s: float = 60.0) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + timeout_s
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}; {self.messages}"
            time.sleep(0.05)

    def screenshot(self, path: pathlib.Path) -> None:
        """Writes what is seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> Any:
        while b"\0" not in self._held:
            more = os.read(self._from, 65536)
            assert more, "the browser has gone"
            self._held += more
        line, _, self._held = self._held.partition(b"\0")
        message = json.loads(line)
        if message.get("method") == "Runtime.exceptionThrown":
            self.messages.append(json.dumps(message["params"]["exceptionDetails"]))
        told = message["params"] if message.get("method") == "Runtime.consoleAPICalled" else {}
        if told.get("type") in ("error", "warning"):
            self.messages.append(json.dumps(told["args"]))
        return message


@contextlib.contextmanager
def page(url: str, width: int = 1200, height: int = 800) -> Iterator[Page]:
    """A page in a browser of its own."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    assert program is not None, f"none of {', '.join(NAMES)} is on PATH"
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()
    with tempfile.TemporaryDirectory() as profile:
        command = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync"),
            *("--remote-debugging-pipe", f"--user-data-dir={profile}"),
        ]
        # the browser reads from descriptor 3 and writes to 4
        script = f'exec "$@" 3<&{read_end} 4>&{write_end}'
        process = subprocess.Popen(
            ["bash", "-c", script, "bash", *command],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        try:
            found = Page(to_browser, from_browser)
            found.open(url, width, height)
            yield found
        finally:
            process.terminate()
            process.wait(20)
            os.close(to_browser)
            os.close(from_browser)
