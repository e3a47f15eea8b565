"""The curves of a sweep's page show how unfinished trials may continue."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from conftest import Outbid, Watched, eventually, program
from playwright.sync_api import expect


def test_unfinished_trials_are_forecast(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    limits = {"trials": 3, "concurrency": 2}
    sweep = quiet.submit(program("seen-ahead", steps=400, pause=0.05, limits=limits))
    eventually(lambda: quiet.sweep(sweep)["steps"] > 40, "nothing is reported")
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}")
    page.get_by_label("forecasts of unfinished trials").check()
    expect(page.get_by_role("heading", name="Curves of the best unfinished trials")).to_be_visible()
    table = page.get_by_role("table", name="Forecasts of loss")
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table.get_by_role("row", name="#0 400")).to_be_visible()
    expect(page.locator("main")).to_contain_text("with probability 0.8")
    assert "forecast=yes" in page.url
    assert Axe().run(page).violations_count == 0
    quiet.run("stop", sweep)
    expect(page.locator("main")).to_contain_text("so there is nothing to forecast")


def test_a_trial_without_a_last_step_says_why(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    endless = program("endless", steps=2000, pause=0.05, trials=1, tuner={"random": {}})
    sweep = quiet.submit(endless)
    eventually(lambda: quiet.sweep(sweep)["steps"] > 10, "nothing is reported")
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}?forecast=yes")
    expect(page.locator("main")).to_contain_text("has no max_steps, so there is no step to forecast")
    quiet.run("stop", sweep)
