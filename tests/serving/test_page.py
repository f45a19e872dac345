"""The playground in a real browser: `pytest -m browser`, with Chromium installed."""

from __future__ import annotations

import json
import pathlib

import pytest

from ds_jax.serving.mock import MockEngine
from tests.serving import browser
from tests.serving.running import running, script
from tests.serving.test_clients import call

pytestmark = pytest.mark.browser

SAY = """(text => {
  document.getElementById("input").value = text;
  document.getElementById("form").requestSubmit();
})(%s)"""
DONE = "document.querySelectorAll('.facts').length === %d"


def test_a_conversation(tmp_path: pathlib.Path) -> None:
    with running(step_s=0.02) as server, browser.page(server.url) as page:
        page.wait("document.getElementById('model')?.options.length === 2")
        page.run(SAY % '"[[Let me think.</think>Hello <b>you</b>.]] <｜User｜>"')
        page.wait(DONE % 1)
        assert page.run("document.querySelector('.text').textContent") == "Hello <b>you</b>."
        assert page.run("document.querySelector('.think').textContent") == "Let me think."
        assert page.run("document.querySelectorAll('.text b').length") == 0
        page.wait("document.querySelectorAll('#prompt b').length > 0")
        marked = "[...document.querySelectorAll('#prompt b')].map(e => e.textContent)"
        assert page.run(marked).count("<｜User｜>") == 1, "what is typed is not a control token"
        page.run("document.getElementById('tool').checked = true")
        page.run("document.getElementById('colour').value = 'probable'")
        text = f"[[I look.</think>Wait.{call('get_weather', city='Rome')}]]"
        page.run(f"window.said = {json.dumps(text)}")
        page.run(SAY % "window.said")
        page.wait(DONE % 2)
        made = page.run("document.querySelector('.call').textContent")
        assert made == 'get_weather({"city": "Rome"})'
        assert page.run("document.querySelectorAll('.probable').length") > 1
        page.wait("document.querySelectorAll('canvas').length >= 3")
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert page.messages == []


def test_accepted_drafts_are_coloured() -> None:
    engine = MockEngine(script, step_s=0.02, drafts=3)
    with running(engine) as server, browser.page(server.url) as page:
        page.wait("document.getElementById('model')?.options.length === 2")
        page.run("document.getElementById('colour').value = 'drafts'")
        page.run(SAY % '"[[@60]]"')
        page.wait(DONE % 1)
        assert page.run("document.querySelector('.think').textContent") == " word" * 60
        found = page.run("[...document.querySelectorAll('.draft')].map(e => e.title)")
        assert len(found) == engine.stats()["drafts_accepted_total"]
        assert set(found) == {f"accepted draft, confidence {p} %" for p in ("95.0", "80.8", "68.6")}
        name = "accepted length"
        page.wait(
            f"[...document.querySelectorAll('.chart')].some(e => e.innerText.includes('{name}'))"
        )
        assert page.messages == []


def test_stop_ends_the_sequence(tmp_path: pathlib.Path) -> None:
    with running(step_s=0.01) as server, browser.page(server.url) as page:
        page.wait("document.getElementById('model')?.options.length === 2")
        page.run("document.getElementById('most').value = 4000")
        page.run(SAY % '"[[@4000]]"')
        page.wait("document.querySelector('.think')?.textContent.length > 20")
        page.run("document.getElementById('stop').click()")
        page.wait(DONE % 1)
        page.wait("true")
        assert server.engine.aborted == 1


def test_an_error_is_shown() -> None:
    with running() as server, browser.page(server.url) as page:
        page.wait("document.getElementById('model')?.options.length === 2")
        page.run("document.getElementById('heat').value = 9")
        page.run(SAY % '"hi"')
        page.wait(DONE % 1)
        assert "temperature" in page.run("document.querySelector('.error').textContent")
        assert page.run("turns.length") == 0
