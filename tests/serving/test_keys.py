"""API keys: what is kept of them, who they let in, and where."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pathlib
from collections.abc import Iterator

import httpx
import pytest

from ds_jax.errors import ConfigError
from ds_jax.serving import keys
from ds_jax.serving.settings import Settings
from tests.serving.running import Running, chat, eventually, running

PATH = "/v1/chat/completions"


def entry(name: str, key: str, **fields: object) -> str:
    lines = [f'name = "{name}"', f'sha256 = "{hashlib.sha256(key.encode()).hexdigest()}"']
    for field, value in fields.items():
        shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
        lines.append(f"{field} = {shown}")
    return "\n".join(["[[keys]]", *lines, ""])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text(
        entry("alice", "sk-alice", requests_per_minute=3)
        + entry("bob", "sk-bob", tenant="team")
        + entry("carol", "sk-carol", tenant="team")
        + entry("root", "sk-root", admin=True)
    )
    return path


@pytest.fixture(scope="module")
def server(file: pathlib.Path) -> Iterator[Running]:
    with running(keys_file=str(file), key="sk-bob") as found:
        yield found


def ask(server: Running, key: str | None, path: str = PATH, **fields: object) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        return client.post(path, json=fields or chat("hi"))


def test_a_new_key_opens_what_its_entry_names(tmp_path: pathlib.Path) -> None:
    key, text = keys.make("dora")
    assert key not in text
    path = tmp_path / "keys.toml"
    path.write_text(text)
    ring = keys.KeyRing(path)
    found = ring.find(key)
    assert found is not None and (found.name, found.tenant, found.admin) == ("dora", "dora", False)
    assert ring.find(key[:-1]) is None
    assert ring.find(None) is None
    assert key.encode() not in repr(vars(ring)).encode()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "one or more"),
        ("x = 1", "one or more"),
        ("[[keys]]\n", "name is missing"),
        ('[[keys]]\nname = "a"\n', "sha256 must be"),
        ('[[keys]]\nname = "a"\nsha256 = "zz"\n', "sha256 must be"),
        (entry("a", "k", colour="red"), "unknown colour"),
        (entry("a", "k", priority="urgent"), "high, normal or low"),
        (entry("a", "k", weight=0), "above 0"),
        (entry("a", "k", max_concurrent=True), "above 0"),
        (entry("a", "k", admin="yes"), "true or false"),
        (entry("a", "k") + entry("b", "k"), "twice"),
        ("[[", "cannot read"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: pathlib.Path, text: str, word: str) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=word):
        keys.KeyRing(path)


def test_without_keys_only_loopback_is_allowed() -> None:
    with pytest.raises(ConfigError, match="loopback only"):
        Settings(host="0.0.0.0")
    assert Settings(host="::1").host == "::1"
    assert Settings(host="0.0.0.0", keys_file="keys.toml").host == "0.0.0.0"


def test_only_known_keys_are_let_in(server: Running) -> None:
    for key in (None, "", "sk-nobody", "sk-bo", "sk-Bob", "\u00e9"):
        with httpx.Client(base_url=server.url) as client:
            headers = [] if key is None else [(b"x-api-key", key.encode())]
            answer = client.post(PATH, json=chat("hi"), headers=headers)
        assert answer.status_code == 401, key
    answer = ask(server, "sk-nobody")
    assert answer.json()["error"]["code"] == "invalid_api_key"
    claude = ask(server, None, "/v1/messages")
    assert claude.json()["error"]["type"] == "authentication_error"
    assert ask(server, "sk-bob").status_code == 200


def test_probes_and_metrics_need_no_key(server: Running) -> None:
    with httpx.Client(base_url=server.url) as client:
        for path in ("/health", "/ready", "/version", "/metrics", "/load", "/openapi.json", "/"):
            assert client.get(path).status_code == 200, path
        assert client.get("/v1/models").status_code == 401
        assert client.get("/server_info").status_code == 401


def test_admin_endpoints_are_for_admins(server: Running) -> None:
    for path in ("/drain", "/abort_request", "/cache/explain"):
        assert ask(server, "sk-bob", path).status_code == 403, path
    answer = ask(server, "sk-root", "/cache/explain", prompt="hello")
    assert answer.json()["cause"] == "none"
    assert ask(server, "sk-root", "/abort_request", all=True).json() == {"aborted": []}
    assert ask(server, "sk-root", "/drain", resume=False).json()["draining"] is True
    try:
        assert ask(server, "sk-bob").status_code == 503
        assert httpx.get(f"{server.url}/ready").status_code == 503
    finally:
        assert ask(server, "sk-root", "/drain", resume=True).json()["draining"] is False
    assert ask(server, "sk-bob").status_code == 200
    headers = {"x-api-key": "sk-root"}
    info = httpx.get(f"{server.url}/server_info", headers=headers).json()
    assert info["settings"]["models"] == ["tiny", "DeepSeek-V4.1-Flash"]
    assert "sk-" not in str(info)


def test_nobody_is_an_admin_without_keys() -> None:
    with running() as server:
        assert server.http.post("/drain", json={}).status_code == 403


def test_a_quota_ends_in_429(server: Running) -> None:
    answers = [ask(server, "sk-alice") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[0].headers["x-ratelimit-remaining-requests"] == "2"
    assert answers[3].headers["x-ratelimit-remaining-requests"] == "0"
    assert 0 < int(answers[3].headers["retry-after-ms"]) <= 20_000
    assert answers[3].json()["error"]["code"] == "quota_requests"


def test_responses_belong_to_a_tenant(server: Running) -> None:
    made = ask(server, "sk-bob", "/v1/responses", model="tiny", input="hi").json()["id"]
    for key, status in (("sk-carol", 200), ("sk-root", 404)):
        found = httpx.get(f"{server.url}/v1/responses/{made}", headers={"x-api-key": key})
        assert found.status_code == status
    again = ask(
        server, "sk-root", "/v1/responses", model="tiny", input="x", previous_response_id=made
    )
    assert again.status_code == 400


def test_prefixes_are_shared_inside_a_tenant_only(server: Running) -> None:
    body = chat("u v w " * 200)
    told = [
        ask(server, key, **body).json()["usage"]["prompt_cache_hit_tokens"]
        for key in ("sk-bob", "sk-root", "sk-carol")
    ]
    assert told[0] == told[1] == 0
    assert told[2] > 128


def test_a_changed_file_is_read_again_and_a_broken_one_is_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry("a", "sk-a"))
    ring = keys.KeyRing(path)
    assert not ring.refresh()
    write(path, entry("b", "sk-b"))
    assert ring.refresh()
    assert ring.find("sk-a") is None
    assert ring.find("sk-b") is not None
    write(path, "[[")
    assert not ring.refresh()
    assert ring.find("sk-b") is not None
    path.unlink()
    assert not ring.refresh()
    assert ring.find("sk-b") is not None


def test_a_running_server_reads_its_keys_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry("a", "sk-a"))
    with running(keys_file=str(path)) as server:
        assert ask(server, "sk-a").status_code == 200
        write(path, entry("b", "sk-b"))
        eventually(lambda: ask(server, "sk-b").status_code == 200)
        assert ask(server, "sk-a").status_code == 401


def test_no_key_and_no_prompt_reaches_the_log(server: Running) -> None:
    log = logging.getLogger("ds_jax.serving")
    stream = io.StringIO()
    to_memory = logging.StreamHandler(stream)
    level = log.level
    log.setLevel(logging.DEBUG)
    log.addHandler(to_memory)
    try:
        ask(server, "sk-bob", **chat("my secret words"))
        ask(server, "sk-wrong", **chat("my secret words"))
        ask(server, "sk-bob", **chat("my secret words", temperature=99))
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        httpx.get(f"{server.url}/health", headers={"traceparent": trace})
        eventually(lambda: stream.getvalue().count("\n") >= 4)
    finally:
        log.removeHandler(to_memory)
        log.setLevel(level)
    text = stream.getvalue()
    assert "sk-" not in text
    assert "secret" not in text
    assert '"key":"bob"' in text
    assert '"completion_tokens":' in text
    assert '"trace_id":"0af7651916cd43dd8448eb211c80319c"' in text


def write(path: pathlib.Path, text: str) -> None:
    """Replaces a file, so that its stamp changes however coarse the clock is."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)
