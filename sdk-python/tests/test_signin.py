"""The sign-in of `outbid login`, against a provider in this process."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from outbid._core import errors
from outbid.rpc import _signin

SERVER = "https://Tuner.example.org:7700/"


def jwt(lasts: float, name: str = "ann") -> str:
    claims = {"sub": name, "exp": int(time.time() + lasts), "id": time.monotonic_ns()}
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.c2ln"


class Provider(ThreadingHTTPServer):
    """A token endpoint that accepts each refresh token once."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.valid = {"r0"}
        self.asked = 0
        self.without_id_token = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/token"


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_POST(self) -> None:
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        with self.server.lock:
            self.server.asked += 1
            known = form["refresh_token"][0] in self.server.valid and form["client_id"] == ["outbid-cli"]
            self.server.valid.discard(form["refresh_token"][0])
            answer: dict[str, Any] = {"error": "invalid_grant"}
            if known:
                fresh = f"r{self.server.asked}"
                self.server.valid.add(fresh)
                answer = (
                    {"refresh_token": fresh}
                    if self.server.without_id_token
                    else {"refresh_token": fresh, "id_token": jwt(300)}
                )
        body = json.dumps(answer).encode()
        self.send_response(200 if known else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "outbid" / "sign-in"
    folder.mkdir(parents=True)
    return folder


def save(folder: Path, address: str, lasts: float, refresh: str = "r0") -> Path:
    path = folder / "https_tuner.example.org_7700.json"
    saved = {
        "server": SERVER,
        "client_id": "outbid-cli",
        "token_url": address,
        "id_token": jwt(lasts),
        "refresh_token": refresh,
    }
    path.write_text(json.dumps(saved))
    return path


def signed_in() -> _signin.SignIn:
    found = _signin.find(SERVER)
    assert found is not None
    return found


def test_without_a_file(folder: Path) -> None:
    assert _signin.find(SERVER) is None
    assert _signin.find("tuner") is None
    assert _signin.find("http://[::1]") is None


def test_names_are_those_of_the_command_line(folder: Path) -> None:
    for url, name in {
        "http://127.0.0.1:7700": "http_127.0.0.1_7700.json",
        "https://Tuner.Example.org/": "https_tuner.example.org_443.json",
        "http://[::1]:80": "http_--1_80.json",
    }.items():
        path = _signin._path(url)
        assert path is not None
        assert path.name == name


def test_a_valid_token_is_used_without_the_provider(folder: Path, provider: Provider) -> None:
    path = save(folder, provider.address, 300)
    assert signed_in().token() == json.loads(path.read_text())["id_token"]
    assert provider.asked == 0


def test_a_token_is_refreshed_once(folder: Path, provider: Provider) -> None:
    path = save(folder, provider.address, 10)
    before = json.loads(path.read_text())["id_token"]
    tokens = []
    people = [signed_in() for _ in range(6)]
    threads = [threading.Thread(target=lambda p=p: tokens.append(p.token())) for p in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == len(people)
    assert set(tokens) == {json.loads(path.read_text())["id_token"]}
    assert before not in tokens
    assert provider.asked == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(os.listdir(folder)) == [path.name, path.name + ".lock"]


def test_the_provider_is_down(folder: Path, provider: Provider) -> None:
    gone = "http://127.0.0.1:1/token"
    path = save(folder, gone, 10)
    assert signed_in().token() == json.loads(path.read_text())["id_token"]
    save(folder, gone, -10)
    with pytest.raises(
        errors.UnauthenticatedError, match=r"sign-in to https://Tuner.* could not be refreshed: .*outbid login"
    ):
        signed_in().token()


def test_a_sign_in_that_ended(folder: Path, provider: Provider) -> None:
    save(folder, provider.address, -10, "used")
    with pytest.raises(errors.UnauthenticatedError, match=r"answers 400: .*invalid_grant.*outbid login"):
        signed_in().token()
    save(folder, provider.address, -10, "")
    with pytest.raises(errors.UnauthenticatedError, match="gave no refresh token"):
        signed_in().token()
    provider.without_id_token = True
    save(folder, provider.address, -10)
    with pytest.raises(errors.UnauthenticatedError, match="without an ID token"):
        signed_in().token()
    path = save(folder, provider.address, -10)
    someone = signed_in()
    path.unlink()
    with pytest.raises(errors.UnauthenticatedError, match="signed out"):
        someone.token()
    path.write_text("{}")
    with pytest.raises(errors.UnauthenticatedError, match="is damaged"):
        someone.token()
