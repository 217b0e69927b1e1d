"""Which files make up which videos: files, folders, patterns and remote folders; chapters of cameras are joined.

Cameras begin a new file every few gigabytes. Only names that identify the recording count as
chapters, since two recordings must never become one:

    GoPro           GX010012.MP4, GX020012.MP4 …        GH, GX, GS: chapter, then number of the recording
    GoPro, to HERO5 GOPR0012.MP4, GP010012.MP4 …        the first has no chapter
    Insta360        VID_20240501_101500_00_007.mp4 …    start of the recording, lens, counter of files
    Pupil Labs      PI world v1 ps1.mp4, … ps2.mp4      Invisible and Neon: parts; a folder holds one recording
"""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from hiero.errors import InputError
from hiero.media.addresses import is_address, is_http, public_address
from hiero.media.decode import VideoInfo, probe
from hiero.media.remote import list_remote
from hiero.media.source import SourceFile, VideoSource
from hiero.storage.files import FEATURE_SUFFIXES

VIDEO_SUFFIXES = (
    *(".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".ts", ".mts", ".m2ts"),
    *(".mpg", ".mpeg", ".wmv", ".flv", ".3gp", ".gif"),
)
GOPRO_PROXY = "GL"  # a small copy of a chapter with the same numbers
NEON = "Neon (Scene Camera|Sensor Module)"
MAX_NAMED = 3  # chapters of a recording that are listed by name
# Camera, number of the first chapter if it is fixed, and pattern of a name; the groups but `number` name the recording.
CAMERAS = (
    ("GoPro", 1, r"(?i)(?P<kind>G[HXSL])(?P<number>\d\d)(?P<recording>\d{4})"),
    ("GoPro", 0, r"(?i)(?:GOPR|GP(?P<number>\d\d))(?P<recording>\d{4})"),
    ("Insta360", None, r"(?i)VID_(?P<start>\d{8}_\d{6})_(?P<lens>\d\d)_(?P<number>\d{3})"),
    ("Pupil Labs", 1, rf"(?P<camera>(PI (left|right|world)|{NEON}) v\d+) ps(?P<number>\d{{1,3}})"),
)


class NoFilesError(InputError):
    """A folder, pattern or remote folder contains nothing that can be read."""


@dataclass(frozen=True)
class Chapter:
    """What the name of a camera's file says."""

    camera: str
    recording: str
    number: int
    first: int | None


@dataclass(frozen=True)
class Recording:
    """Files of one recording in time order, or a single file."""

    paths: tuple[Path, ...]
    camera: str = ""
    missing: tuple[int, ...] = ()

    def describe(self) -> str:
        """Names of the files, and which chapters are missing."""
        names = [path.name for path in self.paths]
        listed = ", ".join(names) if len(names) <= MAX_NAMED else f"{names[0]} … {names[-1]} ({len(names)} files)"
        if not self.missing:
            return listed
        numbers = ", ".join(map(str, self.missing))
        return f"{listed}; chapter {numbers} is missing, so later times are too early"


def parse_chapter(path: Path) -> Chapter | None:
    """Parse the name of a file such as GX020012.MP4; None if it is not the name of a chapter."""
    for camera, first, pattern in CAMERAS:
        if (match := re.fullmatch(pattern, path.stem)) is not None:
            groups = match.groupdict()
            number = int(groups.pop("number") or 0)
            return Chapter(camera, "-".join(groups.values()).upper(), number, first)
    return None


def group_chapters(paths: Iterable[Path]) -> list[Recording]:
    """Group files by recording, in the order of the first file of each."""
    groups: dict[tuple[object, ...], list[Path]] = {}
    for path in _without_proxies(list(dict.fromkeys(paths))):
        chapter = parse_chapter(path)
        key = (path,) if chapter is None else (path.parent, path.suffix.lower(), chapter.camera, chapter.recording)
        groups.setdefault(key, []).append(path)
    return [recording for files in groups.values() for recording in _to_recordings(files)]


def find_siblings(path: Path) -> list[Path]:
    """The other chapters of a recording in the same folder."""
    if parse_chapter(path) is None or not path.parent.is_dir():
        return []
    recordings = group_chapters(path.parent.iterdir())
    return [other for recording in recordings if path in recording.paths for other in recording.paths if other != path]


def _to_recordings(files: list[Path]) -> list[Recording]:
    """One recording; each file by itself if two have the same number, such as GX010012.MP4 and gx010012.mp4."""
    if len(files) == 1:
        return [Recording(tuple(files))]
    chapters = {path: chapter for path in files if (chapter := parse_chapter(path)) is not None}
    files = sorted(files, key=lambda path: (chapters[path].number, path.name))
    numbers = [chapters[path].number for path in files]
    if len(set(numbers)) < len(numbers):
        return [Recording((path,)) for path in files]
    chapter = chapters[files[0]]
    expected = range(numbers[0] if chapter.first is None else chapter.first, numbers[-1])
    missing = tuple(number for number in expected if number not in numbers)
    return [Recording(tuple(files), chapter.camera, missing)]


def _without_proxies(files: list[Path]) -> list[Path]:
    """Leave out GoPro's small copies of chapters that are also given."""
    names = {(path.parent, path.name.upper()[2:]) for path in files if path.name.upper()[:2] in ("GH", "GX", "GS")}
    return [
        path
        for path in files
        if not (path.name.upper().startswith(GOPRO_PROXY) and (path.parent, path.name.upper()[2:]) in names)
    ]


def find_videos(paths: Iterable[Path | str]) -> dict[str, VideoSource]:
    """Videos by name."""
    return _find_by_name(paths, VIDEO_SUFFIXES, "videos", resolve_clashes=False)


def find_files(paths: Iterable[Path | str], *, resolve_clashes: bool = False) -> dict[str, VideoSource]:
    """Videos and feature files by name. With `resolve_clashes`, files with the same name get a number."""
    return _find_by_name(paths, (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES), "videos or feature files", resolve_clashes)


def find_recordings(
    paths: Iterable[Path | str],
    join: bool | None = None,
    *,
    resolve_clashes: bool = False,
    log: Callable[[str], None] = lambda _: None,
) -> dict[str, VideoSource]:
    """Videos and feature files by name, joined as by `join_chapters`."""
    return join_chapters(find_files(paths, resolve_clashes=resolve_clashes), join, log)


def join_chapters(
    files: Mapping[str, VideoSource], join: bool | None = None, log: Callable[[str], None] = lambda _: None
) -> dict[str, VideoSource]:
    """Join chapters under the name of the first one; with `join` all files, with False none."""
    if join is False or not files:
        return dict(files)
    names = {source.path: name for name, source in files.items()}
    recordings = group_chapters(names)
    if join:
        ordered = [names[path] for recording in recordings for path in recording.paths]
        return {ordered[0]: VideoSource.join([files[name] for name in ordered])}
    out: dict[str, VideoSource] = {}
    for recording in recordings:
        chapters = {names[path]: files[names[path]] for path in recording.paths}
        joined = VideoSource.join(list(chapters.values()))
        if len(chapters) == 1:
            out.update(chapters)
        elif have_one_format(joined):
            found = f"one {recording.camera} recording, read as one video (--no-join reads them separately)"
            log(f"{found}: {recording.describe()}")
            out[names[recording.paths[0]]] = joined
        else:
            log(f"read separately, since size or frame rate differ (--join reads one video): {recording.describe()}")
            out.update(chapters)
    return out


def have_one_format(source: VideoSource) -> bool:
    """Whether all videos that can be read have the same size and frame rate, as chapters do."""
    infos = [probe_file(file) for file in source.files if file.path.suffix.lower() not in FEATURE_SUFFIXES]
    formats = {(info.width, info.height, info.fps and round(info.fps)) for info in infos if info is not None}
    return len(formats) <= 1


def probe_file(file: SourceFile, stream: int = 0) -> VideoInfo | None:
    """Probe a video without downloading a remote one; None if it cannot be read."""
    try:
        return probe(file.path, stream, file.reader())
    except (InputError, OSError):
        return None


def probe_duration(file: SourceFile, stream: int = 0) -> float | None:
    """Length of a video in seconds; None if it is unknown."""
    info = probe_file(file, stream)
    return None if info is None else info.duration_s


def is_collection(path: Path | str) -> bool:
    """Whether a path or address may stand for several files: a folder or a pattern."""
    if isinstance(path, str) and is_address(path):
        return not is_http(path) and (glob.has_magic(public_address(path)) or not _has_known_suffix(path))
    path = Path(path)
    return path.is_dir() or (not path.exists() and glob.has_magic(str(path)))


def names_files(address: str) -> bool:
    """Whether an address names files, by its suffix or as a pattern. Other addresses may be folders."""
    return is_http(address) or _has_known_suffix(address) or glob.has_magic(public_address(address))


def _has_known_suffix(address: str) -> bool:
    return public_address(address).lower().endswith((*VIDEO_SUFFIXES, *FEATURE_SUFFIXES))


def _find_by_name(
    paths: Iterable[Path | str], suffixes: tuple[str, ...], description: str, resolve_clashes: bool
) -> dict[str, VideoSource]:
    by_name: dict[str, VideoSource] = {}
    seen: set[str] = set()
    for given in paths:
        named = _list_named(given, suffixes)
        if not named:
            shown = public_address(str(given))
            raise NoFilesError(f"{shown}: contains no {description} (looked for {', '.join(suffixes)})")
        videos = {source.path.with_suffix("") for _, source in named if source.path.suffix.lower() in VIDEO_SUFFIXES}
        for name, source in named:
            path = source.path
            has_video = path.suffix.lower() in FEATURE_SUFFIXES and path.with_suffix("") in videos
            if source.identity in seen or (resolve_clashes and has_video):
                continue
            seen.add(source.identity)
            if name in by_name and not resolve_clashes:
                clash = f"{by_name[name].name} and {source.name}"
                raise InputError(f"{clash} would both be named {name}. Rename one, or run them separately.")
            by_name[free_name(name, by_name)] = source
    if not by_name:
        raise InputError(f"give at least one file or folder of {description}")
    return by_name


def free_name(name: str, used: Mapping[str, object]) -> str:
    """A name that is not used: with a number if necessary."""
    numbered = (f"{name} ({number})" for number in itertools.count(2))
    return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in used)


def _list_named(given: Path | str, suffixes: tuple[str, ...]) -> list[tuple[str, VideoSource]]:
    """The files that a path or address stands for, each with its name."""
    if isinstance(given, str) and is_address(given):
        entries = list_remote(given, suffixes)
        return [(str(PurePosixPath(entry.name).with_suffix("")), VideoSource.of(entry.address)) for entry in entries]
    path = Path(given)
    if not is_collection(path):
        return [(path.stem, VideoSource.of(path))]
    if path.is_dir():
        root, files = path, list_files(path, suffixes)
    else:
        num_plain = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
        root, pattern = Path(*path.parts[:num_plain]), str(Path(*path.parts[num_plain:]))
        try:
            matches = sorted(match for match in root.glob(pattern) if match.name[0] != ".")
        except ValueError as error:
            raise InputError(f"{path}: not a valid pattern ({error})") from error
        files = [file for match in matches for file in (list_files(match, suffixes) if match.is_dir() else [match])]
        files = [file for file in files if file.suffix.lower() in suffixes and file.is_file()]
    named = []
    for file in files:
        name = file.relative_to(root).with_suffix("")
        # A pattern may go up again (a/*/../b): then only the file's own name is used.
        named.append((name.name if ".." in name.parts else name.as_posix(), VideoSource.of(file)))
    return named


def list_files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files below a folder that have one of these suffixes, sorted, without hidden ones."""
    return sorted(f for f in folder.rglob("*") if f.suffix.lower() in suffixes and f.name[0] != "." and f.is_file())


@lru_cache(maxsize=100_000)
def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Key for the natural order of names: day 9 comes before day 10."""
    parts = re.findall(r"\d+|\D+", name.casefold())
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]
