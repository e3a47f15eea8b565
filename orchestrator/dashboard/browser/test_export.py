"""Charts that are saved as PNG and SVG."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from conftest import HOSTILE, Outbid, Watched
from playwright.sync_api import Page, expect

SVG = "{http://www.w3.org/2000/svg}"


def saved(page: Page, button: str) -> tuple[str, bytes]:
    """Press a button by the keyboard and return the name and the content of the file that it offers."""
    with page.expect_download() as offered:
        page.get_by_role("button", name=button).first.press("Enter")
    return offered.value.suggested_filename, Path(offered.value.path()).read_bytes()


# The chart, a shape that its SVG must have so often, and a text of it.
CHARTS = {
    "loss of each trial and the best so far": ("rect", 12, "best so far"),
    "loss by step of trials": ("path", 7, "step"),
    "Parallel coordinates": ("path", 12, "lr"),
    "loss over lr and units": ("rect", 6, "units"),
    "Trials of finished-1 over time": ("rect", 12, "0s"),
    "loss over kind": ("rect", 12, HOSTILE[:11] + "…"),
}


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_is_saved_from_its_data(outbid: Outbid, watched: Watched, chart: str) -> None:
    page = watched.page
    shape, least, text = CHARTS[chart]
    page.goto(f"{outbid.url}/ui/sweeps/finished-1?explain=yes&contour=yes&cx=lr&cy=units&timeline=yes")
    expect(page.get_by_role("button", name=f"Save as SVG: {chart}").first).to_be_visible()
    name, data = saved(page, f"Save as SVG: {chart}")
    assert re.fullmatch(r"[a-z0-9-]+\.svg", name)
    root = ET.fromstring(data)
    assert root.tag == f"{SVG}svg"
    assert {e.tag for e in root.iter()} <= {SVG + t for t in ("svg", "title", "rect", "path", "text")}, (
        "no bitmap, no script"
    )
    assert len(root.findall(f"{SVG}{shape}")) >= least
    assert text in [e.text for e in root.iter(f"{SVG}text")]
    name, data = saved(page, f"Save as PNG: {chart}")
    assert name.endswith(".png") and data.startswith(b"\x89PNG") and len(io.BytesIO(data).read()) > 1000
