"""Compares the page of a sweep with optuna-dashboard's page of a study.

`peer.py --python PYTHON [--trials N,N] [--rounds N]`, where PYTHON is that of an environment with optuna-dashboard.
Both pages show the same number of trials with the same four parameters, in turn, each in a new Chromium as in
`budget.py`. It prints a line of JSON for each size: the median and the least of the seconds until the first chart, and
until everything, is on the screen. A page that is not drawn after --patience seconds counts as that long. `load` is
the load of the machine when the measurement began and ended.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import budget
import many
from conftest import Outbid
from playwright.sync_api import Browser, Error, sync_playwright

# Makes a study of finished trials in a journal.
STUDY = """
import math, random, sys
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
space = {"lr": FloatDistribution(1e-5, 1, log=True), "momentum": FloatDistribution(0, 1),
         "units": IntDistribution(1, 1024), "optimizer": CategoricalDistribution(["adam", "sgd", "lion"])}
def trial():
    p = {"lr": 10 ** random.uniform(-5, 0), "momentum": random.random(), "units": random.randint(1, 1024),
         "optimizer": random.choice(["adam", "sgd", "lion"])}
    loss = (math.log10(p["lr"]) + 2.5) ** 2 + (p["momentum"] - .9) ** 2 + 10 / p["units"]
    return optuna.trial.create_trial(params=p, distributions=space, value=loss)
storage = optuna.storages.JournalStorage(JournalFileBackend(sys.argv[1]))
study = optuna.create_study(study_name="many", storage=storage)
study.add_trials([trial() for _ in range(int(sys.argv[2]))])
"""
# Notes when the first chart has points, and when the page last changed before two quiet seconds.
WATCH = """
(() => {
  const times = {};
  let done, last = 0;
  window.times = new Promise((resolve) => (done = resolve));
  const look = () => {
    const drawn = document.querySelector(".js-plotly-plot .scatterlayer .trace .points path, .js-plotly-plot canvas");
    if (drawn && !times.chart) {
      requestAnimationFrame(() => requestAnimationFrame(() => (times.chart ??= performance.now())));
    }
    last = performance.now();
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
  setInterval(() => {
    const all = Math.max(last, times.chart ?? Infinity);
    if (performance.now() - all > 2000) done({ ...times, all });
  }, 100);
})()
"""


def serve_study(python: str, journal: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start optuna-dashboard on a journal, and return it with its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binary = Path(python).with_name("optuna-dashboard")
    process = subprocess.Popen(
        [binary, "--port", str(port), str(journal)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            urllib.request.urlopen(f"{url}/api/studies").close()
        except OSError:
            time.sleep(0.1)
        else:
            return process, url


def times_of(browser: Browser, url: str, script: str, patience: float) -> dict[str, float]:
    """Open a page and return the seconds until its first chart and everything are drawn."""
    page = budget.settled_page(browser, patience)
    page.add_init_script(script)
    try:
        page.goto(url)
        limit = f"Promise.race([window.times, new Promise((done) => setTimeout(() => done({{}}), {1000 * patience}))])"
        found = page.evaluate(limit)
    except Error:  # the page does not answer at all
        found = {}
    return {name: min(patience, found.get(name, 1000 * patience) / 1000) for name in ("chart", "all")}


def compare(pages: dict[str, tuple[str, str]], rounds: int, patience: float) -> dict[str, dict[str, list[float]]]:
    """Return the times of each page in each round."""
    found: dict[str, dict[str, list[float]]] = {name: {"chart": [], "all": []} for name in pages}
    with sync_playwright() as play:
        for _ in range(rounds):
            for name, (url, script) in pages.items():
                browser = budget.chromium(play)
                for key, value in times_of(browser, url, script, patience).items():
                    found[name][key].append(value)
                browser.close()
    return found


def summary(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median and the least of each time."""
    return {
        name: {k: {"median": round(statistics.median(v), 2), "least": round(min(v), 2)} for k, v in of.items()}
        for name, of in found.items()
    }


def main() -> None:
    """Make the trials, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True)
    parser.add_argument("--trials", default="10000,50000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patience", type=float, default=60)
    parser.add_argument("--wait", type=Path, help="measure once this file exists")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        server, made = Outbid(Path(place)), []
        studies: list[subprocess.Popen[bytes]] = []
        try:
            for trials in map(int, args.trials.split(",")):
                journal = Path(place, f"{trials}.journal")
                subprocess.run(
                    [args.python, "-c", STUDY, str(journal), str(trials)], check=True, stderr=subprocess.DEVNULL
                )
                study, url = serve_study(args.python, journal)
                studies.append(study)
                sweep = many.make(server.url, "many", trials)
                made.append(
                    (
                        trials,
                        {
                            "outbid": (f"{server.url}/ui/sweeps/{sweep}", budget.WATCH),
                            "optuna-dashboard": (f"{url}/dashboard/studies/0", WATCH),
                        },
                    )
                )
            while args.wait and not args.wait.exists():
                time.sleep(0.5)
            for trials, pages in made:
                before = os.getloadavg()[0]
                found = compare(pages, args.rounds, args.patience)
                load = [round(before, 1), round(os.getloadavg()[0], 1)]
                print(json.dumps({"trials": trials, "load": load, **summary(found)}), flush=True)
        finally:
            for study in studies:
                study.terminate()
                study.wait()
            server.stop()


if __name__ == "__main__":
    main()
