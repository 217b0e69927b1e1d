"""A page to look at: one HTML file with everything in it, that works offline and can be sent to anyone."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiero.engine import Video
from hiero.report.exports import write_export
from hiero.steps.segmentation import to_grey
from hiero.storage.files import write_bytes, write_text
from hiero.types import Hierarchy

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
                picture = video.source.thumbnail_at((step.start_s + step.end_s) / 2)
                row["picture"] = None if picture is None else base64.b64encode(picture).decode()
            rows.append(row)
        levels.append(rows)
    matrix = video.similarity_matrix()
    return {
        "name": Path(steps.video).name, "model": steps.model, "duration_s": steps.duration_s, "levels": levels,
        "matrix": {"size": len(matrix), "values": base64.b64encode(to_grey(matrix).tobytes()).decode()},
    }  # fmt: skip


def write_results(video: Video, steps: Hierarchy, labels: Sequence[str] | None, folder: Path, formats: Sequence[str] = ()) -> None:
    """All files of `hiero steps -o FOLDER`: steps.json, report.html, exports, and a thumbnail of each step.

    Args:
        video: That was read.
        steps: Its hierarchy.
        labels: Those that the steps were named with, if not the default ones.
        folder: Where to write; thumbnails of an earlier run that are not of these steps are removed.
        formats: Names of exporters.
    """
    write_text(folder / "steps.json", json.dumps(steps.to_dict(), indent=1) + "\n")
    write_report(folder / "report.html", video, steps, labels)
    for name in formats:
        write_export(name, steps, folder)
    ids = {step.id for step in steps}
    for old in (folder / "pictures").glob("*.jpg"):
        if old.stem not in ids:
            old.unlink()
    for step in steps:
        if (thumbnail := video.source.thumbnail_at((step.start_s + step.end_s) / 2)) is not None:
            write_bytes(folder / "pictures" / f"{step.id}.jpg", thumbnail)
