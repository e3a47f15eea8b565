"""The dashboard prints Python for each of its views; what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import outbid as ob

SOURCES = Path(__file__).parents[2] / "orchestrator/dashboard/web/src"
PAGES = SOURCES / "pages"


def test_what_the_dashboard_prints_exists() -> None:
    printed = [
        line
        for page in PAGES.glob("*.svelte")
        for line in re.findall(r"python=(?:\"|\{`)(.*?)(?:\"|`\})", page.read_text())
    ]
    assert len(printed) >= 4
    for line in printed:
        call = re.fullmatch(r"(\w+)\(.*?\)(?:\.(\w+))?(?:\[.*\])?", line)
        assert call, line
        method, attribute = call.groups()
        assert callable(getattr(ob.Client, method)), line
        assert attribute is None or hasattr(ob.SweepHandle, attribute), line


def test_what_the_actions_print_exists() -> None:
    printed = [
        name
        for part in (SOURCES / "parts").glob("*.svelte")
        for names in re.findall(r"const python = \{(.*)\}", part.read_text())
        for name in re.findall(r"\"(\w+)\"", names)
    ]
    assert printed == ["stop_trial", "retry_trial"]
    assert all(callable(getattr(ob.SweepHandle, name)) for name in printed)
