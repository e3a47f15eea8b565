"""Permissions of users, in a real browser."""

from __future__ import annotations

import pytest
from conftest import Outbid, Watched, eventually, program
from playwright.sync_api import BrowserContext, Page, expect

UNAUTHENTICATED = ("401 (Unauthorized)",)


def sign_in(page: Page, server: Outbid, who: str) -> None:
    """Sign in by hand, and wait for the session: opening another page would interrupt the request."""
    page.goto(f"{server.url}/ui/")
    page.get_by_label("Token").fill(server.tokens[who])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def sign_out(page: Page) -> None:
    """Sign out, and wait until the session has ended."""
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()


@pytest.mark.parametrize(
    ("who", "sees", "acts"), [("root", True, True), ("ada", True, True), ("eve", True, False), ("bob", False, False)]
)
def test_a_token_shows_its_tenants_sweeps_and_actions(
    guarded: Outbid, watched: Watched, who: str, sees: bool, acts: bool
) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "404 (Not Found)")
    sign_in(page, guarded, who)
    page.goto(f"{guarded.url}/ui/sweeps/hers-1")
    if not sees:
        expect(page.get_by_role("alert")).to_be_visible()
        return
    expect(page.locator("main")).to_contain_text("4 of 4")
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()  # so the page knows who asks
    expect(page.get_by_role("button", name="Delete")).to_have_count(int(acts))


def test_a_wrong_token_is_refused_and_signing_out_ends_a_session(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    page.goto(f"{guarded.url}/ui/")
    page.get_by_label("Token").fill("outbid_00000000000000000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.get_by_label("Token").fill(guarded.tokens["ada"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("main")).to_contain_text("hers-1")
    assert page.evaluate("document.cookie") == "", "scripts can read the session"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_link_of_outbid_ui_signs_in_once(guarded: Outbid, watched: Watched, context: BrowserContext) -> None:
    link = guarded.run("ui", "hers-1", "--print", who="ada").strip()
    assert guarded.tokens["ada"] not in link
    page = watched.page
    page.goto(link)
    expect(page.locator("main")).to_contain_text("4 of 4")
    expect(page.get_by_text("ada@vision")).to_be_visible()
    assert "code" not in page.url
    context.clear_cookies()
    watched.expected = UNAUTHENTICATED
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_role("alert")).to_contain_text("used before")


def test_a_removed_token_ends_its_session(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    tokens = guarded.place / "tokens"
    before = tokens.read_text()
    sign_in(page, guarded, "eve")
    expect(page.locator("main")).to_contain_text("hers-1")
    tokens.write_text("".join(line + "\n" for line in before.splitlines() if " eve " not in line))
    try:
        expect(page.get_by_label("Token")).to_be_visible()
    finally:
        tokens.write_text(before)


def test_another_tenants_names_do_not_show_on_shared_pages(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    # Trials of a server with tokens run as other users, who may not reach this Python.
    report = 'for i in $(seq 9999); do echo "{{\\"step\\": $i, \\"loss\\": 1}}" >> $OUTBID_REPORT; sleep 0.1; done'
    spec = program("secret-name", steps=9999, program={"command": ["sh", "-c", report]})
    sweep = guarded.submit(spec, who="ada")
    eventually(lambda: guarded.sweep(sweep)["steps"], "the sweep does not run")
    sign_in(page, guarded, "bob")
    for path, shown in (("ui/", "Sweeps"), ("ui/cluster", "local"), ("ui/rounds", "Rounds")):
        page.goto(f"{guarded.url}/{path}")
        expect(page.locator("body")).to_contain_text(shown)
        expect(page.locator("main")).not_to_contain_text("secret-name")
    guarded.run("stop", sweep, who="ada")
