"""A film of real photographs whose truth is known: slow pans over pictures that come with
scikit-image, joined by cuts.

    python -m examples.photographs FILM.mp4

The pictures are in the public domain or free to use; scikit-image's data/README.txt and
documentation say whose each is.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

# File in scikit-image's wheel, and what it shows: the first text is the label, all find it.
PHOTOGRAPHS = {
    "coffee.png": ("a cup of coffee", "a spoon on a saucer"),
    "chelsea.png": ("the face of a cat", "a cat"),
    "motorcycle_left.png": ("a motorcycle in a garage", "a motorbike"),
    "rocket.jpg": ("a rocket on its launch pad", "a rocket launch"),
    "astronaut.png": ("a smiling woman in an orange suit", "a portrait of a woman"),
    "grass.png": ("green grass", "a lawn"),
}
ABSENT = ("a person riding a horse", "a plate of pizza", "washing the dishes")  # nothing of it is in the film
SECONDS, FPS, WIDTH, HEIGHT = 8, 12, 480, 270
ZOOM = 0.8  # share of the photograph that a frame shows


def write_film(path: Path, seconds: int = SECONDS) -> list[tuple[float, float, str]]:
    """Write the film; returns (start, end, text) of each photograph, in seconds. Needs
    scikit-image, av and Pillow.
    """
    import av
    from PIL import Image

    truth = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.width, stream.height, stream.pix_fmt, stream.options = WIDTH, HEIGHT, "yuv420p", {"crf": "23"}
        for number, (name, texts) in enumerate(PHOTOGRAPHS.items()):
            with (files("skimage") / "data" / name).open("rb") as file:
                photograph = Image.open(file).convert("RGB")
            # The largest box of the film's shape, and how far it can move.
            width = ZOOM * min(photograph.width, photograph.height * WIDTH / HEIGHT)
            height = width * HEIGHT / WIDTH
            for t in np.linspace(0, 1, seconds * FPS):
                left, top = t * (photograph.width - width), (1 - t) * (photograph.height - height)
                box = (left, top, left + width, top + height)
                frame = photograph.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC, box=box)
                for packet in stream.encode(av.VideoFrame.from_image(frame)):
                    out.mux(packet)
            truth.append((float(number * seconds), float((number + 1) * seconds), texts[0]))
        for packet in stream.encode():
            out.mux(packet)
    return truth


if __name__ == "__main__":
    for start, end, text in write_film(Path(sys.argv[1])):
        print(f"{start:6.1f} {end:6.1f}  {text}")
