"""Formats of steps: write a hierarchy for another tool, and read the files of other tools.

Every format is an `Exporter`, an entry point of `hiero.formats`. If it can be read back, it has a
`StepReader`. Exports for annotation tools also store ids, threads and scores, which are restored for
every step that nobody changed.
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
from hiero.formats.rows import RowLevels
from hiero.plugins import load_plugin, registered
from hiero.storage.files import FEATURE_SUFFIXES, parse_json, read_bounded, write_bytes
from hiero.types import MAX_STEPS, Hierarchy

GROUP = "hiero.formats"
MAX_BYTES = 2**26  # an hour of steps takes some kilobytes
NO_PARQUET = "Parquet needs pyarrow; run: pip install 'hiero-video[export]'"


@dataclass(frozen=True)
class ImportSettings:
    """Settings of an import.

    Attributes:
        video: The video that the steps belong to.
        tiers: Names of the tiers to read, coarse to fine. Empty for all.
        fps: The frame rate that the tool used, if the user gives it.
    """

    video: Path
    tiers: Sequence[str] = ()
    fps: float | None = None


@dataclass(frozen=True)
class StepReader:
    """A reader of a format.

    Attributes:
        suffixes: Suffixes of the files, in lower case.
        read: A function of the content of a file and the settings that returns the rows of each
            level, and the length of the video or None. The content is bytes, or the parsed document
            of a .json file.
        recognises: Whether a content has this format. Formats that share a suffix need it.
        has_tiers: Whether the user can choose tiers.
    """

    suffixes: tuple[str, ...]
    read: Callable[[Any, ImportSettings], RowLevels]
    recognises: Callable[[Any], bool] = lambda _: True
    has_tiers: bool = False


@dataclass(frozen=True)
class Exporter:
    """A format, registered as an entry point of `hiero.formats`.

    Attributes:
        file_name: Name of the file, or of the one with the steps if there are several.
        convert: A function of a hierarchy that returns the content of the file, or the contents of
            several files by their names.
        media_folder: Folder in which the tool expects the video, where a link is created. Optional.
        opens_video: Whether it reads the frame rate of the video and so needs the video's path.
        reader: The reader of this format, if it can be read back.
    """

    file_name: str
    convert: Callable[[Hierarchy], str | bytes | Mapping[str, str | bytes]]
    media_folder: str = ""
    opens_video: bool = False
    reader: StepReader | None = None


def exporter_names() -> list[str]:
    """Names of all formats, of hiero and of other packages."""
    return registered(GROUP)


def find_exporter(name: str) -> Exporter:
    """A format by its name."""
    return load_plugin(GROUP, name)


# Writing


def write_export(name: str, hierarchy: Hierarchy, folder: Path) -> Path:
    """Write a hierarchy in the format `name` into a folder, and return the file."""
    exporter = find_exporter(name)
    for file_name, content in convert_files(exporter, hierarchy).items():
        write_bytes(folder / file_name, content)
    for video in hierarchy.media if exporter.media_folder else ():
        _link_video(Path(video.path), folder / exporter.media_folder)
    return folder / exporter.file_name


def convert_files(exporter: Exporter, hierarchy: Hierarchy) -> dict[str, bytes]:
    """The contents of the files of a format, by their names."""
    content = exporter.convert(hierarchy)
    files = content if isinstance(content, Mapping) else {exporter.file_name: content}
    # File names may contain characters that UTF-8 cannot encode, which become question marks.
    return {name: data if isinstance(data, bytes) else data.encode("utf-8", "replace") for name, data in files.items()}


def pack_export(exporter: Exporter, hierarchy: Hierarchy) -> tuple[str, bytes]:
    """Name and content of one file to download: a ZIP archive if the format has several files."""
    files = convert_files(exporter, hierarchy)
    if list(files) == [exporter.file_name]:
        return exporter.file_name, files[exporter.file_name]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return Path(exporter.file_name).parts[0] + ".zip", out.getvalue()


def _link_video(video: Path, folder: Path) -> None:
    """Create a link to a local video, if the file system supports links."""
    with contextlib.suppress(OSError):  # also of a name that is too long
        if not video.is_file() or video.suffix.lower() in FEATURE_SUFFIXES:
            return
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
    """Read the steps of a video from a file of another tool or of hiero."""
    suffix = path.suffix.lower()
    readers = _find_readers()
    matching = [reader for reader in readers if suffix in reader.suffixes]
    if not matching:
        known = dict.fromkeys(suffix for reader in readers for suffix in reader.suffixes)
        raise InputError(f"{path}: unknown kind of step file; known are {', '.join(known)}")
    if tiers and not any(reader.has_tiers for reader in matching):
        raise InputError(f"{path}: tiers can only be chosen in ELAN's .eaf files")
    data = read_bounded(path, MAX_BYTES, "a file of steps")
    settings = ImportSettings(video, tiers, fps)
    try:
        content = parse_json(data.decode("utf-8-sig")) if suffix == ".json" else data
        return _read_content(content, matching, settings, duration_s, cut_overlaps)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: {error}") from error
    except (LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {type(error).__name__}: {error}") from error


def _find_readers() -> list[StepReader]:
    """The readers of all formats that can be loaded."""
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
            "unknown kind of JSON; known are hiero's steps.json and edits, Label Studio's JSON (not JSON-MIN), "
            "FiftyOne's samples.json and labels.json, ActivityNet's JSON, and those of hiero eval own"
        )
    rows, file_duration_s = reader.read(content, settings)
    levels = [level for level in rows if level]
    if not levels:
        raise ValueError("contains no steps with times")
    if sum(map(len, levels)) > MAX_STEPS:
        raise ValueError(f"more than {MAX_STEPS} steps")
    duration_s = duration_s or file_duration_s or max(row.end_s for level in levels for row in level)
    nested = nest_rows(levels, duration_s, cut_overlaps=cut_overlaps)
    return Hierarchy(str(settings.video), "", duration_s, tuple(map(tuple, nested)))
