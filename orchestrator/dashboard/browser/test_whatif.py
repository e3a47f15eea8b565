"""Other policies are simulated in the browser."""

from __future__ import annotations

import re
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Outbid, Watched, eventually, program
from playwright.sync_api import expect
from test_identity import UNAUTHENTICATED, sign_in
from test_pages import SCREENS


@pytest.fixture(scope="module")
def ended(quiet: Outbid) -> str:
    """End two sweeps that share the devices, and return the first one's name."""
    sweeps = [quiet.submit(program(name, pause=0.05, trials=6)) for name in ("earlier", "later")]
    for sweep in sweeps:
        quiet.done(sweep)
    return sweeps[0]


@pytest.mark.parametrize("screen", SCREENS)
def test_policies_and_a_weight_are_simulated(quiet: Outbid, watched: Watched, ended: str, screen: str) -> None:
    page = watched.page
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    page.goto(f"{quiet.url}/ui/sweeps/{ended}?why=yes")
    page.get_by_role("link", name="What would all sweeps do?").click()
    expect(page.get_by_role("heading", level=1, name="What if")).to_be_visible()
    expect(page.get_by_label("Sweep", exact=True)).to_have_value(ended)
    page.get_by_label("fifo").check()
    page.get_by_label("drf").check()
    page.get_by_label("Submitted in").select_option("day")
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("tfoot")).to_be_visible()
    expect(page.locator("thead th[colspan]")).to_have_text(
        ["what happened", "outbid", "outbid, weight 2", "drf", "fifo"]
    )
    expect(page.get_by_role("button", name="Simulate")).to_be_enabled()
    row = page.get_by_role("row", name=ended)
    expect(row.locator("td.first")).to_have_count(5)
    for cell in row.locator("td.first").all_inner_texts():
        assert re.match(r"\d+s", cell), f"it ends after {cell}"
    page.get_by_text("Assumptions of the simulations").click()
    expect(page.locator("main")).to_contain_text("trials train as fast as they were measured")
    assert Axe().run(page).violations_count == 0
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page scrolls sideways by {wide} px"
    page.get_by_text("This view elsewhere").click()
    commands = page.locator("details[open] code").all_inner_texts()
    assert commands[0] == f"outbid what-if --policy drf,fifo --sweep {ended} --weight 2 --since 24h"
    for command in (commands[0], commands[-1]):
        quiet.shell(command)


def test_other_tenants_have_no_names(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    sign_in(page, guarded, "bob")
    page.goto(f"{guarded.url}/ui/what-if?policies=las")
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("tfoot")).to_be_visible()
    expect(page.locator("tbody")).to_contain_text("or deleted")
    assert "hers-1" not in page.locator("main").inner_text()


def simulates(server: Outbid) -> bool:
    """Report whether a process of the server simulates its ledger."""
    assert server.process is not None
    found = subprocess.run(["ps", "-A", "-o", "ppid=,args="], capture_output=True, text=True, check=True).stdout
    return any(line.split()[0] == str(server.process.pid) and "simulate-ledger" in line for line in found.splitlines())


def test_a_running_simulation_is_cancelled(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    silent = quiet.submit(program("silent", steps=0, trials=1))  # its speed is unknown
    quiet.done(silent)
    endless = quiet.submit(program("endless", steps=10_000, pause=0.05, trials=100_000))
    eventually(lambda: quiet.sweep(endless)["steps"], f"no trial of {endless} reports")
    try:
        page.goto(f"{quiet.url}/ui/what-if?policies=drf,fifo&period=all")
        for _ in range(2):  # a cancelled simulation does not keep the next one from starting
            page.get_by_role("button", name="Simulate").click()
            expect(page.get_by_text(re.compile(r"^Simulating \w+: \d+ of \d+ sweeps have ended$"))).to_be_visible()
            expect(page.locator("thead th[colspan]")).to_have_text(["what happened"])
            assert simulates(quiet)
            page.get_by_role("button", name="Cancel").click()
            expect(page.get_by_role("button", name="Simulate")).to_be_enabled()
            # The server ends it itself after a minute.
            eventually(lambda: not simulates(quiet), "the simulation continues", 20)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_text("Simulating")).to_have_count(0)
        expect(page.get_by_role("row", name=silent)).to_contain_text("speed unknown")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    finally:
        quiet.run("stop", endless)
        quiet.done(endless)
