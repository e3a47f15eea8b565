"""Sweeps are described and tagged in the browser, and found by that."""

from __future__ import annotations

import shlex

from axe_playwright_python.sync_playwright import Axe
from conftest import HOSTILE, Outbid, Watched, eventually
from playwright.sync_api import expect
from test_identity import UNAUTHENTICATED, sign_in, sign_out


def test_a_sweep_is_described_tagged_and_found(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "400 (Bad Request)")
    sign_in(page, guarded, "ada")
    page.goto(f"{guarded.url}/ui/sweeps/hers-1")
    page.get_by_role("button", name="Describe").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Description").fill(f"The baseline {HOSTILE}\nof October")
    dialog.get_by_label("Tags").fill("good, " + "x" * 65)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has 65 bytes; at most 64 are allowed")
    dialog.get_by_label("Tags").fill("good old")
    assert Axe().run(page).violations_count == 0
    dialog.get_by_text("This action elsewhere").click()
    command = dialog.locator("p.mono").first.inner_text()
    assert shlex.split(command)[:3] == ["outbid", "annotate", "hers-1"]
    assert shlex.split(command)[-2:] == ["--tag", "good,old"]
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("main")).to_contain_text(f"The baseline {HOSTILE}")
    found = guarded.sweep("hers-1", who="ada")
    assert (found["description"], found["tags"]) == (f"The baseline {HOSTILE}\nof October", ["good", "old"])

    page.goto(f"{guarded.url}/ui/")
    expect(page.get_by_role("row", name="hers-1")).to_contain_text("good old")
    for text, shown in (("october good", 1), ("novembre", 0), ("BASELINE", 1)):
        page.get_by_label("Search sweeps").fill(text)
        expect(page.locator("main span.dim", has_text=" of 1")).to_have_text(f"{shown} of 1")
    assert page.locator("main img").count() == 0 and page.title() != "owned"

    page.goto(f"{guarded.url}/ui/sweeps/hers-1")
    page.get_by_role("button", name="Edit description").click()
    dialog.get_by_label("Description").fill("")
    dialog.get_by_label("Tags").fill("old new")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_be_hidden()
    eventually(lambda: guarded.sweep("hers-1", who="ada")["tags"] == ["new", "old"], "the tags are not changed")
    assert guarded.sweep("hers-1", who="ada")["description"] == ""

    sign_out(page)
    sign_in(page, guarded, "eve")
    page.goto(f"{guarded.url}/ui/sweeps/hers-1")
    expect(page.locator("main .tag").first).to_have_text("new")
    expect(page.get_by_role("button", name="Edit description")).to_have_count(0)


def test_a_weight_above_the_limit_is_refused(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "400 (Bad Request)")
    sign_in(page, guarded, "ada")
    page.goto(f"{guarded.url}/ui/sweeps/hers-1")
    page.get_by_role("button", name="Extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Trials in all").fill("")
    dialog.get_by_label("Weight").fill("1000000")
    dialog.get_by_role("button", name="Extend").click()
    expect(dialog.get_by_role("alert")).to_contain_text("that tenant vision may have")
