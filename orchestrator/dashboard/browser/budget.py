"""Measures the page of a sweep of many trials in Chromium: `budget.py [--trials N] [--rounds N] [--url URL --sweep S]`.

Each round opens the page in a new browser with an empty cache, once the browser has loaded its own pages. Without a
URL it starts a server and makes the sweep, which takes minutes for 100,000 trials. It prints a line of JSON: the median
and the least of each time in milliseconds, and the heap in MB. `computing` is the time of the main thread, which other
programs do not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import many
from conftest import Outbid
from playwright.sync_api import Browser, Page, sync_playwright

# Notes when the first chart and when everything is on the screen: two frames after it is in the page.
WATCH = """
(() => {
  const times = {};
  let done;
  window.times = new Promise((resolve) => (done = resolve));
  const drawn = (name) => requestAnimationFrame(() => requestAnimationFrame(() => {
    times[name] = performance.now();
    if (name === "all") done(times);
  }));
  const seen = new Set();
  const look = () => {
    const chart = document.querySelector(".u-wrap canvas");
    if (chart && !seen.has("chart")) { seen.add("chart"); drawn("chart"); }
    const rows = document.querySelector("table[aria-rowcount] tbody a");
    const lines = document.querySelector("main .box canvas[data-trials]:not([data-trials='0'])");
    if (chart && lines && rows && !seen.has("all")) {
      seen.add("all"); drawn("all"); observer.disconnect();
    }
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { childList: true, subtree: true, attributeFilter: ["data-trials"] });
})()
"""
# Calls something and returns the milliseconds until the frame after the one in which the table has changed.
TIMED = """
async ([action, argument]) => {
  const table = document.querySelector("table[aria-rowcount]");
  const began = performance.now();
  if (action === "sort") document.querySelector(`button[title^="sort by ${argument}"]`).click();
  else {
    const box = document.querySelector("input[aria-describedby=filter-error]");
    box.value = argument;
    box.dispatchEvent(new Event("input", { bubbles: true }));
  }
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}
"""


def chromium(play: Any) -> Browser:
    """Start the browser of the tests."""
    path = os.environ.get("OUTBID_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    return play.chromium.launch(executable_path=path, args=["--no-sandbox", "--enable-precise-memory-info"])


def settled_page(browser: Browser, patience: float = 600) -> Page:
    """Return a page of a browser that was just started, after it has loaded the pages that it shows itself.

    Chromium loads those of its address bar for a second after its start, on the processors that a page needs.
    """
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * patience)
    page.wait_for_timeout(3000)
    return page


def heap(page: Page) -> float:
    """Return the megabytes of scripts' values and of their arrays, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    use = session.send("Runtime.getHeapUsage")
    session.detach()
    return (use["usedSize"] + use.get("backingStorageSize", 0)) / 1e6


class Computing:
    """Counts the milliseconds that the main thread of a page computes, which other programs do not lengthen."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._before = 0.0

    def since(self) -> float:
        """Return the time since the last call."""
        metrics = {m["name"]: m["value"] for m in self._session.send("Performance.getMetrics")["metrics"]}
        before, self._before = self._before, 1000 * metrics["TaskDuration"]
        return self._before - before


def open_page(browser: Browser, url: str) -> tuple[Page, Computing, dict[str, float]]:
    """Open the page of a sweep and return the times until it was drawn, and the time that its main thread computed."""
    page = settled_page(browser)
    computing = Computing(page)
    computing.since()
    page.add_init_script(WATCH)
    page.goto(url)
    times = page.evaluate("window.times")
    times["computing"] = computing.since()
    return page, computing, times


def measure(url: str, sweep: str, rounds: int) -> dict[str, list[float]]:
    """Return the times of each round, and the heap."""
    found: dict[str, list[float]] = {}
    with sync_playwright() as play:
        for _ in range(rounds):
            browser = chromium(play)
            page, computing, times = open_page(browser, f"{url}/ui/sweeps/{sweep}")
            acts = [("sort", column) for column in ("lr", "optimizer", "loss")]
            acts += [("filter", text) for text in ("lr < 0.01", "optimizer = adam and units > 100", "")]
            for action, argument in acts:
                page.wait_for_timeout(1000)  # the charts of the action before are drawn
                computing.since()
                times[f"{action} {argument}"] = page.evaluate(TIMED, [action, argument])
                times[f"{action} {argument}: computing"] = computing.since()
            times["heap"] = heap(page)
            for name, value in times.items():
                found.setdefault(name, []).append(value)
            browser.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--url")
    parser.add_argument("--sweep")
    args = parser.parse_args()
    if args.url:
        found = measure(args.url, args.sweep, args.rounds)
    else:
        with tempfile.TemporaryDirectory() as place:
            server = Outbid(Path(place))
            try:
                found = measure(server.url, many.make(server.url, "many", args.trials), args.rounds)
            finally:
                server.stop()
    print(
        json.dumps({k: {"median": round(statistics.median(v), 1), "least": round(min(v), 1)} for k, v in found.items()})
    )


if __name__ == "__main__":
    main()
