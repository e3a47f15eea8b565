"""Sweeps are submitted, extended and deleted in the browser."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from conftest import Outbid, Watched, eventually, program
from playwright.sync_api import expect
from test_identity import UNAUTHENTICATED, sign_in, sign_out


def test_a_file_is_previewed_and_submitted(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = ("400 (Bad Request)",)
    page.goto(f"{quiet.url}/ui/")
    page.get_by_role("link", name="New sweep").click()
    file = json.dumps(program("from-page", trials=3), indent=1)
    page.get_by_label("Open …").set_input_files(
        {"name": "sweep.json", "mimeType": "application/json", "buffer": file.encode()}
    )
    expect(page.get_by_role("heading", name="Preview", exact=True)).to_be_visible()
    expect(page.locator("dl.facts").first).to_contain_text("15")
    assert Axe().run(page).violations_count == 0
    box = page.get_by_label("File (YAML or JSON)")
    box.fill(file.replace('"metric"', '"metrik"'))
    page.get_by_role("button", name="Preview").click()
    wrong = next(n for n, line in enumerate(file.splitlines(), 1) if '"metric"' in line)
    expect(page.get_by_role("alert")).to_contain_text(f"line {wrong}")
    selected = box.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)")
    assert "metrik" in selected, "the line is selected"
    box.fill(file)
    page.get_by_role("button", name="Submit …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 trials")
    dialog.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("heading", level=1, name="from-page-1")).to_be_visible()
    quiet.done("from-page-1")
    expect(page.locator("main")).to_contain_text("3 of 3")
    page.get_by_role("link", name="Submit again").click()
    expect(box).to_have_value(re.compile('"from-page",'))
    expect(box).to_have_value('{\n  "name": "from-page",' + box.input_value().split('"from-page",', 1)[1])


def test_the_form_writes_a_file_that_runs(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    page.goto(f"{quiet.url}/ui/submit")
    page.get_by_label("Name").fill("form")
    page.get_by_label("Tuner").select_option("random")
    page.get_by_label("Steps per trial").fill("2")
    page.get_by_label("Trials", exact=True).fill("2")
    page.get_by_role("button", name="Add a parameter").click()
    row = page.get_by_role("group", name="Parameter 2")
    row.get_by_label("Parameter", exact=True).fill("opt")
    row.get_by_label("Kind").select_option("choice")
    row.get_by_label("Values").fill("adam, sgd")
    report = 'for i in 1 2; do echo "{{\\"step\\": $i, \\"loss\\": {lr}}}" >> $OUTBID_REPORT; done; echo {opt}'
    page.get_by_label("Command").fill(report)
    page.get_by_role("button", name="Write the file").click()
    expect(page.get_by_role("heading", name="Preview", exact=True)).to_be_visible()
    page.get_by_role("button", name="Submit …").click()
    page.get_by_role("dialog").get_by_role("button", name="Submit").click()
    page.wait_for_url("**/sweeps/form-1*")
    quiet.done("form-1")
    assert quiet.sweep("form-1")["state"] == "done"
    expect(page.locator("main")).to_contain_text("2 of 2")


def test_a_sweep_is_extended_and_deleted(quiet: Outbid, watched: Watched) -> None:
    sweep = quiet.submit(
        program("longer", steps=3, limits={"trials": 2, "wall_time": "60m", "device_hours": 5, "cost": 40})
    )
    quiet.done(sweep)
    page = watched.page
    watched.expected = ("400 (Bad Request)", "404 (Not Found)")
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}")
    page.get_by_role("button", name="Extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Wall time").fill("soon")
    dialog.get_by_role("button", name="Extend").click()
    expect(dialog.get_by_role("alert")).to_contain_text("wall_time")
    dialog.get_by_label("Wall time").fill("90m")
    dialog.get_by_label("Trials in all").fill("4")
    dialog.get_by_label("Device-hours").fill("6.5")
    dialog.get_by_label("Cost").fill("41")
    dialog.get_by_label("Weight").fill("2")
    dialog.get_by_text("This action elsewhere").click()
    command = f"outbid extend {sweep} --trials 4 --wall-time 90m --device-hours 6.5 --cost 41 --weight 2"
    expect(dialog.locator("code, p.mono").first).to_have_text(command)
    dialog.get_by_role("button", name="Extend").click()
    expect(dialog).to_be_hidden()
    eventually(lambda: quiet.sweep(sweep)["counts"]["completed"] == 4, "the sweep is not extended")
    with urllib.request.urlopen(f"{quiet.url}/v1/sweeps/{sweep}") as answer:
        assert json.load(answer)["sweep"]["spec"]["weight"] == 2
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()
    eventually(lambda: sweep not in quiet.run("ls"), f"{sweep} is not deleted")


def test_a_viewer_may_preview_and_not_submit(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    sign_in(page, guarded, "eve")
    page.goto(f"{guarded.url}/ui/submit")
    expect(page.locator("main")).to_contain_text("Your role may not submit")
    page.get_by_label("File (YAML or JSON)").fill(json.dumps(program("hers")))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", name="Preview", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Submit …")).to_be_disabled()


def test_an_admin_changes_a_tenant(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = (*UNAUTHENTICATED, "400 (Bad Request)")
    sign_in(page, guarded, "root")
    page.goto(f"{guarded.url}/ui/tenants")
    page.get_by_role("button", name="Change vision").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Weight").fill("2")
    dialog.get_by_label("Devices at once").fill("3")
    assert Axe().run(page).violations_count == 0
    dialog.get_by_role("button", name="Change").click()
    expect(dialog).to_be_hidden()
    shown = json.loads(guarded.run("tenant", "show", "vision", "-o", "json"))
    assert "2" in json.dumps(shown) and "3" in json.dumps(shown)
    expect(page.locator("section", has_text="vision").locator("dl")).to_contain_text("weight")
    sign_out(page)
    sign_in(page, guarded, "ada")
    page.goto(f"{guarded.url}/ui/tenants")
    expect(page.locator("main")).to_contain_text("vision")
    expect(page.get_by_role("button", name="Change vision")).to_have_count(0)


def test_an_admin_drains_a_node_and_opens_it_again(guarded: Outbid, watched: Watched) -> None:
    page = watched.page
    watched.expected = UNAUTHENTICATED
    sign_in(page, guarded, "root")
    page.goto(f"{guarded.url}/ui/cluster")
    node = json.loads(guarded.run("nodes", "-o", "json"))[0]["name"]
    page.get_by_role("button", name=f"Drain {node}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("<b>a fan</b>")
    dialog.get_by_text("This action elsewhere").click()
    expect(dialog.locator("p.mono").first).to_have_text(f"outbid nodes drain {node} --reason '<b>a fan</b>'")
    assert Axe().run(page).violations_count == 0
    dialog.get_by_role("button", name="Drain").click()
    expect(dialog).to_be_hidden()
    row = page.get_by_role("row", name=node)
    expect(row).to_contain_text("drained by root: <b>a fan</b>")
    assert "drained" in guarded.run("nodes")
    page.get_by_role("button", name=f"Uncordon {node}").click()
    page.get_by_role("dialog").get_by_role("button", name="Uncordon").click()
    expect(row).not_to_contain_text("a fan")
    assert "drained" not in guarded.run("nodes")
    sign_out(page)
    sign_in(page, guarded, "ada")
    page.goto(f"{guarded.url}/ui/cluster")
    expect(page.locator("main")).to_contain_text(node)
    expect(page.get_by_role("button", name=f"Drain {node}")).to_have_count(0)


def test_a_person_stops_one_trial(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    limits = {"trials": 2, "concurrency": 1}
    sweep = quiet.submit(program("one-too-many", steps=10_000, pause=0.02, limits=limits))
    eventually(lambda: quiet.sweep(sweep).get("best"), "nothing is reported")
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}/trials/0")
    page.get_by_role("button", name="Stop this trial").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("<b>it diverges</b>")
    dialog.get_by_text("This action elsewhere").click()
    expect(dialog.locator("p.mono").first).to_have_text(f"outbid stop {sweep}/0 --reason '<b>it diverges</b>'")
    assert Axe().run(page).violations_count == 0
    dialog.get_by_role("button", name="Stop", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.locator("main")).to_contain_text("<b>it diverges</b>")
    expect(page.get_by_role("button", name="Stop this trial")).to_have_count(0)
    eventually(lambda: json.loads(quiet.run("show", f"{sweep}/1", "-o", "json"))["step"] > 0, "the next does not run")
    assert quiet.sweep(sweep)["state"] == "running"
    quiet.run("stop", f"{sweep}/1", "--reason", "enough")
    quiet.done(sweep)
    reasons = [json.loads(quiet.run("show", f"{sweep}/{trial}", "-o", "json"))["reason"] for trial in (0, 1)]
    assert [r.split(": ", 1)[1] for r in reasons] == ["<b>it diverges</b>", "enough"]


def test_a_person_retries_a_failed_trial(quiet: Outbid, watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    mended = tmp_path / "mended"
    report = '{{"step": 1, "loss": 0.5}}'  # a command has parameters in single braces
    train = f"test -e {mended} || exit 3; echo '{report}' >> $OUTBID_REPORT"
    sweep = quiet.submit(
        {
            **program("unlucky", trials=1),
            "program": {"command": ["sh", "-c", train]},
            "max_restarts": 0,
        }
    )
    eventually(lambda: quiet.sweep(sweep)["state"] == "failed", "it does not fail")
    page.goto(f"{quiet.url}/ui/sweeps/{sweep}/trials/0")
    mended.touch()
    page.get_by_role("button", name="Retry this trial").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the file is there")
    dialog.get_by_text("This action elsewhere").click()
    expect(dialog.locator("p.mono").first).to_have_text(f"outbid retry {sweep}/0 --reason 'the file is there'")
    assert Axe().run(page).violations_count == 0
    dialog.get_by_role("button", name="Retry", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(page.locator("main")).to_contain_text("retries 1")
    quiet.done(sweep)
    assert quiet.sweep(sweep)["state"] == "done"
    expect(page.get_by_role("button", name="Retry this trial")).to_have_count(0)


def test_a_sweep_is_explained_and_simulated(quiet: Outbid, watched: Watched) -> None:
    page = watched.page
    one, two = (quiet.submit(program(name, steps=2000, pause=0.1, trials=9)) for name in ("one-of-two", "other-of-two"))
    eventually(lambda: quiet.sweep(one).get("best"), "nothing is reported")
    page.goto(f"{quiet.url}/ui/sweeps/{one}")
    page.get_by_text("Why it runs or waits").click()
    panel = page.locator("details", has_text="Why it runs or waits")
    expect(panel).to_contain_text(f"of {one} train")
    ask = panel.get_by_role("button", name="What would another policy")
    las = panel.get_by_role("row", name=re.compile("^las 1"))
    for _ in range(4):  # a simulation ends after 20 s, however slow the machine is
        ask.click()
        expect(las.or_(panel.get_by_text("took too long"))).to_be_visible(timeout=30_000)
        if las.is_visible():
            break
    expect(las).to_be_visible()
    expect(panel).to_contain_text("In simulations of the ledger")
    assert Axe().run(page).violations_count == 0
    for sweep in (one, two):
        quiet.run("stop", sweep)
        quiet.done(sweep)
