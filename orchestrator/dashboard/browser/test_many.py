"""The page of a sweep of many trials. `budget.py` measures 100,000."""

from __future__ import annotations

import many
import pytest
from conftest import Outbid, Watched, shown_rows
from playwright.sync_api import Page, expect

TRIALS = 6000


@pytest.fixture(scope="module")
def large(quiet: Outbid) -> str:
    """Make a sweep that comes in several pieces."""
    return many.make(quiet.url, "large", TRIALS)


def shown(page: Page, column: str) -> list[str]:
    """Return the values of a column in the rows that are in the page."""
    header = page.locator("table[aria-rowcount] thead th").all_inner_texts()
    at = next(i for i, title in enumerate(header) if title.split()[:1] == [column]) + 1
    return page.locator(f"table[aria-rowcount] tbody tr:not(.space) td:nth-child({at})").all_inner_texts()


def test_many_trials_are_sorted_filtered_and_scrolled(quiet: Outbid, watched: Watched, large: str) -> None:
    page = watched.page
    page.goto(f"{quiet.url}/ui/sweeps/{large}")
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_visible()
    losses = [float(v) for v in shown(page, "loss")]
    assert 20 <= len(losses) < 100 and losses == sorted(losses), "only the rows in view are in the page"
    first = page.locator("table[aria-rowcount] tbody a").first.inner_text()
    expect(page.locator("p.best a")).to_have_text(f"trial {first}")
    page.get_by_title("sort by #").click()
    page.get_by_title("sort by #").click()
    expect(page.locator("table[aria-rowcount] tbody a").first).to_have_text(str(TRIALS - 1))
    page.get_by_role("region", name="Trials").evaluate("e => e.scrollTo(0, e.scrollHeight)")
    expect(page.get_by_role("link", name="0", exact=True)).to_be_visible()
    page.get_by_role("searchbox").fill("optimizer = lion and number < 3000")
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_hidden()
    page.get_by_role("region", name="Trials").evaluate("e => e.scrollTo(0, 0)")
    assert set(shown(page, "optimizer")) == {"lion"}
    expect(page.locator(".u-wrap canvas")).to_have_count(1)


# Notes the delays of all timers that are set before a table is in the page.
TIMERS = """
(() => {
  const set = window.setTimeout;
  window.delays = [];
  window.setTimeout = (call, delay = 0, ...rest) => {
    if (!document.querySelector("table[aria-rowcount] tbody a")) window.delays.push(delay);
    return set(call, delay, ...rest);
  };
})()
"""


def test_the_first_draw_waits_for_no_timer(quiet: Outbid, watched: Watched, large: str) -> None:
    """The pause between two draws of many trials is not one before the first."""
    watched.page.add_init_script(TIMERS)
    watched.page.goto(f"{quiet.url}/ui/sweeps/{large}")
    expect(shown_rows(watched.page, TRIALS, TRIALS)).to_be_visible()
    delays = watched.page.evaluate("window.delays")
    assert 0 in delays and not [d for d in delays if 16 < d <= 1000], delays


def test_trials_are_asked_for_before_anything_else_and_once(quiet: Outbid, watched: Watched, large: str) -> None:
    page = watched.page
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url.removeprefix(quiet.url)) if "/v1/" in r.url else None)
    page.goto(f"{quiet.url}/ui/sweeps/{large}")
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_visible()
    assert asked[0] == f"/v1/sweeps/{large}/columns"
    assert [a for a in asked if "columns" in a and "since=" not in a] == asked[:1]
    page.get_by_role("link", name="Sweeps").click()  # and another sweep's page asks by itself
    page.get_by_role("link", name=large).click()
    expect(shown_rows(page, TRIALS, TRIALS)).to_be_visible()


def test_a_sweep_that_grows(quiet: Outbid, watched: Watched) -> None:
    """Trials appear in the page that is open."""
    page = watched.page
    sweep = many.make(quiet.url, "growing", 20)
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}")
    expect(shown_rows(page, 20, 20)).to_be_visible()
    page.get_by_role("button", name="Extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Trials in all").fill("30")
    dialog.get_by_role("button", name="Extend").click()
    expect(dialog).to_be_hidden()
    many.go_on(quiet.url, sweep)
    expect(shown_rows(page, 30, 30)).to_be_visible()
