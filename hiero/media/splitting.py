"""Folders of clips with a file for each span of a video, and reels of the best moments.

The file clips.json in a folder says what each clip was cut from, and how. A clip is not cut again if
it is in this list with the same source and span and has the same size on disk.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from hiero.errors import InputError
from hiero.formatting import format_time
from hiero.media.cutting import CONTAINERS, FileSpan, WrittenClip, write_clip
from hiero.storage.cache import content_key
from hiero.storage.files import read_json, write_text
from hiero.types import VideoFile, split_by_file

CLIP_LIST = "clips.json"
CLIP_LIST_VERSION = 1
ENCODED_SUFFIX, OTHER_SUFFIX = ".mp4", ".mkv"  # for encoded clips; for copied ones whose container cannot be written
SourceFiles = tuple[tuple[str, ...], ...]  # name and content of each file of a video
MAX_NAME_BYTES = 120  # of a label in a file name; file systems allow 255
MIN_CLIP_S = 0.001
UNKNOWN_SIZE = -1  # of a clip that is being written


@dataclass(frozen=True)
class Clip:
    """A file that was cut from a video."""

    file: str
    start_s: float
    end_s: float
    label: str | None
    source: SourceFiles
    copied: bool = False
    num_bytes: int = UNKNOWN_SIZE

    def is_unchanged(self, folder: Path) -> bool:
        """Whether the file has the size that was written."""
        path = folder / self.file
        return path.is_file() and path.stat().st_size == self.num_bytes

    def comes_from(self, source: SourceFiles) -> bool:
        """Whether it was cut from these files, even if they have changed since."""
        return [name for name, *_ in self.source] == [name for name, *_ in source]


@dataclass(frozen=True)
class SplitResult:
    """The clips of a folder."""

    clips: tuple[Clip, ...]
    num_written: int
    removed: tuple[str, ...] = ()


def split_video(
    files: Sequence[VideoFile],
    spans: Sequence[tuple[float, float]],
    labels: Sequence[str | None],
    folder: Path,
    *,
    stream: int = 0,
    copy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> SplitResult:
    """Write a file for each span of a video; `copy` as in `hiero.media.cutting.write_clip`."""
    for file in files:
        if not Path(file.path).is_file():
            raise InputError(f"{file.path}: no such file")
    source = tuple((Path(file.path).name, content_key(Path(file.path))) for file in files)
    known = _read_clips(folder)
    suffix = Path(files[0].path).suffix.lower() if copy else ENCODED_SUFFIX
    names = clip_names(spans, labels, suffix if suffix in CONTAINERS else OTHER_SUFFIX)
    for name in names:
        if (folder / name).exists() and (name not in known or not known[name].comes_from(source)):
            raise InputError(f"{folder / name}: exists and is not a clip of {source[0][0]}. Choose another folder.")
    clips: dict[str, Clip] = {}
    num_written = 0
    for name, (start_s, end_s), label in zip(names, spans, labels, strict=True):
        if not end_s - start_s >= MIN_CLIP_S:
            raise InputError(f"a clip from {start_s:g} to {end_s:g} s is empty")
        wanted = Clip(name, round(start_s, 6), round(end_s, 6), label, source, copy)
        existing = known.get(name, wanted)
        if existing == replace(wanted, num_bytes=existing.num_bytes) and existing.is_unchanged(folder):
            clips[name] = existing
        else:
            # The list names the clip before it is written, so that after an interruption a complete
            # clip is known to be ours; its size is added afterwards.
            _write_clips(folder, {**known, **clips, name: wanted}.values())
            write_clip(folder / name, file_spans(files, start_s, end_s, stream), title=label or "", copy=copy)
            clips[name] = replace(wanted, num_bytes=(folder / name).stat().st_size)
            num_written += 1
            _write_clips(folder, {**known, **clips}.values())
        progress(name)
    others = {name: clip for name, clip in known.items() if name not in clips}
    removed = [name for name, clip in others.items() if clip.comes_from(source) and clip.is_unchanged(folder)]
    for name in removed:
        (folder / name).unlink()
        del others[name]
    _write_clips(folder, {**others, **clips}.values())
    return SplitResult(tuple(clips.values()), num_written, tuple(removed))


def join_moments(
    path: Path,
    moments: Sequence[tuple[Sequence[VideoFile], float, float]],
    stream: int = 0,
    *,
    copy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenClip:
    """Join moments of one or several videos in one file, as `write_clip` does. `starts_s` has an entry for each."""
    cut = [file_spans(files, start_s, end_s, stream) for files, start_s, end_s in moments]
    spans = list(itertools.chain.from_iterable(cut))
    if any(span.path.resolve() == path.resolve() for span in spans):
        raise InputError(f"{path}: is one of the videos to be joined. Choose another name for the result.")
    written = write_clip(path, spans, copy=copy, progress=progress)
    first = [0, *itertools.accumulate(map(len, cut))][:-1]  # the first span of each moment
    return replace(written, starts_s=tuple(written.starts_s[number] for number in first))


def file_spans(files: Sequence[VideoFile], start_s: float, end_s: float, stream: int = 0) -> list[FileSpan]:
    """The spans of files that a span of a video consists of."""
    parts = split_by_file(files, start_s, end_s)
    return [FileSpan(Path(file.path), begin_s, stop_s, stream) for file, begin_s, stop_s in parts]


def clip_names(spans: Sequence[tuple[float, float]], labels: Sequence[str | None], suffix: str) -> list[str]:
    """File names such as "03 cut the onion.mp4"; a span without a label is named after its start: "04 at 0m09s.mp4"."""
    width = max(2, len(str(len(spans))))
    out = []
    for number, ((start_s, _), label) in enumerate(zip(spans, labels, strict=True), 1):
        parts = format_time(start_s).split(":")
        time = "".join(f"{part}{unit}" for part, unit in zip(parts, "hms"[-len(parts) :], strict=True))
        out.append(f"{number:0{width}d} {safe_name(label or '') or f'at {time}'}{suffix}")
    return out


def safe_name(text: str) -> str:
    """A text as part of a file name on any system: short, without slashes, quotes and control characters."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(
        " " if unicodedata.category(char).startswith(("C", "Z")) or char in '<>:"/\\|?*' else char for char in text
    )
    text = re.sub(r"\s+", " ", text)
    text = text.encode("utf-8", "ignore")[:MAX_NAME_BYTES].decode("utf-8", "ignore")
    return text.strip(" .")


def _read_clips(folder: Path) -> dict[str, Clip]:
    """The clips of a folder by file name; empty if there is no valid list."""
    clips = {}
    try:
        for row in read_json(folder / CLIP_LIST)["clips"]:
            row = {field.name: row[field.name] for field in fields(Clip) if field.name in row}
            clip = Clip(**row | {"source": tuple((name, *key) for name, *key in row["source"])})
            if not clip.file or clip.file != Path(clip.file).name:
                raise ValueError("the name of a clip must not contain a folder")
            clips[clip.file] = clip
    except (KeyError, TypeError, ValueError):
        return {}
    return clips


def _write_clips(folder: Path, clips: Iterable[Clip]) -> None:
    rows = sorted((asdict(clip) for clip in clips), key=lambda row: str(row["file"]))
    write_text(folder / CLIP_LIST, json.dumps({"version": CLIP_LIST_VERSION, "clips": rows}, indent=1) + "\n")
