"""Steps in hiero's own JSON: steps.json, and files with corrected steps.

Corrected steps belong to the content of a video, so that a moved or renamed video keeps them. They are
in a file beside the video, KITCHEN.MP4.hiero.json, and under HIERO_HOME/edits by the content.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import home, path_beside, read_json, write_bytes
from hiero.types import BOUNDARY_TOLERANCE_S, Hierarchy, Step, check_text

EDITS_SUFFIX = ".hiero.json"
MAX_LABEL_LENGTH = 500  # characters; longer labels are cut
DURATION_TOLERANCE_S = 1.0  # difference between the lengths of the video and of the document


@dataclass(frozen=True)
class StoredEdits:
    """Corrected steps of a video, and the file that holds them."""

    hierarchy: Hierarchy
    file: Path

    @property
    def name(self) -> str:
        """Where the corrections come from, as messages show it."""
        return self.file.name if self.file.name.endswith(EDITS_SUFFIX) else "earlier edits of this video"


def edits_file(video: Path) -> Path:
    """The file beside a video or feature file that holds its corrected steps."""
    return path_beside(video, EDITS_SUFFIX)


def find_edits(video: Path, key: str | None) -> list[Path]:
    """The existing files with corrected steps, newest first: beside the video, and stored by its content."""
    files = [file for file in _edits_files(video, key) if file.is_file()]
    return sorted(files, key=lambda file: -file.stat().st_mtime_ns)


def _edits_files(video: Path | None, key: str | None) -> list[Path]:
    """The file beside a video, and the one stored by its content."""
    beside = [] if video is None else [edits_file(video)]
    return beside if key is None else [*beside, home() / "edits" / f"{key}.json"]


def has_stored_edits() -> bool:
    """Whether the corrected steps of any video are stored by its content."""
    return (home() / "edits").is_dir()


def read_edits(video: Path, key: str | None = None) -> StoredEdits | None:
    """The corrected steps of a video with this content, or None. The newest file counts."""
    for file in find_edits(video, key):
        document = read_json(file)
        try:
            hierarchy = parse_hierarchy(document)
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        if key is None or document.get("content", key) == key:
            return StoredEdits(hierarchy, file)
        advice = 'remove its field "content" to use it for this one'
        warnings.warn(f"{file}: these steps belong to another video and are not used; {advice}", stacklevel=2)
    return None


def encode_edits(hierarchy: Hierarchy, key: str | None = None) -> bytes:
    """The content of a file with corrected steps of a video with this content."""
    document = hierarchy.to_dict() if key is None else {**hierarchy.to_dict(), "content": key}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def write_edits(video: Path | None, key: str | None, hierarchy: Hierarchy) -> None:
    """Write corrected steps beside a video and by its content, each only if it is given.

    A folder that cannot be written is only an error if the other file could not be written either.
    """
    _for_each_file(video, key, lambda file: write_bytes(file, encode_edits(hierarchy, key)))


def delete_edits(video: Path | None, key: str | None) -> None:
    """Delete corrected steps beside a video and by its content, each only if it is given."""
    _for_each_file(video, key, lambda file: file.unlink(missing_ok=True))


def _for_each_file(video: Path | None, key: str | None, change: Callable[[Path], None]) -> None:
    files = _edits_files(video, key)
    errors = []
    for file in reversed(files):  # the one beside the video is the newest and counts
        try:
            change(file)
        except OSError as error:
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[-1]


def parse_hierarchy(document: Any, duration_s: float | None = None) -> Hierarchy:
    """The steps of a document, for a video of this length. Long labels are cut. Raises InputError."""
    hierarchy = Hierarchy.from_dict(document)
    check_text(hierarchy.video)
    if duration_s is not None and abs(hierarchy.duration_s - duration_s) > DURATION_TOLERANCE_S:
        raise InputError(f"these steps belong to a video of {hierarchy.duration_s:.1f} s, not {duration_s:.1f} s")
    levels = [
        tuple(replace(step, label=step.label and step.label[:MAX_LABEL_LENGTH]) for step in level)
        for level in hierarchy.levels
    ]
    return replace(hierarchy, levels=tuple(levels))


def mark_origins(hierarchy: Hierarchy, known: Iterable[Hierarchy]) -> Hierarchy:
    """Steps of a known hierarchy keep their origin. All others come from a person, as do names that are new."""
    by_label: dict[str | None, list[Step]] = {}
    for step in itertools.chain.from_iterable(known):
        by_label.setdefault(step.label, []).append(step)

    def mark(step: Step) -> Step:
        for other in by_label.get(step.label, ()):
            if max(abs(step.start_s - other.start_s), abs(step.end_s - other.end_s)) <= BOUNDARY_TOLERANCE_S:
                return replace(step, origin=other.origin, probability=other.probability)
        return replace(step, origin="person", probability=step.probability if step.label in by_label else None)

    return replace(hierarchy, levels=tuple(tuple(map(mark, level)) for level in hierarchy.levels))
