"""One page over seven films whose truth is known: photographs in a usual order, but for what two films
leave out or exchange.

    python -m examples.folder_report [OUT] [PICTURE.png]

The photographs come with scikit-image. With PICTURE the page is drawn to that file too, which needs Chromium.
"""

from __future__ import annotations

import shutil
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

from examples.photographs import FPS, HEIGHT, WIDTH, ZOOM
from hiero.cli import app

USUAL = (
    "coffee.png",
    "chelsea.png",
    "brick.png",
    "motorcycle_left.png",
    "astronaut.png",
    "rocket.jpg",
    "moon.png",
    "grass.png",
)
SECONDS = (6, 12)  # shortest and longest time that a photograph is shown
FILMS = {
    "monday": USUAL,
    "tuesday": USUAL,
    "wednesday": tuple(name for name in USUAL if name != "rocket.jpg"),  # left out
    "thursday": USUAL,
    "friday": (
        "coffee.png",
        "brick.png",
        "motorcycle_left.png",
        "astronaut.png",
        "rocket.jpg",
        "moon.png",
        "chelsea.png",
        "grass.png",
    ),
    "saturday": USUAL,
    "sunday": tuple(name for name in USUAL if name != "brick.png"),
}


def write_film(path: Path, names: tuple[str, ...], seed: int) -> list[tuple[float, float, str]]:
    """Write a film of photographs, each for a time of its own; returns (start_s, end_s, file) of each."""
    import av
    from PIL import Image

    rng = np.random.default_rng(seed)
    truth, begin_s = [], 0.0
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = WIDTH, HEIGHT, "yuv420p", {"crf": "23"}
        for name in names:
            with (files("skimage") / "data" / name).open("rb") as file:
                photograph = Image.open(file).convert("RGB")
            width = ZOOM * min(photograph.width, photograph.height * WIDTH / HEIGHT)
            height = width * HEIGHT / WIDTH
            seconds = int(rng.integers(SECONDS[0], SECONDS[1] + 1))
            for t in np.linspace(0, 1, seconds * FPS):
                left, top = t * (photograph.width - width), rng.uniform(0.48, 0.52) * (photograph.height - height)
                frame = photograph.resize(
                    (WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=(left, top, left + width, top + height)
                )
                for packet in stream.encode(av.VideoFrame.from_image(frame)):
                    out.mux(packet)
            truth.append((begin_s, begin_s + seconds, name))
            begin_s += seconds
        for packet in stream.encode():
            out.mux(packet)
    return truth


def draw_page(page: Path, picture: Path) -> None:
    """The page as a browser shows it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-headless-shell"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        view = browser.new_page(viewport={"width": 1280, "height": 900})
        view.goto(page.resolve().as_uri())
        view.wait_for_timeout(500)
        view.screenshot(path=str(picture), full_page=True)
        browser.close()


def main(out: Path, picture: Path | None = None) -> None:
    """Make the films, and the page over them.

    Args:
        out: Folder of everything that is written.
        picture: Where a picture of the page goes.
    """
    for seed, (name, photographs) in enumerate(FILMS.items()):
        if not (out / "films" / f"{name}.mp4").is_file():
            write_film(out / "films" / f"{name}.mp4", photographs, seed)
    app(
        ["report", str(out / "films"), "-o", str(out / "page.html"), "--title", "A week of films"],
        result_action="return_value",
    )
    if picture is not None:
        draw_page(out / "page.html", picture)


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    main(paths[0] if paths else Path("out/folder-report"), paths[1] if len(paths) > 1 else None)
