"""Steps in hiero's own JSON: steps.json, and files with corrected steps.

Corrected steps belong to the content of a video, so that a moved or renamed video keeps them. They are
in a file beside the video, KITCHEN.MP4.hiero.json, and under HIERO_HOME/edits by the content. The file with the
highest `revision` counts, and the one beside the video if both have the same; a file without one has revision 0.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.storage.files import home, path_beside, read_json, write_bytes
from hiero.types import BOUNDARY_TOLERANCE_S, Hierarchy, Step, check_text

EDITS_SUFFIX = ".hiero.json"
MAX_REVISION = 2**53  # every program can read such a number
MAX_LABEL_LENGTH = 500  # characters; longer labels are cut
DURATION_TOLERANCE_S = 1.0  # difference between the lengths of the video and of the document


@dataclass(frozen=True)
class StoredEdits:
    """Corrected steps of a video, and the file that holds them."""

    hierarchy: Hierarchy
    file: Path
    revision: int = 0

    @property
    def name(self) -> str:
        """The file that the corrections come from, as messages show it."""
        return self.file.name if self.file.name.endswith(EDITS_SUFFIX) else str(self.file)


def edits_file(video: Path) -> Path:
    """The file beside a video or feature file that holds its corrected steps."""
    return path_beside(video, EDITS_SUFFIX)


def find_edits(video: Path, key: str | None) -> list[Path]:
    """The existing files with corrected steps: beside the video, and stored by its content."""
    return [file for file in _edits_files(video, key) if file.is_file()]


def _edits_files(video: Path, key: str | None) -> list[Path]:
    """The file beside a video, and the one stored by its content."""
    stored = [] if key is None else [home() / "edits" / f"{key}.json"]
    return [edits_file(video), *stored]


def has_stored_edits() -> bool:
    """Whether the corrected steps of any video are stored by its content."""
    return (home() / "edits").is_dir()


def read_edits(video: Path, key: str | None = None) -> StoredEdits | None:
    """The corrected steps of a video with this content, or None. The file with the highest revision counts."""
    newest = None
    for file in find_edits(video, key):
        document = read_json(file)
        try:
            edits = StoredEdits(parse_hierarchy(document), file, _parse_revision(document))
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        if key is not None and document.get("content", key) != key:
            advice = 'remove its field "content" to use it for this one'
            warnings.warn(f"{file}: these steps belong to another video and are not used; {advice}", stacklevel=2)
        elif newest is None or edits.revision > newest.revision:
            newest = edits
    return newest


def _parse_revision(document: dict[str, Any]) -> int:
    revision = document.get("revision", 0)
    if not isinstance(revision, int) or isinstance(revision, bool) or not 0 <= revision <= MAX_REVISION:
        raise InputError(f"revision must be a whole number from 0 to {MAX_REVISION}, got {str(revision)[:40]!r}")
    return revision


def next_revision(video: Path, key: str | None) -> int:
    """One more than the revisions of all files with corrected steps, so that what is written next counts."""
    revisions = [0]
    for file in find_edits(video, key):
        with contextlib.suppress(InputError, AttributeError):  # a damaged file does not count
            revisions.append(_parse_revision(read_json(file)))
    return min(max(revisions) + 1, MAX_REVISION)


def encode_edits(hierarchy: Hierarchy, key: str | None = None, revision: int = 0) -> bytes:
    """The content of a file with corrected steps of a video with this content."""
    added = {"content": key, "revision": revision}
    document = hierarchy.to_dict() | {name: value for name, value in added.items() if value}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def write_edits(video: Path, key: str | None, hierarchy: Hierarchy) -> list[Path]:
    """Write corrected steps beside a video, and by its content if that is given; they count from now on.

    A folder that cannot be written is only an error if the other file could not be written either. Returns the files
    that were written, the one that counts first.
    """
    content = encode_edits(hierarchy, key, next_revision(video, key))
    written, errors = [], []
    for file in _edits_files(video, key):
        try:
            write_bytes(file, content)
            written.append(file)
        except OSError as error:
            errors.append(error)
    if errors and not written:
        raise errors[0]
    return written


def delete_edits(video: Path, key: str | None) -> None:
    """Delete corrected steps beside a video, and by its content if that is given."""
    for file in _edits_files(video, key):
        file.unlink(missing_ok=True)


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
