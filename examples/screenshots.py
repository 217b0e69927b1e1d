"""A screenshot of the page with the film of `make demo`: python -m examples.screenshots [OUT] [TO].

Needs Playwright and Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright


def main(demo: Path, folder: Path) -> None:
    """Write page.png, the screenshot that the documentation shows."""
    film, labels = str(demo / "film-corpus"), str(demo / "film-labels.txt")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        with serve(film, "--labels", labels) as address:
            page = browser.new_page(viewport={"width": 1400, "height": 960})
            page.goto(address)
            page.click("#videos a:has-text('photographs')")
            page.wait_for_selector("#timeline .row button")
            page.wait_for_selector("#matrix[data-ready]")
            page.uncheck("#everywhere")
            page.fill("#query", "a cat")
            page.keyboard.press("Enter")
            page.wait_for_selector("#answers li")
            page.click("#answers li:first-child button")
            page.wait_for_timeout(2500)
            page.screenshot(path=str(folder / "page.png"))
        browser.close()


@contextmanager
def serve(corpus: str, *options: str) -> Iterator[str]:
    """Serve a corpus and yield the address of its page."""
    command = [sys.executable, "-m", "hiero", "serve", corpus, *options, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None
        yield address[0]
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    main(paths[0] if paths else Path("out/demo"), paths[1] if len(paths) > 1 else Path("docs"))
