"""Every page in a real browser: content, colour schemes, sizes, actions, and the effect of hostile text."""

from __future__ import annotations

import json
import re
import urllib.request

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import HOSTILE, Outbid, Watched, eventually, program
from playwright.sync_api import BrowserContext, Page, expect

# Each page, and a text that it shows once it has read.
PAGES = {
    "ui/": "finished-1",
    "ui/sweeps/finished-1": "12 of 12",
    "ui/sweeps/finished-1?explain=yes": "over 12 trials",
    "ui/sweeps/finished-1?why=yes": "finished-1 is done",
    "ui/sweeps/two-1": "Pareto front of loss and size",
    "ui/sweeps/lasting-1": "running",
    "ui/sweeps/finished-1/trials/0": "Configuration",
    "ui/cluster": "local",
    "ui/rounds": "largest rho",
    "ui/rounds/AUCTION": "Auction",
    "ui/what-if?policies=las&period=hour": "Submitted in",
    "ui/compare?sweeps=finished-1,two-1": "Side by side",
    "ui/submit": "Write the file",
    "ui/tenants": "default",
    "ui/usage?by=tenant,user,type&label=note": "total",
    "ui/audit": "sweeps default",
    "ui/server": "Policy: outbid",
}


def address(outbid: Outbid, path: str) -> str:
    """Return the URL of a page; AUCTION is the number of a round with an auction."""
    if "AUCTION" in path:
        with urllib.request.urlopen(f"{outbid.url}/v1/rounds?limit=100") as answer:
            rounds = json.load(answer)["rounds"]
        path = path.replace("AUCTION", next(r["round"] for r in rounds if r.get("auction")))
    return f"{outbid.url}/{path}"


SCREENS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_and_accessible(outbid: Outbid, watched: Watched, path: str, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(address(outbid, path))
    expect(page.locator("main")).to_contain_text(PAGES[path])
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page scrolls sideways by {wide} px"


@pytest.mark.parametrize(
    "path", ["ui/", "ui/sweeps/finished-1", "ui/sweeps/finished-1/trials/0", "ui/usage?by=tenant,user,type&label=note"]
)
def test_hostile_text_is_text(outbid: Outbid, watched: Watched, path: str) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/{path}")
    expect(page.locator("main")).to_contain_text(PAGES[path])
    if path != "ui/":
        expect(page.locator("main")).to_contain_text(HOSTILE)
    assert page.locator("main img").count() == 0
    assert page.title() != "owned"
    assert "\u202e" not in page.locator("main").inner_text()


@pytest.mark.parametrize("path", [p for p in PAGES if p != "ui/submit"])
def test_the_commands_of_a_page_run(outbid: Outbid, watched: Watched, path: str) -> None:
    page = watched.page
    page.goto(address(outbid, path))
    expect(page.locator("main")).to_contain_text(PAGES[path])
    page.get_by_text("This view elsewhere").click()
    lines = page.locator("details[open] code").all_inner_texts()
    assert len(lines) >= 2
    for line in lines:
        if line.startswith("ob."):
            continue  # the SDK is not installed with the browser: test_dashboard_commands.py of the SDK runs these
        for command in line.split("; "):
            outbid.shell(
                command + " || test $? = 1" * (command == "outbid doctor")
            )  # it fails where no Python has the SDK


def rows(page: Page) -> list[str]:
    """Return the numbers of the trials in the table, in its order."""
    return page.locator("table[aria-rowcount] tbody tr td:nth-child(2) a").all_inner_texts()


def test_the_table_sorts_filters_and_keeps_its_view_in_the_address(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/sweeps/finished-1")
    expect(page.locator("main")).to_contain_text("12 of 12")
    page.get_by_title("sort by lr").click()
    header = page.locator("table[aria-rowcount] thead th").all_inner_texts()
    lr = next(i for i, title in enumerate(header) if title.startswith("lr")) + 1
    numbers = [float(v) for v in page.locator(f"table[aria-rowcount] tbody tr td:nth-child({lr})").all_inner_texts()]
    assert len(numbers) == 12 and numbers == sorted(numbers)
    page.get_by_role("searchbox").fill("lr < 0.5 and state = done")
    few = page.get_by_text(re.compile(r"^\d+ of 12$"))
    expect(few).not_to_have_text("12 of 12")
    shown, order = few.inner_text(), rows(page)
    page.goto(page.url)
    expect(few).to_have_text(shown)
    assert rows(page) == order
    page.get_by_role("searchbox").fill("lr <")
    expect(page.locator("#filter-error")).to_be_visible()


def test_the_icon_stays_when_the_address_changes(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/sweeps/finished-1")
    page.get_by_role("link", name="Cluster").click()
    expect(page.get_by_role("heading", level=1, name="Cluster")).to_be_visible()
    icon = page.locator("link[rel=icon]").evaluate("icon => icon.href")
    assert icon == f"{outbid.url}/ui/icon.svg"


def test_the_whole_page_works_by_keyboard(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/")
    expect(page.locator("main")).to_contain_text("finished-1")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "finished-1":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="finished-1", exact=True)).to_be_visible()


def test_a_sweep_is_paused_resumed_and_stopped(outbid: Outbid, watched: Watched) -> None:
    sweep = outbid.submit(program("acted-on", steps=10_000, pause=0.1))
    page = watched.page
    page.goto(f"{outbid.url}/ui/sweeps/{sweep}")
    for action, state in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped")):
        page.get_by_role("button", name=action, exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name=action).click()
        eventually(lambda state=state: outbid.sweep(sweep)["state"] == state, f"{sweep} is not {state}")
        expect(page.locator("main")).to_contain_text(state)


def test_eight_tabs_show_a_running_sweep(outbid: Outbid, context: BrowserContext) -> None:
    tabs = [Watched(context.new_page()) for _ in range(8)]
    for tab in tabs:
        tab.page.goto(f"{outbid.url}/ui/sweeps/lasting-1")
    for tab in tabs:
        expect(tab.page.locator("main")).to_contain_text("running")
        before = tab.page.locator("dl.facts", has_text="steps").inner_text()
        expect(tab.page.locator("dl.facts", has_text="steps")).not_to_have_text(before)
        assert tab.unexpected() == []


def test_a_server_that_was_killed_comes_back(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = ("Failed to load resource", "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED")
    page.goto(f"{outbid.url}/ui/sweeps/lasting-1")
    expect(page.locator("main")).to_contain_text("running")
    outbid.kill()
    expect(page.get_by_role("alert")).to_be_visible()
    outbid.start()
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("main")).to_contain_text("running")


def test_a_log_is_searched_by_the_server(quiet: Outbid, watched: Watched) -> None:
    code = "for i in range(9000): print('line', i, flush=i == 8999)"
    spec = program("talks", trials=1)
    spec["program"]["command"][2] = code + "\n" + spec["program"]["command"][2]
    sweep = quiet.submit(spec)
    quiet.done(sweep)
    page = watched.page
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}/trials/0")
    log = page.get_by_role("log")
    expect(log).to_contain_text("line 8999")
    page.get_by_label("Search the log").fill("LINE 17")
    expect(page.get_by_role("status")).to_have_text("111 lines")
    expect(log).to_contain_text("line 1799")
    expect(log).not_to_contain_text("line 8999")
    page.get_by_label("Search the log").fill("nowhere")
    expect(page.locator("main")).to_contain_text("No line contains this text.")
