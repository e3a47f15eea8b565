"""Rho over time, prices of devices, and the present and earlier holders of a device."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from conftest import Outbid, Watched, eventually, program
from playwright.sync_api import expect
from test_pages import SCREENS
from test_sweep_parts import whole


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outbid]:
    """Run a server whose policy has prices, with a sweep that has been admitted."""
    server = Outbid(tmp_path_factory.mktemp("priced"), policy="oasis")
    try:
        server.submit(program("worthy", steps=2000, pause=0.05, trials=2, utility={"worth": 100.0}))
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("screen", SCREENS)
def test_rho_over_time(outbid: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{outbid.url}/ui/rounds")
    expect(page.get_by_role("heading", name="Rho over time")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile(r"Rho of \d+ sweeps over time"))).to_be_visible()
    expect(page.get_by_role("link", name="lasting-1").first).to_be_visible()
    whole(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_who_holds_a_device_and_until_when(outbid: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{outbid.url}/ui/cluster")
    block = page.get_by_role("link", name=re.compile(r"cpu \d of local: lasting-1 trial \d+, at least until \d\d:\d\d"))
    expect(block).to_be_visible()
    page.get_by_text("Holders of each device over time").press("Enter")
    expect(page.get_by_role("img", name=re.compile("Which sweep held which device"))).to_be_visible()
    table = page.locator("details table tbody tr")
    expect(table.filter(has_text="holds it").first).to_contain_text("lasting-1")
    expect(table.filter(has_text="finished-1").first).to_be_visible()
    page.get_by_role("combobox", name="device").select_option("local:2")
    expect(table.filter(has_text="local:1")).to_have_count(0)
    assert "device=local+2" in page.url and "holders=yes" in page.url
    whole(page)


def test_the_devices_of_a_node_by_pointer_and_keys(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/cluster")
    picture = page.get_by_role("img", name=re.compile(r"4 of 4 devices of local in use"))
    block = page.get_by_role("link", name=re.compile(r"cpu \d of local: lasting-1 trial \d+"))
    expect(picture).to_be_visible()
    block.focus()
    for key, device in (("Home", 0), ("ArrowRight", 1), ("End", 3), ("ArrowRight", 3), ("ArrowLeft", 2)):
        page.keyboard.press(key)
        expect(block).to_have_accessible_name(re.compile(f"cpu {device} of local"))
        expect(block).to_be_focused()
    expect(page.locator("[aria-live=polite]")).to_have_text(re.compile("cpu 2 of local: lasting-1 trial"))
    page.locator("[data-devices]").hover(position={"x": 24, "y": 7})
    expect(block).to_have_accessible_name(re.compile("cpu 1 of local"))
    expect(page.locator("[data-devices]")).to_have_attribute("title", re.compile("^cpu 1: lasting-1 trial"))
    block.click()
    expect(page).to_have_url(re.compile(r"/ui/sweeps/lasting-1/trials/\d+$"))


@pytest.mark.parametrize("path", ["", "cluster", "rounds"])
def test_a_page_pauses_between_two_reads(outbid: Outbid, watched: Watched, path: str) -> None:
    page, api = watched.page, {"": "sweeps", "cluster": "nodes", "rounds": "rounds"}[path]
    page.goto(f"{outbid.url}/ui/{path}")
    entries = "performance.getEntriesByType('resource')"
    asked = f"{entries}.filter((e) => e.name.includes('/v1/{api}')).map((e) => e.startTime)"
    eventually(lambda: len(page.evaluate(asked)) >= 3, "the page reads no more than twice")
    first, _, third = page.evaluate(asked)[:3]
    assert third - first > 2000, f"three reads within {third - first:.0f} ms"


@pytest.mark.parametrize("screen", SCREENS)
def test_prices_of_devices(priced: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    eventually(lambda: "cpu" in priced.run("prices"), "the policy sets no prices")
    page.goto(f"{priced.url}/ui/cluster")
    expect(page.get_by_role("heading", name="Prices of devices")).to_be_visible()
    expect(page.get_by_role("img", name="Price of a device by type")).to_be_visible()
    expect(page.locator("section tbody tr").first).to_contain_text("cpu")
    whole(page)


def test_a_policy_without_prices_shows_none(outbid: Outbid, watched: Watched) -> None:
    watched.page.goto(f"{outbid.url}/ui/cluster")
    expect(watched.page.locator("main")).to_contain_text("local")
    expect(watched.page.get_by_role("heading", name="Prices of devices")).to_have_count(0)
