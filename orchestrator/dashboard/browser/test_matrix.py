"""The pages of real sweeps of every tuner, and of every policy."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import BINARY, ROOT, Outbid, Watched, shown_rows
from playwright.sync_api import expect

# The settings of each tuner besides max_steps.
SETTINGS: dict[str, dict[str, Any]] = {
    "grid": {"points": 2},
    "pbt": {"population": 4, "interval": 2},
    "asha": {"eta": 2},
    "median": {"grace_steps": 2, "min_trials": 2},
    "patient": {"patience": 2},
}
STEPS = 4
# A trial that saves its step as its checkpoint, like the one of `outbid init`.
TRAIN = """
step=$OUTBID_START_STEP
while [ "$step" -lt "$OUTBID_UNTIL_STEP" ]; do
  step=$((step + 1))
  echo "{{\\"step\\": $step, \\"loss\\": $(awk "BEGIN {{ print {lr} + 1 / $step }}")}}" >> "$OUTBID_REPORT"
done
echo "$step" > "$OUTBID_CHECKPOINT_OUT"
"""


def tuners() -> list[str]:
    """Return the tuners that a spec may name. A plugin is a separate program, which the SDK's tests run."""
    types = (ROOT / "orchestrator/dashboard/web/src/lib/api.gen.ts").read_text()
    body = re.search(r"export interface Tuner \{(.*?)\}", types, re.DOTALL)
    assert body
    return [name for name in re.findall(r"(\w+)\?: \w+ \| null;", body[1]) if name != "plugin"]


def policies() -> list[str]:
    """Return the policies of this binary, which it lists when it does not know one."""
    done = subprocess.run([BINARY, "up", "--policy", "?"], capture_output=True, text=True, check=False)
    return re.sub(r".*there are ", "", done.stderr.strip()).split(", ")


def sweep(tuner: str) -> dict[str, Any]:
    """Return the spec of a short sweep."""
    return {
        "name": tuner.replace("_", "-"),
        "space": {"lr": {"float": {"low": 0.1, "high": 1}}, "units": {"int": {"low": 1, "high": 2}}},
        "metric": "loss",
        "mode": "min",
        "tuner": {tuner: {"max_steps": STEPS, **SETTINGS.get(tuner, {})}},
        "limits": {"trials": 4},
        "program": {"shell": TRAIN},
    }


def look(watched: Watched, server: Outbid, name: str) -> None:
    """Look at the page of a sweep that has ended, and at that of its best trial."""
    page, shown = watched.page, server.sweep(name)
    assert shown["state"] == "done", shown
    page.goto(f"{server.url}/ui/sweeps/{name}")
    total = shown["counts"]["total"]
    expect(shown_rows(page, total, total)).to_be_visible()
    expect(page.locator("table[aria-rowcount] tbody tr")).to_have_count(total)
    expect(page.locator(".u-wrap canvas").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    page.get_by_role("link", name=re.compile(r"^trial \d+$")).first.click()
    expect(page.get_by_role("heading", name="Configuration")).to_be_visible()
    expect(page.get_by_role("heading", name="Progress")).to_be_visible()


def test_sweeps_of_every_tuner(watched: Watched, tmp_path: Path) -> None:
    server = Outbid(tmp_path)
    try:
        names = [server.submit(sweep(tuner)) for tuner in tuners()]
        assert len(names) >= 12
        for name in names:
            server.done(name)
            look(watched, server, name)
    finally:
        server.stop()


@pytest.mark.parametrize("policy", policies())
def test_a_sweep_under_every_policy(watched: Watched, tmp_path: Path, policy: str) -> None:
    server = Outbid(tmp_path, policy=policy)
    try:
        name = server.submit(sweep("asha"))
        page = watched.page
        page.goto(f"{server.url}/ui/sweeps/{name}")
        server.done(name)
        expect(page.locator("main")).to_contain_text("done")
        look(watched, server, name)
        page.goto(f"{server.url}/ui/rounds")
        page.locator("main table a").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Round")
        page.goto(f"{server.url}/ui/server")
        expect(page.locator("main")).to_contain_text(policy)
    finally:
        server.stop()
