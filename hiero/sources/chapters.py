"""Chapters: files that a camera wrote of one recording, told by their names alone.

Cameras begin a new file every few gigabytes. Only names that say which recording a file belongs to
are known here; others stay files of their own, since two recordings must never become one.

    GoPro           GX010012.MP4, GX020012.MP4 …        GH, GX, GS: chapter, then number of the recording
    GoPro, to HERO5 GOPR0012.MP4, GP010012.MP4 …        the first has no chapter
    Insta360        VID_20240501_101500_00_007.mp4 …    one second has one recording; then lens, then a counter of files
    Pupil Labs      PI world v1 ps1.mp4, … ps2.mp4      (Invisible; Neon likewise) parts; a folder holds one recording
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

GOPRO_PROXY = "GL"  # a small copy of the chapter with the same numbers
MAX_NAMED = 3  # chapters of a recording that are named one by one


@dataclass(frozen=True)
class Chapter:
    """What the name of a camera's file says."""

    camera: str
    recording: str
    number: int
    first: int | None


@dataclass(frozen=True)
class Recording:
    """Files of one recording, in the order of time; or a single file."""

    paths: tuple[Path, ...]
    camera: str = ""
    missing: tuple[int, ...] = ()

    def describe(self) -> str:
        """Names of the files, and what is missing, in a line."""
        names = [path.name for path in self.paths]
        listed = ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} … {names[-1]} ({len(names)} files)"
        if not self.missing:
            return listed
        numbers = ", ".join(map(str, self.missing))
        return f"{listed}; chapter {numbers} is missing, what follows begins where the one before it ends"


def _gopro(match: re.Match[str]) -> Chapter:
    return Chapter("GoPro", f"{match[1].upper()}-{match[3]}", int(match[2]), 1)


def _early_gopro(match: re.Match[str]) -> Chapter:
    return Chapter("GoPro", f"GP-{match[2]}", int(match[1] or 0), 0)


def _insta360(match: re.Match[str]) -> Chapter:
    return Chapter("Insta360", f"{match[1]}-{match[2]}", int(match[3]), None)


def _pupil(match: re.Match[str]) -> Chapter:
    return Chapter("Pupil Labs", match[1], int(match[2]), 1)


_NAMES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Chapter]], ...] = (
    (re.compile(r"(G[HXSL])(\d\d)(\d{4})", re.IGNORECASE), _gopro),
    (re.compile(r"(?:GOPR|GP(\d\d))(\d{4})", re.IGNORECASE), _early_gopro),
    (re.compile(r"VID_(\d{8}_\d{6})_(\d\d)_(\d{3})", re.IGNORECASE), _insta360),
    (re.compile(r"((?:PI (?:left|right|world)|Neon (?:Scene Camera|Sensor Module)) v\d+) ps(\d{1,3})"), _pupil),
)


def parse_chapter(path: Path) -> Chapter | None:
    """What the name of a file says; None where it is not one of a camera that says it.

    Examples:
        >>> parse_chapter(Path("GX020012.MP4"))
        Chapter(camera='GoPro', recording='GX-0012', number=2, first=1)
        >>> parse_chapter(Path("kitchen.mp4")) is None
        True
    """
    for pattern, read in _NAMES:
        if (match := pattern.fullmatch(path.stem)) is not None:
            return read(match)
    return None


def group_chapters(paths: Iterable[Path]) -> list[Recording]:
    """Files by recording, in the order in which the first of each came."""
    files = list(dict.fromkeys(paths))
    groups: dict[tuple[object, ...], list[tuple[int, Path]]] = {}
    for path in _without_proxies(files):
        chapter = parse_chapter(path)
        key = (path,) if chapter is None else (path.parent, path.suffix.lower(), chapter.camera, chapter.recording)
        groups.setdefault(key, []).append((0 if chapter is None else chapter.number, path))
    return [recording for members in groups.values() for recording in _to_recordings(members)]


def find_siblings(path: Path) -> list[Path]:
    """Other chapters of a file's recording that lie beside it, in order; none where its name is not a camera's."""
    chapter = parse_chapter(path)
    if chapter is None or not path.parent.is_dir():
        return []
    key = (chapter.camera, chapter.recording)
    siblings = []
    for other in path.parent.iterdir():
        parsed = parse_chapter(other)
        if parsed is None or other.name == path.name or other.suffix.lower() != path.suffix.lower():
            continue
        if (parsed.camera, parsed.recording) == key:
            siblings.append((parsed.number, other))
    return [other for _, other in sorted(siblings)]


def _to_recordings(members: list[tuple[int, Path]]) -> list[Recording]:
    """One recording; each file by itself where two have the same number, such as GX010012.MP4 and gx010012.mp4."""
    members = sorted(members, key=lambda member: (member[0], member[1].name))
    if len({number for number, _ in members}) < len(members) or len(members) == 1:
        return [Recording((path,)) for _, path in members]
    chapter = parse_chapter(members[0][1])
    assert chapter is not None  # only chapters share a key
    numbers = [number for number, _ in members]
    missing = [number for before, after in pairwise(numbers) for number in range(before + 1, after)]
    if chapter.first is not None:
        missing = [*range(chapter.first, numbers[0]), *missing]
    return [Recording(tuple(path for _, path in members), chapter.camera, tuple(missing))]


def _without_proxies(files: list[Path]) -> list[Path]:
    """Without GoPro's small copies of chapters that are there."""
    names = {(path.parent, path.name.upper()[2:]) for path in files if path.name.upper()[:2] in ("GH", "GX", "GS")}
    return [
        path
        for path in files
        if not (path.name.upper().startswith(GOPRO_PROXY) and (path.parent, path.name.upper()[2:]) in names)
    ]
