"""Checks the logs of servers."""

from __future__ import annotations

import re
from pathlib import Path

_TROUBLE = re.compile(r"^panic: |^fatal error: |\blevel=ERROR\b|\"level\":\"ERROR\"|^\S+ ERR ", re.MULTILINE)


def check_log(path: Path) -> None:
    """Fail if a server's log has a panic or an error."""
    text = path.read_text(errors="replace") if path.exists() else ""
    found = [line for line in text.splitlines() if _TROUBLE.search(line)]
    assert not found, f"{path}:\n" + "\n".join(found)
