"""A page to look at: one HTML file with everything in it, that works offline and can be sent to anyone."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiero.engine import Video
from hiero.files import write_text
from hiero.records import Hierarchy
from hiero.steps.pieces import in_grey

TEMPLATE = Path(__file__).parent / "report.html"
MAX_PICTURES = 400  # of the finest level; more would make the page too heavy to send


def write_report(path: Path, video: Video, steps: Hierarchy, labels: Sequence[str] | None = None) -> None:
    """The timeline of all levels, pictures, the similarity matrix, and a search over the labels that steps are likely to have.

    labels: those that the steps were named with, if not the everyday phrases.
    """
    document = json.dumps(_content(video, steps, labels), ensure_ascii=False, allow_nan=False).replace(
        "<", "\\u003c"
    )  # no tag inside
    write_text(path, TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/", document))


def _content(video: Video, steps: Hierarchy, labels: Sequence[str] | None) -> dict[str, Any]:
    levels = []
    for number, level in enumerate(steps.levels):
        words = video.likely_labels(level, labels)
        rows = []
        for step, likely in zip(level, words, strict=True):
            row = {**step.to_dict(), "words": [[label, round(score, 3)] for label, score in likely]}
            if number == len(steps.levels) - 1 and len(level) <= MAX_PICTURES:
                picture = video.extract.picture_at((step.start_s + step.end_s) / 2)
                row["picture"] = None if picture is None else base64.b64encode(picture).decode()
            rows.append(row)
        levels.append(rows)
    matrix = video.similarity_matrix()
    return {
        "name": Path(steps.video).name, "model": steps.model, "duration_s": steps.duration_s, "levels": levels,
        "matrix": {"size": len(matrix), "values": base64.b64encode(in_grey(matrix).tobytes()).decode()},
    }  # fmt: skip
