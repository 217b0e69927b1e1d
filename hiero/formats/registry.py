"""Formats of steps by name: writing a hierarchy for another tool, and reading what another tool wrote.

Every format is an `Exporter`, registered as an entry point of `hiero.exporters`; one that can be
read back has a `StepReader`. A file that hiero wrote gives back the steps that it was written from,
as far as the format holds them: those of the annotation tools also hold ids, threads and scores,
which are used for every step that nobody changed.
"""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.formats.hiero_json import parse_hierarchy
from hiero.formats.nesting import nest_rows
from hiero.formats.rows import RowLevels, find_frame_grid
from hiero.plugins import load_plugin, registered
from hiero.storage.files import FEATURE_SUFFIXES, parse_json, read_bounded, write_bytes
from hiero.types import Hierarchy

GROUP = "hiero.exporters"
MAX_BYTES = 2**26  # of a file; an hour of steps takes some kilobytes
PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class ImportSettings:
    """What is known about an import besides the file itself.

    Attributes:
        video: The video that the steps are of.
        tiers: Names of the tiers to read, coarse to fine; empty for all.
        fps: Frames a second that the tool has counted with, where the user says it.
    """

    video: Path
    tiers: Sequence[str] = ()
    fps: float | None = None

    def find_fps(self) -> float:
        """Frames a second: those given, else the video's own, else 25."""
        return find_frame_grid(self.video).fps if self.fps is None else self.fps


@dataclass(frozen=True)
class StepReader:
    """How files of a format are read.

    Attributes:
        suffixes: Suffixes of the files, in lower case.
        read: Takes the content of a file and the settings; returns the rows of each level, and the
            length of the video or None. The content is bytes, or the parsed document of a .json file.
        recognises: Whether a content is of this format. Formats that share a suffix need it.
        max_bytes: Larger files are refused.
        has_tiers: Whether the user can choose tiers.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Any, ImportSettings], RowLevels]
    recognises: Callable[[Any], bool] = lambda _: True
    max_bytes: int = MAX_BYTES
    has_tiers: bool = False


@dataclass(frozen=True)
class Exporter:
    """A format, registered as an entry point of `hiero.exporters`.

    Attributes:
        file_name: Name of the file that is written; for a format with several files, the one that has the steps.
        convert: Takes a hierarchy; returns the content of the file, or the contents of all files by their names.
        media_folder: Folder in which the tool looks for the video: links to it are made there. Empty if it does not.
        opens_video: Whether it reads the video's frame rate, so that the hierarchy should have the
            path of the video and not only its name.
        reader: How files of this format are read back, if they can be.
    """

    file_name: str
    convert: Callable[[Hierarchy], str | bytes | Mapping[str, str | bytes]]
    media_folder: str = ""
    opens_video: bool = False
    reader: StepReader | None = None


def exporter_names() -> list[str]:
    """Names that `find_exporter` takes: hiero's own formats and those of other packages."""
    return list(registered(GROUP))


def find_exporter(name: str) -> Exporter:
    """A format by its name. Raises InputError where there is none."""
    if name not in registered(GROUP):
        raise InputError(f"no export {name}; known are {', '.join(exporter_names())}")
    exporter: Exporter = load_plugin(GROUP, name)
    return exporter


# Writing


def write_export(name: str, hierarchy: Hierarchy, folder: Path) -> Path:
    """Write a hierarchy in the format `name` into a folder, under the format's file name; returns the file."""
    exporter = find_exporter(name)
    for file_name, content in convert_files(exporter, hierarchy).items():
        write_bytes(folder / file_name, content)
    for video in hierarchy.media if exporter.media_folder else ():
        _link_video(Path(video.path), folder / exporter.media_folder)
    return folder / exporter.file_name


def convert_files(exporter: Exporter, hierarchy: Hierarchy) -> dict[str, bytes]:
    """The content of each file of a format, by its name."""
    content = exporter.convert(hierarchy)
    files = content if isinstance(content, Mapping) else {exporter.file_name: content}
    # Names of files need not be text: what UTF-8 cannot write becomes a question mark.
    return {name: data if isinstance(data, bytes) else data.encode("utf-8", "replace") for name, data in files.items()}


def pack_export(exporter: Exporter, hierarchy: Hierarchy) -> tuple[str, bytes]:
    """A format as one file to download, with its name: a ZIP archive where it has several."""
    files = convert_files(exporter, hierarchy)
    if list(files) == [exporter.file_name]:
        return exporter.file_name, files[exporter.file_name]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return Path(exporter.file_name).parts[0] + ".zip", out.getvalue()


def _link_video(video: Path, folder: Path) -> None:
    """Link to a video on this disk, where the disk knows links; features are no video."""
    if not video.is_file() or video.suffix.lower() in FEATURE_SUFFIXES:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / video.name
        if link.is_symlink() or not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(video.resolve())


# Reading


def read_step_file(
    path: Path,
    video: Path,
    duration_s: float | None = None,
    *,
    tiers: Sequence[str] = (),
    fps: float | None = None,
    cut_overlaps: bool = False,
) -> Hierarchy:
    """The steps of a video out of a file of another tool, or of hiero."""
    suffix = path.suffix.lower()
    readers = _find_readers()
    matching = [reader for reader in readers if suffix in reader.suffixes]
    if not matching:
        known = dict.fromkeys(suffix for reader in readers for suffix in reader.suffixes)
        raise InputError(f"{path}: unknown kind of step file; known are {', '.join(known)}")
    if tiers and not any(reader.has_tiers for reader in matching):
        raise InputError(f"{path}: tiers are of ELAN's .eaf files")
    data = read_bounded(path, max(reader.max_bytes for reader in matching), "a file of steps")
    settings = ImportSettings(video, tiers, fps)
    try:
        content = parse_json(data.decode("utf-8-sig")) if suffix == ".json" else data
        return _read_content(content, matching, settings, duration_s, cut_overlaps)
    except PARSE_ERRORS as error:
        raise InputError(f"{path}: {_describe(error)}") from error


def read_step_document(
    document: Any, video: Path, duration_s: float | None = None, *, fps: float | None = None, cut_overlaps: bool = False
) -> Hierarchy:
    """The steps of a video out of JSON of another tool, or of hiero, that was parsed already."""
    readers = [reader for reader in _find_readers() if ".json" in reader.suffixes]
    try:
        return _read_content(document, readers, ImportSettings(video, fps=fps), duration_s, cut_overlaps)
    except PARSE_ERRORS as error:
        raise InputError(_describe(error)) from error


def _find_readers() -> list[StepReader]:
    """The readers of all formats; a format of another package that cannot be loaded has none."""
    readers = []
    for name in exporter_names():
        with contextlib.suppress(InputError):
            readers.append(find_exporter(name).reader)
    return [reader for reader in readers if reader is not None]


def _read_content(
    content: Any, readers: Sequence[StepReader], settings: ImportSettings, duration_s: float | None, cut_overlaps: bool
) -> Hierarchy:
    if isinstance(content, dict) and "levels" in content:
        return replace(parse_hierarchy(content, duration_s), video=str(settings.video))
    reader = next((reader for reader in readers if reader.recognises(content)), None)
    if reader is None:
        raise ValueError(
            "not a JSON of steps: known are hiero's steps.json and edits, Label Studio's JSON (not JSON-MIN), "
            "projects of VIA 3, FiftyOne's samples.json and labels.json, ActivityNet's, and annotations as "
            "hiero eval own takes them"
        )
    rows, file_duration_s = reader.read(content, settings)
    levels = [level for level in rows if level]
    if not levels:
        raise ValueError("holds no steps with times")
    duration_s = duration_s or file_duration_s or max(row.end_s for level in levels for row in level)
    nested = nest_rows(levels, duration_s, cut_overlaps=cut_overlaps)
    return Hierarchy(str(settings.video), "", duration_s, tuple(map(tuple, nested)))


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError | OverflowError) else f"{type(error).__name__}: {error}"
