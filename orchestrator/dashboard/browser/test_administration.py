"""The pages of API tokens, the audit and usage, for each role."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import Outbid, Watched
from playwright.sync_api import Locator, Page, expect
from test_identity import UNAUTHENTICATED, sign_in
from test_pages import SCREENS


def accessible(page: Page) -> None:
    """Check that a page has no violation of the rules of axe, and does not scroll sideways."""
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def row(page: Page, name: str) -> Locator:
    """Return the rows with a cell, such as the name of a token."""
    return page.locator("tbody tr", has=page.get_by_role("cell", name=name, exact=True))


@pytest.mark.parametrize(
    ("who", "pages"), [("root", {"Usage", "API tokens", "Audit"}), ("ada", {"Usage"}), ("eve", {"Usage"})]
)
def test_a_role_has_links_to_the_pages_that_it_may_read(
    guarded: Outbid, watched: Watched, who: str, pages: set[str]
) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "403 (Forbidden)")
    sign_in(page, guarded, who)
    expect(page.get_by_role("link", name="Usage")).to_be_visible()
    for name, path in {"Usage": "usage", "API tokens": "tokens", "Audit": "audit"}.items():
        expect(page.locator(f"nav a[href$='/ui/{path}']")).to_have_count(int(name in pages))
        page.goto(f"{guarded.url}/ui/{path}")
        expect(page.get_by_role("heading", level=1, name=name)).to_be_visible()
        if name in pages:
            expect(page.locator("main table, main .empty").first).not_to_have_text("Loading …")
        else:
            expect(page.get_by_role("alert")).to_contain_text("needs")


def test_a_token_is_created_rotated_and_revoked(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "400 (Bad Request)")
    sign_in(page, guarded, "root")
    page.goto(f"{guarded.url}/ui/tokens")
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill("ci")
    dialog.get_by_role("textbox", name="Tenant").fill("../no")
    dialog.get_by_role("checkbox", name="write").check()
    dialog.get_by_role("checkbox", name="read").check()
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("tenant")
    accessible(page)
    dialog.get_by_role("textbox", name="Tenant").fill("vision")
    dialog.get_by_role("button", name="Create").click()
    fresh = page.get_by_role("region", name="New token")
    expect(fresh).to_be_focused()
    first = fresh.locator("code").inner_text()
    expect(row(page, "ci")).to_contain_text("read, write")
    accessible(page)
    guarded.tokens["ci"] = first
    assert "hers-1" in guarded.run("ls", who="ci")

    page.get_by_role("button", name="Rotate ci").click()
    page.get_by_role("dialog").get_by_label("Overlap in hours").fill("0")
    page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    expect(fresh.locator("code")).not_to_have_text(first)
    second = fresh.locator("code").inner_text()
    with pytest.raises(AssertionError, match="token"):
        guarded.run("ls", who="ci")
    guarded.tokens["ci"] = second
    assert "hers-1" in guarded.run("ls", who="ci")
    assert second not in page.url and second not in page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    fresh.get_by_role("button", name="Hide it").click()
    expect(page.locator("body")).not_to_contain_text(second)

    page.get_by_role("button", name="Revoke ci").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row(page, "ci")).to_have_count(0)
    with pytest.raises(AssertionError, match="token"):
        guarded.run("ls", who="ci")

    page.goto(f"{guarded.url}/ui/audit?actor=root")
    for verb in ("create", "rotate", "delete"):
        expect(page.locator("tr", has_text=re.compile(rf"{verb}.*tokens vision ci")).first).to_be_visible()
    page.get_by_label("Record").first.click()
    expect(page.locator("pre").first).to_contain_text("objectRef")


@pytest.mark.parametrize("screen", SCREENS)
def test_the_audit_shows_denials_and_is_accessible(guarded: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    with pytest.raises(AssertionError, match="eve"):
        guarded.run("stop", "hers-1", who="eve")
    sign_in(page, guarded, "root")
    page.goto(f"{guarded.url}/ui/audit")
    page.get_by_label("only denied calls").check()
    expect(row(page, "eve").first).to_contain_text("denied (role)")
    expect(page.locator("tbody tr", has_text="✓")).to_have_count(0)
    accessible(page)
    page.get_by_label("Actor").fill("nobody")
    page.get_by_label("Actor").press("Enter")
    expect(page.locator("main")).to_contain_text("No record matches")


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_of_tokens_is_accessible(guarded: Outbid, watched: Watched, screen: str) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    page.emulate_media(color_scheme=SCREENS[screen]["color_scheme"])
    page.set_viewport_size(SCREENS[screen]["viewport"])
    name = f"board-{screen}"
    guarded.run("token", "create", name, "--tenant", "vision", "--role", "viewer")
    sign_in(page, guarded, "root")
    page.goto(f"{guarded.url}/ui/tokens")
    expect(row(page, name)).to_contain_text("viewer")
    accessible(page)
    page.get_by_role("button", name=f"Revoke {name}").press("Enter")
    accessible(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    guarded.run("token", "revoke", name, "--tenant", "vision")


def test_usage_sums_device_time_by_column(outbid: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{outbid.url}/ui/usage")
    expect(page.locator("tbody tr", has_text="default")).to_have_count(1)
    page.get_by_label("type", exact=True).check()
    expect(page.locator("tbody tr", has_text="cpu").first).to_be_visible()
    assert "by=tenant%2Ctype" in page.url
    page.get_by_label("Period").select_option("previous")
    expect(page.locator("main")).to_contain_text("No lease held a device")
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    assert saved.value.suggested_filename == "usage-previous.csv"
