"""Makes a sweep of many finished trials on a live server: clients ask for trials and tell results by HTTP."""

from __future__ import annotations

import asyncio
import json
import math
import urllib.parse
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CLIENTS = 200


def spec(name: str, trials: int) -> dict[str, Any]:
    """Return the spec of an external sweep with four parameters."""
    return {
        "name": name,
        "external": {},
        "space": {
            "lr": {"float": {"low": 1e-5, "high": 1.0, "log": True}},
            "momentum": {"float": {"low": 0.0, "high": 1.0}},
            "units": {"int": {"low": 1, "high": 1024}},
            "optimizer": {"choice": {"values": ["adam", "sgd", "lion"]}},
        },
        "metric": "loss",
        "mode": "min",
        "tuner": {"random": {"max_steps": 1}},
        "limits": {"trials": trials},
    }


def loss(config: dict[str, Any]) -> float:
    """Return a result that depends on the parameters."""
    off = {"adam": 0.0, "sgd": 0.3, "lion": 0.1}[config["optimizer"]]
    return (math.log10(config["lr"]) + 2.5) ** 2 + (config["momentum"] - 0.9) ** 2 + off + 10 / config["units"]


async def answer(reader: asyncio.StreamReader, path: str) -> bytes:
    """Read the answer to a request of a path."""
    return (await tagged_answer(reader, path))[0]


async def tagged_answer(reader: asyncio.StreamReader, path: str) -> tuple[bytes, str]:
    """Read the answer to a request of a path, which may be that nothing has changed, and its ETag, or ""."""
    status = await reader.readline()
    length, chunked, tag = 0, False, ""
    while (line := (await reader.readline()).strip().lower()) != b"":
        name, _, value = line.partition(b":")
        if name == b"content-length":
            length = int(value)
        if name == b"etag":
            tag = value.decode().strip()
        chunked = chunked or (name == b"transfer-encoding" and b"chunked" in value)
    body = await _chunks(reader) if chunked else await reader.readexactly(length)
    if b" 200 " not in status and b" 304 " not in status:
        raise RuntimeError(f"{path}: {status.decode()}{body.decode()}")
    return body, tag


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


class _Connection:
    """An HTTP connection that is kept open. http.client takes several times as long for a request."""

    def __init__(self, url: str) -> None:
        self._address = urllib.parse.urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a body and return the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        reader, writer = self._streams
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        return json.loads(await answer(reader, path))

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()


async def _client(url: str, sweep: str, name: str) -> None:
    connection = _Connection(url)
    while True:
        asked = await connection.post(f"/v1/sweeps/{sweep}:ask", {"client": name})
        trial = asked.get("trial")
        if not trial:
            if asked["exhausted"]:
                break
            await asyncio.sleep(0.01)
            continue
        told = {
            "lease_id": asked["lease_id"],
            "reports": [{"step": 1, "seq": 1, "metrics": {"loss": loss(trial["config"])}}],
            "finished": True,
        }
        await connection.post(f"/v1/sweeps/{sweep}/trials/{trial['number']}:tell", told)
    connection.close()


async def _make(url: str, name: str, trials: int) -> str:
    connection = _Connection(url)
    made = await connection.post("/v1/sweeps", {"spec": spec(name, trials)})
    connection.close()
    sweep = made["sweep"]["id"]
    await asyncio.gather(*(_client(url, sweep, f"client-{n}") for n in range(CLIENTS)))
    return str(sweep)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in another thread, because Playwright has an event loop in the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def make(url: str, name: str, trials: int) -> str:
    """Make a sweep of trials that have finished, and return its id."""
    return str(_run(_make(url, name, trials)))


def go_on(url: str, sweep: str) -> None:
    """Finish the trials that an extension has added to a sweep."""
    _run(_client(url, sweep, "client-0"))
