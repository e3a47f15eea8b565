"""Measures pages of a busy server, and the cost of open pages: `load.py [--rounds N] [--seconds S] PART …`.

The parts, for which it starts a server with simulated workers (`outbid-lab load`) or with real trials:

- `report`: milliseconds from a trial's report until a page shows it;
- `devices`, `round`: milliseconds from a click until a cluster of 4,000 devices, or an auction, is drawn;
- `pages`: what 20 pages of a sweep of 500 reports a second add to the milliseconds from a report to its decision;
- `whatif`: what simulations of the ledger, one after the other, add to them;
- `idle`: processor time of the server, in parts of a core, for 200 pages on which nothing happens.

For `pages` and `idle` it opens one page in Chromium, notes what it asks, and asks the same that many times, because as
many browsers would take the processors from the server. It prints a line of JSON for each part.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import many
from budget import Computing, chromium, settled_page
from conftest import BINARY, Outbid, eventually
from playwright.sync_api import sync_playwright

# Notes when a row of the table of trials shows a step for the first time, once it is drawn.
STEPS = """
() => {
  window.seen = {};
  const heads = [...document.querySelectorAll("table[aria-rowcount] th")];
  const column = heads.findIndex((h) => /^step\\b/.test(h.innerText.trim()));
  const look = () => {
    for (const row of document.querySelectorAll("table[aria-rowcount] tbody tr:not(.space)")) {
      const key = `${row.querySelector("a").innerText} ${row.children[column].innerText.trim()}`;
      if (key in window.seen) continue;
      window.seen[key] = Infinity;
      requestAnimationFrame(() => setTimeout(() => (window.seen[key] = performance.timeOrigin + performance.now())));
    }
  };
  look();
  const all = { childList: true, subtree: true, characterData: true };
  new MutationObserver(look).observe(document.querySelector("main"), all);
}
"""
# Does something and returns the milliseconds until a condition holds and the frame after it is drawn.
TIMED = """
() => new Promise((done) => {
  const began = performance.now();
  const look = () => {
    if (!(HOLDS)) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
  ACT;
  look();
})
"""
DEVICES = 4000


class Cluster:
    """A server with simulated workers that have 4,000 devices, and ten sweeps that use all of them."""

    def __init__(self, place: Path, reports_per_second: int) -> None:
        ready = place / "ready.json"
        words = ["serve", "--data", "data", "--api", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"]
        self._log = (place / "server.log").open("wb")
        self._server = subprocess.Popen(
            [BINARY, *words, "--ready-file", str(ready)], cwd=place, stdout=self._log, stderr=self._log
        )
        eventually(ready.exists, f"the server is not ready: {place / 'server.log'}")
        about = json.loads(ready.read_text())
        self.url, self.pid = about["api"], self._server.pid
        self._lines = place / "load.log"
        words = ["load", "--keys", about["keys"], "--nats", about["nats"], "--workers", "64"]
        words += ["--devices", str(DEVICES), "--reports-per-second", str(reports_per_second), "--every", "1s"]
        with self._lines.open("wb") as to:
            self._load = subprocess.Popen([f"{BINARY}-lab", *words], cwd=place, stdout=to, stderr=to)
        eventually(lambda: "64 leased" in self._lines.read_text(), f"the workers do not join: {self._lines}")
        for i in range(10):
            self.submit(f"sweep{i}", DEVICES // 10, {"command": ["true"]})

    def submit(self, name: str, trials: int, program: dict[str, Any]) -> str:
        """Start a sweep whose trials do not end."""
        spec = many.spec(name, trials) | {"program": program, "tuner": {"random": {"max_steps": 10**9}}}
        del spec["external"]
        words = [BINARY, "submit", "-", "--server", self.url]
        return subprocess.check_output(words, input=json.dumps(spec), text=True, stderr=self._log).strip()

    def decided(self) -> list[float]:
        """Return the 99th percentile of milliseconds from a report to its decision, for each second so far."""
        units = {"µs": 1e-3, "ms": 1, "s": 1e3}
        found = re.findall(r"p99 ([\d.]+)(µs|ms|s)\b", self._lines.read_text())
        return [float(value) * units[unit] for value, unit in found]

    def trains(self) -> bool:
        """Report whether trials hold all devices."""
        return f"{DEVICES} trials" in self._lines.read_text()

    def stop(self) -> None:
        """End the workers and the server."""
        for process in (self._load, self._server):
            process.terminate()
            process.wait(60)
        self._log.close()


@contextmanager
def cluster(reports_per_second: int) -> Iterator[Cluster]:
    """Run a cluster."""
    with tempfile.TemporaryDirectory() as place:
        made = Cluster(Path(place), reports_per_second)
        try:
            eventually(made.trains, "the devices stay free")
            yield made
        finally:
            made.stop()


def read(url: str) -> list[dict[str, Any]]:
    """Return the lines of an answer of the API."""
    with urllib.request.urlopen(url) as answer:
        return [json.loads(line) for line in answer]


def numbers(found: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile."""
    ordered = sorted(found)
    return {
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[math.ceil(0.95 * len(ordered)) - 1], 1),
    }


def measure_report(args: argparse.Namespace) -> dict[str, Any]:
    """Measure from the moment in which a trial of a real worker writes a report until its page shows that step."""
    code = "import json,os,time\nout=open(os.environ['OUTBID_REPORT'],'a')\ni=0\nwhile True:\n i+=1\n time.sleep(.5)\n"
    code += " out.write(json.dumps(dict(step=i,loss=1/i,at=time.time()))+'\\n');out.flush()\n"
    spec = many.spec("reports", 4) | {"program": {"command": ["python3", "-c", code]}}
    del spec["external"]
    spec["tuner"] = {"random": {"max_steps": 10**9}}
    with tempfile.TemporaryDirectory() as place, sync_playwright() as play:
        server = Outbid(Path(place))
        try:
            sweep = server.submit(spec)
            browser = chromium(play)
            page = settled_page(browser)
            page.goto(f"{server.url}/ui/sweeps/{sweep}")
            page.locator("table[aria-rowcount] tbody a").nth(3).wait_for()
            page.wait_for_timeout(2000)
            page.evaluate(STEPS)
            page.wait_for_timeout(1000 * args.seconds)
            seen = {
                tuple(map(int, k.split())): v for k, v in page.evaluate("window.seen").items() if re.search(r"\d$", k)
            }
            first = {t: min(step for trial, step in seen if trial == t) for t, _ in seen}
            took = []
            for piece in read(f"{server.url}/v1/sweeps/{sweep}/reports"):
                for one in piece["result"]["reports"]:
                    trial, step = one["trial"], int(one["report"]["step"])
                    shown = [at for (t, s), at in seen.items() if t == trial and s >= step and at is not None]
                    if step > first.get(trial, step) and shown:
                        took.append(min(shown) - 1000 * one["report"]["metrics"]["at"])
            browser.close()
        finally:
            server.stop()
    return {"reports": len(took), "ms": numbers(took)}


def in_new_browsers(url: str, args: argparse.Namespace, actions: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the times of actions, each with its condition, in turn in each of some new browsers."""
    took: dict[str, list[float]] = {}
    with sync_playwright() as play:
        for _ in range(args.rounds):
            browser = chromium(play)
            page = settled_page(browser)
            computing = Computing(page)
            page.goto(url)
            page.locator("main h1").wait_for()
            for name, (act, holds) in actions.items():
                page.wait_for_timeout(1500)
                computing.since()
                took.setdefault(name, []).append(page.evaluate(TIMED.replace("HOLDS", holds).replace("ACT", act)))
                took.setdefault(f"{name}: computing", []).append(computing.since())
            browser.close()
    return {name: numbers(found) for name, found in took.items()}


def measure_devices(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the page of a cluster, opened by a click."""
    count = "[...document.querySelectorAll('[data-devices]')].reduce((n, e) => n + Number(e.dataset.devices), 0)"
    drawn = f"{count} >= {DEVICES}"
    click = "[...document.querySelectorAll('nav a')].find((a) => a.innerText === 'Cluster').click()"
    with cluster(0) as made:
        return {"devices": DEVICES, "ms": in_new_browsers(f"{made.url}/ui/", args, {"click": (click, drawn)})}


def measure_round(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the page of a round, opened by a click and by the arrow keys."""
    with cluster(0) as made:
        rounds = read(f"{made.url}/v1/rounds?limit=100")[0]["rounds"]
        largest = max(rounds, key=lambda r: len(r["decisions"]))
        newest = rounds[0]["round"]
        number = int(largest["round"])
        is_round = "document.querySelector('h1').innerText === 'Round {0}'"
        shows = is_round + " && document.querySelector('main').textContent.includes('of the ledger')"
        press = "dispatchEvent(new KeyboardEvent('keydown', {{ key: 'Arrow{0}' }}))"
        click = f"document.querySelector('main a[href$=\"/rounds/{number}\"]').click()"
        actions = {"click": (click, shows.format(number))}
        if number > 1:
            actions["key"] = (press.format("Left"), shows.format(number - 1))
            actions["key back"] = (press.format("Right"), shows.format(number))
        found = in_new_browsers(f"{made.url}/ui/rounds", args, actions)
        bidders = len((largest.get("auction") or {}).get("bidders", []))
        return {"decisions": len(largest["decisions"]), "bidders": bidders, "newest": newest, "ms": found}


def requests_of(*urls: str, unused: float = 0, seconds: float = 10) -> list[dict[str, float]]:
    """Open pages and return what each asks the API for, with the seconds between two requests, or 0 for a stream.

    Idle pages ask more rarely after a while: the requests of `seconds` seconds count, after `unused` seconds.
    """
    with sync_playwright() as play:
        browser = chromium(play)
        found = []
        for url in urls:
            page = browser.new_context().new_page()
            found.append([])
            page.on(
                "request", lambda r, to=found[-1]: to.append((time.monotonic(), r.url)) if "/v1/" in r.url else None
            )
            page.goto(url)
        page.wait_for_timeout(1000 * unused)
        begin = time.monotonic()
        page.wait_for_timeout(1000 * seconds)
        browser.close()
    return [periods(page, begin if unused else 0, seconds) for page in found]


def periods(requests: list[tuple[float, str]], begin: float, seconds: float) -> dict[str, float]:
    """Return the seconds between requests of the same kind, by the address of one of them, and 0 for streams."""
    every: dict[str, float] = {}
    kinds: dict[str, list[str]] = {}
    for at, url in requests:
        if "follow=true" in url:
            every[url.split("?")[0] + "?follow=true"] = 0
        elif at >= begin:
            kinds.setdefault(re.sub(r"trial=\d+", "", url), []).append(url)
    return every | {some[-1]: seconds / len(some) for some in kinds.values()}


async def _ask(path: str, every: float, delay: float) -> None:
    address = urllib.parse.urlsplit(path)
    await asyncio.sleep(delay)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    request = f"GET {address.path}?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\nAccept-Encoding: gzip\r\n"
    while every == 0:
        writer.write(f"{request}Accept: application/octet-stream\r\n\r\n".encode())
        while await reader.read(1 << 16):
            pass
        raise RuntimeError(f"{path}: the stream ended")
    tag = ""
    while True:
        began = time.monotonic()
        writer.write((request + (f"If-None-Match: {tag}\r\n" if tag else "") + "\r\n").encode())
        _, tag = await many.tagged_answer(reader, path)
        await asyncio.sleep(max(0.0, began + every - time.monotonic()))


def _pages(every: dict[str, float], pages: int) -> None:
    async def all_pages() -> None:
        await asyncio.gather(
            asyncio.sleep(1e6), *(_ask(p, e, e * n / pages) for n in range(pages) for p, e in every.items())
        )

    os.nice(10)
    asyncio.run(all_pages())


@contextmanager
def open_pages(every: dict[str, float], pages: int) -> Iterator[None]:
    """Ask what that many open pages ask."""
    process = multiprocessing.get_context("spawn").Process(target=_pages, args=(every, pages))
    process.start()
    try:
        time.sleep(2)
        yield
        if not process.is_alive():
            raise RuntimeError("a page failed")
    finally:
        process.terminate()
        process.join()


def per_second(every: dict[str, float]) -> float:
    """Return how many requests a page makes in a second."""
    return round(sum(1 / e for e in every.values() if e > 0), 2)


def in_turn(
    made: Cluster, args: argparse.Namespace, busy: Callable[[], AbstractContextManager[None]]
) -> dict[str, Any]:
    """Return the latencies of decisions without and with something else that the server does, in turn."""
    found: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(args.rounds):
        for name, state in (("without", nullcontext), ("with", busy)):
            with state():
                before = len(made.decided())
                time.sleep(args.seconds)
                found[name] += made.decided()[before:]
    return {name: numbers(of) for name, of in found.items()}


def measure_pages(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the latency of decisions without and with 20 open pages, in turn."""
    with cluster(500) as made:
        (every,) = requests_of(f"{made.url}/ui/sweeps/sweep0-1")
        found = in_turn(made, args, lambda: open_pages(every, 20))
    return {"p99 ms": found, "requests of a page": per_second(every)}


def measure_whatif(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the latency of decisions without and while the ledger is simulated under another policy, in turn."""
    seconds: list[float] = []
    with cluster(500) as made:

        def simulate(stop: threading.Event) -> None:
            while not stop.is_set():
                began = time.monotonic()
                with urllib.request.urlopen(f"{made.url}/v1/simulation?policies=fifo") as answer:
                    for _ in answer:
                        if stop.is_set():
                            return  # closing the connection ends the simulation
                seconds.append(time.monotonic() - began)

        @contextmanager
        def simulating() -> Iterator[None]:
            stop = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(simulate, stop)
                time.sleep(1)
                yield
                stop.set()
                running.result()

        found = in_turn(made, args, simulating)
    return {"p99 ms": found, "simulations": len(seconds), "seconds of one": numbers(seconds)}


def cpu(pid: int) -> float:
    """Return the seconds of processor time of a process."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def measure_idle(args: argparse.Namespace) -> dict[str, Any]:
    """Measure the processor time of a server of sweeps that wait, with and without 200 pages of one kind."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        server = Outbid(Path(place))
        try:
            assert server.process is not None
            sweeps = [server.submit(many.spec(f"idle{i}", 100)) for i in range(args.sweeps)]
            pages = {
                "sweep": f"/ui/sweeps/{sweeps[0]}",
                "sweeps": "/ui/",
                "cluster": "/ui/cluster",
                "rounds": "/ui/rounds",
            }
            mixes = requests_of(*(server.url + path for path in pages.values()), unused=40, seconds=40)
            for name, every in [("none", {}), *zip(pages, mixes, strict=True)]:
                with open_pages(every, 200):
                    before, began = cpu(server.process.pid), time.monotonic()
                    time.sleep(args.seconds)
                    found[name] = round((cpu(server.process.pid) - before) / (time.monotonic() - began), 4)
        finally:
            server.stop()
    return {"cores": found, "requests a second of a page": [per_second(every) for every in mixes]}


def main() -> None:
    """Measure and print."""
    parts = {
        "report": measure_report,
        "devices": measure_devices,
        "round": measure_round,
        "pages": measure_pages,
        "whatif": measure_whatif,
        "idle": measure_idle,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=parts, metavar="PART")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--sweeps", type=int, default=100, help="sweeps of `idle`")
    args = parser.parse_args()
    for part in args.parts:
        print(json.dumps({"part": part, **parts[part](args), "load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
