"""Makes the pictures of docs/figures of a running server's pages: `pictures.py URL SWEEPS DIRECTORY [TOKEN]`.

SWEEPS is an id, or several, separated by commas, which are compared; the pages of the first one are taken. Each page in
light and dark and on a phone. The page of API tokens needs a token of an admin. Look at the pictures
before they are committed.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright


def main(url: str, sweeps: str, directory: Path, token: str = "") -> None:
    """Save a picture of each page."""
    sweep = sweeps.split(",")[0]
    pages = {
        "sweeps": "",
        "sweep": f"sweeps/{sweep}",
        "parameters": f"sweeps/{sweep}?explain=yes",
        "views": f"sweeps/{sweep}?contour=yes&timeline=yes",
        "compare": f"compare?sweeps={sweeps}&log=yes",
        "trial": f"sweeps/{sweep}/trials/0",
        "cluster": "cluster?holders=yes",
        "rounds": "rounds",
        "tenants": "tenants",
        "usage": "usage?by=tenant,user,type",
        "audit": "audit",
        "server": "server",
        "what-if": f"what-if?policies=fifo,drf&sweep={sweep}&weight=2",
        "submit": f"submit?from={sweep}",
    }
    if token:
        pages["tokens"] = "tokens"
    screens = {"light": ("light", 1280, 860), "dark": ("dark", 1280, 860), "phone": ("light", 390, 844)}
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for screen, (scheme, width, height) in screens.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            if token:
                page.goto(f"{url}/ui/")
                page.get_by_label("Token").fill(token)
                page.get_by_role("button", name="Sign in").click()
                page.get_by_role("button", name="Sign out").wait_for()
            for name, path in pages.items():
                page.goto(f"{url}/ui/{path}")
                page.wait_for_selector("main h1")
                page.wait_for_timeout(1500)  # the charts are drawn
                if name == "what-if":
                    page.get_by_role("button", name="Simulate").click()
                    page.get_by_role("button", name="Simulate").wait_for()
                whole = name in ("sweep", "trial", "parameters", "views", "compare")
                save(page.screenshot(full_page=whole), directory / f"dashboard-{name}-{screen}.png")
        browser.close()


def save(png: bytes, path: Path) -> None:
    """Save a picture with 128 colours, which is a third of its size."""
    Image.open(io.BytesIO(png)).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
