"""The parts of a sweep's page that are opened: failures, two parameters together, the timeline, forks and soups."""

from __future__ import annotations

import json
import re
import struct
import urllib.request
from typing import Any

import many
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import HOSTILE, Outbid, Watched, program, shown_rows
from playwright.sync_api import Page, Route, expect
from test_matrix import sweep as spec_of
from test_pages import SCREENS

TRIALS = 12
ERRORS = {0: f"ValueError: {HOSTILE}\u202e", 1: "CUDA out of memory", 2: f"ValueError: {HOSTILE}\u202e"}


def post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a body to the server and return the answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def failing(server: Outbid) -> str:
    """Make a sweep whose odd trials failed."""
    spec = many.spec("failing", TRIALS) | {"max_restarts": 0}
    sweep = post(f"{server.url}/v1/sweeps", {"spec": spec})["sweep"]["id"]
    for n in range(TRIALS):
        asked = post(f"{server.url}/v1/sweeps/{sweep}:ask", {"client": "test"})
        trial, lease = asked["trial"], {"lease_id": asked["lease_id"]}
        reports = [{"step": 1, "seq": 1, "metrics": {"loss": many.loss(trial["config"])}}]
        end = {"error": ERRORS[n // 2 % 3]} if n % 2 else {"reports": reports, "finished": True}
        post(f"{server.url}/v1/sweeps/{sweep}/trials/{trial['number']}:tell", lease | end)
    server.done(sweep)
    return str(sweep)


@pytest.fixture(scope="module")
def failed(quiet: Outbid) -> str:
    """Make a sweep with failures of two kinds."""
    return failing(quiet)


def whole(page: Page) -> None:
    """Check that a page is accessible, does not scroll sideways, and has hostile text only as text."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.locator("main img").count() == 0 and page.title() != "owned"
    assert "\u202e" not in page.locator("main").inner_text()


@pytest.mark.parametrize("screen", SCREENS)
def test_every_part_is_whole_and_accessible(quiet: Outbid, watched: Watched, failed: str, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{quiet.url}/ui/sweeps/{failed}?contour=yes&timeline=yes")
    expect(page.get_by_role("heading", name="Failures by kind")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("Mean loss of the trials over lr and momentum"))).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("When 12 trials were created"))).to_be_visible()
    whole(page)


def test_failures_are_grouped_and_filter_the_table(quiet: Outbid, watched: Watched, failed: str) -> None:
    page = watched.page
    page.goto(f"{quiet.url}/ui/sweeps/{failed}")
    table = page.locator("section", has=page.get_by_role("heading", name="Failures by kind")).locator("tbody tr")
    expect(table).to_have_count(2)
    expect(table.first).to_contain_text(HOSTILE)
    expect(table.first.locator("td").first).to_have_text("4")
    button = page.get_by_role("button", name="Show only trials with: CUDA out of memory")
    button.focus()
    page.keyboard.press("Enter")
    expect(shown_rows(page, 2, TRIALS)).to_be_visible()
    expect(button).to_have_attribute("aria-pressed", "true")
    page.goto(page.url)
    expect(shown_rows(page, 2, TRIALS)).to_be_visible()
    button.click()
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_visible()
    table.first.get_by_role("button").click()
    expect(shown_rows(page, 4, TRIALS)).to_be_visible()
    page.get_by_role("searchbox").fill("reason ~ cuda")
    expect(shown_rows(page, 2, TRIALS)).to_be_visible()


def test_two_parameters_are_chosen_and_a_cell_filters(quiet: Outbid, watched: Watched, failed: str) -> None:
    page = watched.page
    page.goto(f"{quiet.url}/ui/sweeps/{failed}")
    expect(page.locator("canvas").first).to_be_attached()
    drawn = page.get_by_role("img", name=re.compile("of the trials over"))
    expect(drawn).to_have_count(0)
    page.get_by_text("Two parameters together").press("Enter")
    page.get_by_role("combobox", name="up", exact=True).select_option("units")
    page.get_by_role("combobox", name="each cell shows").select_option("best")
    expect(page.get_by_role("img", name=re.compile("Best loss of the trials over lr and units"))).to_be_visible()
    assert "cy=units" in page.url and "cell=best" in page.url
    page.get_by_role("button", name="Show the trials of cell 1").click()
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_hidden()
    page.get_by_role("combobox", name="up", exact=True).select_option("optimizer")
    expect(page.get_by_role("img", name=re.compile("over lr and optimizer"))).to_be_visible()


def test_a_line_of_the_timeline_opens_its_trial(quiet: Outbid, watched: Watched, failed: str) -> None:
    page = watched.page
    page.goto(f"{quiet.url}/ui/sweeps/{failed}?timeline=yes")
    drawn = page.get_by_role("img", name=re.compile("When 12 trials were created")).locator("canvas")
    drawn.click(position={"x": 200, "y": 10})
    expect(page.get_by_role("heading", level=1, name=f"{failed} / trial 0")).to_be_visible()


def test_many_trials_are_drawn_quickly(quiet: Outbid, watched: Watched) -> None:
    """What is measured is the browser's computing time, so that a busy machine does not matter much."""
    page = watched.page
    sweep = many.make(quiet.url, "dense", 3000)
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}?contour=yes&timeline=yes")
    expect(page.get_by_text(re.compile("Each line shows 8 trials"))).to_be_visible()
    expect(page.get_by_text("3000 trials", exact=True)).to_be_visible()
    for ms in page.locator("[data-ms]").evaluate_all("all => all.map(e => Number(e.dataset.ms))"):
        assert 0 <= ms < 1000


def rewrite(route: Route, change: Any) -> None:
    """Answer a request for columns with what the server says, after a change of its head."""
    answer = route.fetch()
    data, out = answer.body(), b""
    while data:
        head, size = struct.unpack("<II", data[:8])
        piece, rest = json.loads(data[8 : 8 + head]), data[8 + head : 8 + head + size]
        data = data[8 + head + size :]
        rest = change(piece, rest)
        text = json.dumps(piece).encode()
        text += b" " * (-(8 + len(text)) % 8)
        out += struct.pack("<II", len(text), len(rest)) + text + rest
    route.fulfill(status=200, headers={"Content-Type": "application/octet-stream"}, body=out)


SOUP = {
    "number": 1,
    "key": "k",
    "bytes": "2048",
    "sha256": "",
    "time": "2026-01-01T10:00:00Z",
    "actor": HOSTILE,
    "metric": 0.5,
    "parts": [
        {"trial": 0, "metric": 0.7, "soup": 0.7, "kept": True, "note": ""},
        {"trial": 2, "metric": 0.8, "soup": 0.9, "kept": False, "note": HOSTILE},
    ],
}
MERGE = {
    "round": 1,
    "time": "2026-01-01T10:00:00Z",
    "from_step": "0",
    "step": "40",
    "averaged_on": "node-b",
    "reason": HOSTILE,
    "verdict": "MERGE_VERDICT_DROPPED",
    "metric": 0.9,
    "best_metric": 0.6,
    "forks": [
        {"places": [{"node": HOSTILE, "devices": [0], "type": "cpu"}], "counted": "30", "share": "30", "steps": "30"}
    ],
}


@pytest.mark.parametrize("screen", SCREENS)
def test_forks_and_soups(quiet: Outbid, watched: Watched, failed: str, screen: str) -> None:
    """The answers have what a worker and `outbid soup` would have recorded."""
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])

    def columns(piece: dict[str, Any], data: bytes) -> bytes:
        if "sweep" in piece:
            piece["sweep"]["soups"] = [SOUP]
        if piece["rows"] == 0:
            return data
        piece["columns"].append({"kind": "TRIAL_COLUMN_KIND_TRIAL", "name": "rounds", "type": "u8"})
        return data + (bytes([1]) + bytes(piece["rows"] - 1)).ljust(-(-piece["rows"] // 8) * 8, b"\0")

    def trial(route: Route) -> None:
        answer = route.fetch().json()
        answer["trial"] |= {"merges": [MERGE], "rounds": 1}
        route.fulfill(json=answer)

    page.route(re.compile(rf"/v1/sweeps/{failed}/columns"), lambda route: rewrite(route, columns))
    page.route(re.compile(rf"/v1/sweeps/{failed}/trials/0$"), trial)
    page.goto(f"{quiet.url}/ui/sweeps/{failed}?forks=yes")
    main = page.locator("main")
    expect(main).to_contain_text("1 trial was trained by several forks")
    expect(main).to_contain_text("✗ dropped (0.9 with, 0.6 without)")
    expect(main).to_contain_text("the average of 1 of 2 checkpoints")
    expect(main).to_contain_text(f"outbid soup {failed} --get 1 --to FILE")
    whole(page)


def test_copies_in_a_population(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    spec = spec_of("pbt")
    spec["limits"]["concurrency"] = 1  # all reach a step before they are compared, so that the worst copies another
    sweep = quiet.submit(spec)
    quiet.done(sweep)
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}")
    page.get_by_text("Forks, copies and soups").press("Enter")
    expect(page.get_by_role("heading", name="Copies")).to_be_visible()
    copied = page.get_by_role("region", name="Copies of trials").locator("tbody tr").first
    expect(copied.get_by_role("link")).not_to_have_count(1)
    whole(page)


def test_a_picked_curve_does_not_wait_for_the_pause_between_reads(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    sweep = quiet.submit(program("picked", trials=4))
    quiet.done(sweep)
    page.clock.install()
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}")
    curves = page.get_by_role("img", name=re.compile("loss by step of trials"))
    expect(curves).to_be_visible()
    page.clock.pause_at(page.evaluate("Date.now()") + 1000)  # now no pause ends
    for picked in ("2", "2, 0"):
        page.get_by_label(f"compare trial {picked[-1]}").check()
        expect(curves).to_have_accessible_name(f"loss by step of trials {picked}")
