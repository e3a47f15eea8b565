"""HTML tables for notebooks."""

from __future__ import annotations

import html
from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[str]], *, bold: int | None = None) -> str:
    """Return a table of plain texts as HTML, with at most one row in bold."""
    esc = html.escape
    styles = {bold: ' style="font-weight: bold"'}
    body = "".join(
        f"<tr{styles.get(number, '')}>" + "".join(f"<td>{esc(cell)}</td>" for cell in row) + "</tr>"
        for number, row in enumerate(rows)
    )
    top = "".join(f"<th>{esc(cell)}</th>" for cell in head)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def facts(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return a title and a table of names and values as HTML, without empty values."""
    return f"<div><b>{html.escape(title)}</b>{table((), [fact for fact in facts if fact[1]])}</div>"
