"""Pictures of the page, of what `make demo` left: python -m examples.screenshots [OUT] [TO]. Needs Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(demo: Path, folder: Path) -> None:
    """Take the pictures of the documentation.

    Args:
        demo: What `make demo` left.
        folder: Where they go, as page.png and search.png.
    """
    command = [
        "serve",
        str(demo / "corpus"),
        "--truth",
        str(demo / "truth.json"),
        "--labels",
        str(demo / "labels.txt"),
        "--port",
        "0",
    ]
    server = subprocess.Popen([sys.executable, "-m", "hiero", *command], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = re.search(r"http://\S+", server.stdout.readline())
    assert address is not None
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(address[0])
            page.click("#videos a:has-text('session-1000')")
            page.wait_for_selector("#timeline .row button")
            page.wait_for_selector("#matrix[data-ready]")
            page.uncheck("#everywhere")
            page.fill("#query", "opens the drawer")
            page.keyboard.press("Enter")
            page.wait_for_selector("#answers li")
            page.click("#answers li:first-child button")
            page.wait_for_timeout(1500)
            page.locator("#timeline .row").nth(1).locator("button").nth(3).hover()
            page.wait_for_timeout(500)
            page.screenshot(path=str(folder / "page.png"))
            page.check("#everywhere")
            page.click("#search button")
            page.wait_for_selector("#hits li")
            page.wait_for_timeout(500)
            page.screenshot(path=str(folder / "search.png"))
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    main(paths[0] if paths else Path("out/demo"), paths[1] if len(paths) > 1 else Path("docs"))
