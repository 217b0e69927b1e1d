"""Pictures of the page, of what `make demo` left: python -m examples.screenshots [OUT] [TO]. Needs Chromium."""

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
    """Take the pictures of the documentation.

    Args:
        demo: What `make demo` left.
        folder: Where they go, as page.png and search.png.
    """
    film, sessions = str(demo / "film-corpus"), str(demo / "corpus")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        with serve(film) as address:
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(address)
            page.click("#videos a:has-text('photographs')")
            page.wait_for_selector("#timeline .row button")
            page.wait_for_selector("#matrix[data-ready]")
            page.uncheck("#everywhere")
            page.fill("#query", "a cup of coffee")
            page.keyboard.press("Enter")
            page.wait_for_selector("#answers li")
            page.click("#answers li:first-child button")
            page.wait_for_timeout(2500)
            page.screenshot(path=str(folder / "page.png"))
        with serve(sessions, "--truth", str(demo / "truth.json"), "--labels", str(demo / "labels.txt")) as address:
            page.goto(address)
            page.click("#videos a:has-text('session-1000')")
            page.wait_for_selector("#timeline .row button")
            page.fill("#query", "opens the drawer")
            page.check("#everywhere")
            page.click("#search button")
            page.wait_for_selector("#hits li")
            page.wait_for_timeout(500)
            page.screenshot(path=str(folder / "search.png"))
        browser.close()


@contextmanager
def serve(corpus: str, *options: str) -> Iterator[str]:
    """The page of a corpus while it is needed: its address."""
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
