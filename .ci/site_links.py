"""A hook of mkdocs: links from docs/ to other files of the repository lead to GitHub on the site."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Replace relative links that leave docs/ by links to the repository."""

    def replaced(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match[1]))
        if target.startswith("docs/") and not target.endswith((".gz", ".yaml", ".py")):
            return match[0]
        return f"]({config['repo_url']}/blob/main/{target}{match[2] or ''})"

    return LINK.sub(replaced, markdown)
