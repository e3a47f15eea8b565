"""A real server with a worker and sweeps, and a real browser, for the tests of the web pages."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

ROOT = Path(__file__).parents[3]
BINARY = os.environ.get("OUTBID_BIN", str(ROOT / "bin" / "outbid"))
PATIENCE = 60.0  # seconds for anything that a test waits for on a busy machine


HOSTILE = "<img src=x onerror=document.title='owned'>"


class Outbid:
    """A server in its own directory, with a worker, and the commands that talk to it."""

    def __init__(self, place: Path, *, tokens: bool = False, policy: str = "") -> None:
        self.place, self.tokens, self.process, self.policy = place, {}, None, policy
        if tokens:
            for name, tenant, role in (
                ("root", "*", "admin"),
                ("ada", "vision", "user"),
                ("eve", "vision", "viewer"),
                ("bob", "speech", "user"),
            ):
                self.tokens[name] = self.run(
                    "token", "new", "--file", "tokens", "--name", name, "--tenant", tenant, "--role", role
                ).strip()
        self.port = "0"
        self.start()

    def start(self) -> None:
        """Start the server, at the port that it had before."""
        ready = self.place / "ready.json"
        ready.unlink(missing_ok=True)
        (self.place / "prices.yaml").write_text("currency: EUR\ndevice_hour: {cpu: 3.6}\n")
        self.log = open(self.place / "server.log", "ab")
        self.process = subprocess.Popen(
            [
                BINARY,
                "up",
                "--data",
                "data",
                "--api",
                f"127.0.0.1:{self.port}",
                "--ready-file",
                str(ready),
                "--devices",
                "cpu:4",
                "--prices",
                "prices.yaml",
            ]
            + (["--tokens", "tokens"] if self.tokens else [])
            + (["--policy", self.policy] if self.policy else []),
            cwd=self.place,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OUTBID_TOKEN": self.tokens.get("root", "")},
        )
        eventually(ready.exists, f"the server is not ready: {self.place / 'server.log'}")
        self.url = json.loads(ready.read_text())["api"]
        self.port = self.url.rsplit(":", 1)[1]

    def kill(self) -> None:
        """End the server without a warning."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.log.close()

    def stop(self) -> None:
        """End the server."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.log.close()

    def run(self, *args: str, who: str = "root", stdin: str = "") -> str:
        """Run a command of outbid and return what it prints."""
        env = {**os.environ, "OUTBID_TOKEN": self.tokens.get(who, ""), "HOME": str(self.place)}
        if self.process is not None:
            env["OUTBID_URL"] = self.url
        done = subprocess.run(
            [BINARY, *args],
            cwd=self.place,
            input=stdin,
            capture_output=True,
            text=True,
            env=env,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"outbid {' '.join(args)}: {done.stderr}"
        return done.stdout

    def shell(self, command: str) -> None:
        """Run a command line as a user would, with `outbid` on the path."""
        env = {**os.environ, "PATH": f"{Path(BINARY).parent}:{os.environ['PATH']}", "OUTBID_URL": self.url}
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.place,
            capture_output=True,
            text=True,
            env=env,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0 and "code" not in done.stdout[:10], f"{command}: {done.stdout}{done.stderr}"

    def submit(self, spec: dict[str, object], who: str = "root") -> str:
        """Start a sweep and return its id."""
        return self.run("submit", "-", who=who, stdin=json.dumps(spec)).strip()

    def sweep(self, sweep: str, who: str = "root") -> dict[str, object]:
        """Return a sweep as `show -o json` prints it."""
        return json.loads(self.run("show", sweep, "-o", "json", who=who))

    def done(self, sweep: str) -> None:
        """Wait until a sweep has ended."""
        eventually(lambda: self.sweep(sweep)["state"] in ("done", "failed", "stopped"), f"{sweep} does not end")


def eventually(what: Callable[[], object], failure: str, patience: float = PATIENCE) -> None:
    """Wait until something is so."""
    end = time.monotonic() + patience
    while not what():
        assert time.monotonic() < end, failure
        time.sleep(0.05)


def program(name: str, *, steps: int = 5, pause: float = 0.0, trials: int = 12, **more: object) -> dict[str, object]:
    """Return the spec of a sweep of a small program that learns for some steps."""
    code = (
        "import json,os,time\n"
        "c=json.load(open(os.environ['OUTBID_CONFIG']))\n"
        f"print({HOSTILE!r} + chr(0x202e) + 'gnp.exe',flush=True)\n"
        "out=open(os.environ['OUTBID_REPORT'],'a')\n"
        f"for i in range(1,{steps}+1):\n"
        f" time.sleep({pause})\n"
        " out.write(json.dumps(dict(step=i,loss=abs(c['lr']-.3)+1/i,size=i*c['units']))+'\\n')\n"
        " out.flush()\n"
    )
    return {
        "name": name,
        "program": {"command": [sys.executable, "-c", code]},
        "space": {
            "lr": {"float": {"low": 0.01, "high": 1.0}},
            "units": {"int": {"low": 1, "high": 64}},
            "kind": {"choice": {"values": ["sgd", HOSTILE]}},
        },
        "metric": "loss",
        "mode": "min",
        "tuner": {"random": {"max_steps": steps}},
        "limits": {"trials": trials},
        **more,
    }


@pytest.fixture(scope="session")
def outbid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbid]:
    """Run a server without tokens with the finished sweeps finished-1 and two-1, and lasting-1, which lasts."""
    server = Outbid(tmp_path_factory.mktemp("open"))
    try:
        server.done(server.submit(program("finished", labels={"note": HOSTILE})))
        server.done(server.submit(program("two", objectives=[{"metric": "size", "mode": "min"}])))
        server.submit(program("lasting", steps=10_000, pause=0.1, trials=1000))
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbid]:
    """Run a server without tokens and without sweeps, so that the devices are free."""
    server = Outbid(tmp_path_factory.mktemp("quiet"))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbid]:
    """Run a server with tokens: root, and ada and eve of the tenant vision, and bob of speech."""
    server = Outbid(tmp_path_factory.mktemp("guarded"), tokens=True)
    try:
        server.done(server.submit(program("hers", trials=4), who="ada"))
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start Debian's Chromium, or the one that OUTBID_CHROMIUM names."""
    path = os.environ.get("OUTBID_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install it, or name one with OUTBID_CHROMIUM")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


class Watched:
    """A page of a browser with all that went wrong in it."""

    def __init__(self, page: Page) -> None:
        self.page, self.wrong, self.expected = page, [], ()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.wrong.append(str(e)))
        page.on("dialog", lambda d: (self.wrong.append(f"dialog {d.message}"), d.dismiss()))

    def unexpected(self) -> list[str]:
        """Return the errors that no test has named."""
        return [w for w in self.wrong if not any(e in w for e in self.expected)]


def shown_rows(page: Page, shown: int, of: int) -> Locator:
    """Return the place that says how many of a sweep's trials pass the filter."""
    return page.locator("main span.dim", has_text=re.compile(rf"^{shown} of {of}$"))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Open a separate browser profile."""
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


@pytest.fixture
def watched(context: BrowserContext) -> Iterator[Watched]:
    """Open a page. A message in its console, an error or a dialog fails the test, unless `expected` names it."""
    made = Watched(context.new_page())
    yield made
    assert made.unexpected() == []
