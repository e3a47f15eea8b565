"""The page that opens the files of the simulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import HOSTILE, Outbid, Watched
from playwright.sync_api import expect
from test_pages import SCREENS
from test_sweep_parts import whole

JOBS = "job_id,submit_s,num_gpus,duration_s,tenant,status,model,gpu_type,extra\n" + "".join(
    f"j{i},{30 * i},{1 + i % 4},{200 + 100 * (i % 7)},{'vision' if i % 2 else 'speech'},,,,\n" for i in range(20)
)


@pytest.fixture(scope="module")
def files(quiet: Outbid) -> Path:
    """Let `outbid sim` and `outbid replay` write their files."""
    place = quiet.place
    (place / "jobs.csv").write_text(JOBS)
    run = ("sim", "--cluster", "gpu:8/4", "--trace", "jobs.csv", "--policy", "fifo,drf", "-o", "json")
    (place / "runs.jsonl").write_text(quiet.run(*run, "--apps", "apps.jsonl", "--events", "events.jsonl"))
    (place / "replay.json").write_text(quiet.run("replay", "events-drf.jsonl", "-o", "json"))
    return place


@pytest.mark.parametrize("screen", SCREENS)
def test_files_of_the_simulator_are_drawn(quiet: Outbid, watched: Watched, files: Path, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{quiet.url}/ui/")
    page.get_by_role("link", name="Results").press("Enter")
    page.get_by_label("Open files").set_input_files([files / f for f in ("runs.jsonl", "apps.jsonl", "replay.json")])
    expect(page.get_by_role("status")).to_have_text("runs.jsonl, apps.jsonl, replay.json: 2 runs, 40 sweeps.")
    expect(page.get_by_role("img", name="jct_mean_s by policy")).to_be_visible()
    expect(page.get_by_role("img", name="Share of sweeps with at most this rho")).to_be_visible()
    expect(page.locator("main")).to_contain_text("decisions are the same")
    page.get_by_role("combobox", name="figure").select_option("rho_max")
    expect(page.get_by_role("img", name="rho_max by policy")).to_be_visible()
    assert "figure=rho_max" in page.url
    page.get_by_label("all figures in the table").check()
    expect(page.get_by_role("columnheader", name="peak_memory_bytes")).to_be_attached()
    whole(page)


def test_figures_over_a_setting(quiet: Outbid, watched: Watched, tmp_path: Path) -> None:
    runs = [
        {"setting": "load", "value": str(v), "policy": p, "jobs": 3, "jct_mean_s": v * 10}
        for v in (1, 1.5, 2)
        for p in ("fifo", HOSTILE)
    ]
    (tmp_path / "swept.jsonl").write_text("\n".join(map(json.dumps, runs)))
    page = watched.page
    page.goto(f"{quiet.url}/ui/results")
    page.get_by_label("Open files").set_input_files(tmp_path / "swept.jsonl")
    expect(page.get_by_role("img", name="jct_mean_s over load")).to_be_visible()
    expect(page.get_by_role("row", name=f"{HOSTILE}, load=1.5")).to_be_visible()
    whole(page)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("", "bad.jsonl: is empty"),
        (HOSTILE, "bad.jsonl: has no line of 'outbid sim -o json'"),
        ("{" * 100_000, "bad.jsonl: has no line of"),
    ],
)
def test_another_file_is_refused(quiet: Outbid, watched: Watched, tmp_path: Path, content: str, error: str) -> None:
    page = watched.page
    (tmp_path / "bad.jsonl").write_text(content)
    page.goto(f"{quiet.url}/ui/results")
    page.get_by_label("Open files").set_input_files(tmp_path / "bad.jsonl")
    expect(page.get_by_role("alert")).to_contain_text(error)


def test_a_ledger_is_named(quiet: Outbid, watched: Watched, files: Path) -> None:
    watched.page.goto(f"{quiet.url}/ui/results")
    watched.page.get_by_label("Open files").set_input_files(files / "events-fifo.jsonl")
    expect(watched.page.get_by_role("alert")).to_contain_text("events-fifo.jsonl: is a ledger")
