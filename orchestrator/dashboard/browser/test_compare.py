"""The list of sweeps in groups, and sweeps next to each other."""

from __future__ import annotations

import pytest
from conftest import HOSTILE, Outbid, Watched
from playwright.sync_api import expect
from test_pages import SCREENS
from test_sweep_parts import whole


@pytest.mark.parametrize("screen", SCREENS)
def test_sweeps_are_chosen_and_compared(outbid: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{outbid.url}/ui/")
    for sweep in ("finished-1", "two-1"):
        page.get_by_role("checkbox", name=f"compare {sweep}").press("Space")
    page.get_by_role("link", name="Compare 2").press("Enter")
    expect(page.get_by_role("heading", level=1, name="Comparison of 2 sweeps")).to_be_visible()
    expect(page.get_by_role("img", name="Best so far of 2 sweeps over trials")).to_be_visible()
    table = page.locator("section", has=page.get_by_role("heading", name="Side by side"))
    expect(table.get_by_role("row", name="lr")).to_be_visible()
    expect(table.get_by_role("row", name="steps 60 60")).to_be_visible()
    whole(page)
    page.get_by_role("combobox", name="over").select_option("device-hours")
    expect(page.get_by_role("img", name="Best so far of 2 sweeps over device-hours")).to_be_visible()
    assert "over=time" in page.url and "sweeps=finished-1%2Ctwo-1" in page.url
    page.get_by_role("button", name="Remove two-1").click()
    expect(page.get_by_role("heading", level=1, name="Comparison of 1 sweep")).to_be_visible()


def test_a_sweep_that_does_not_exist_hides_no_other(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = ("404 (Not Found)",)
    page.goto(f"{outbid.url}/ui/compare?sweeps=finished-1,gone-1")
    expect(page.get_by_role("alert")).to_contain_text("gone-1: ")
    expect(page.get_by_role("img", name="Best so far of 1 sweep over trials")).to_be_visible()


def test_the_list_is_grouped(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/")
    page.get_by_role("combobox", name="group by").select_option("label note")
    groups = page.locator("th[scope=rowgroup]")
    expect(groups.first).to_contain_text(HOSTILE)
    expect(groups.last).to_contain_text("none")
    whole(page)
    page.get_by_role("combobox", name="group by").select_option("state")
    expect(groups.first).to_contain_text("done")
    page.goto(page.url)
    expect(groups.first).to_contain_text("done")
