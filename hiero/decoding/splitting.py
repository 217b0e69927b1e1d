"""Folders of clips with a file for each span of a video, and reels of the best moments.

The file clips.json in a folder says what each clip was cut from, and how. A clip is not cut again if
it is in this list with the same source and span and has the same size on disk.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hiero.decoding.cutting import CONTAINERS, Piece, WrittenClip, write_clip
from hiero.errors import InputError
from hiero.storage.files import read_json, write_text
from hiero.types import VideoFile, format_time, split_by_file

CLIP_LIST = "clips.json"
CLIP_LIST_VERSION = 1
ENCODED_SUFFIX, OTHER_SUFFIX = ".mp4", ".mkv"  # of encoded clips; of copied ones whose container cannot be written
SourceFiles = tuple[tuple[str, int, int], ...]
"""Name, size and time of change of each file of a video."""
MAX_NAME_BYTES = 120  # of a label in the name of a file; file systems allow 255
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
    num_bytes: int
    num_copied: int
    num_encoded: int
    note: str = ""

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Clip:
        """Read a row of clips.json. Raises InputError where it is not one."""
        try:
            label = document.get("label")
            clip = cls(
                file=str(document["file"]),
                start_s=float(document["start_s"]),
                end_s=float(document["end_s"]),
                label=None if label is None else str(label),
                source=tuple((str(name), int(size), int(time)) for name, size, time in document["source"]),
                num_bytes=int(document["num_bytes"]),
                num_copied=int(document["num_copied"]),
                num_encoded=int(document["num_encoded"]),
                note=str(document.get("note", "")),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not a clip ({type(error).__name__}: {error})") from error
        if not clip.file or clip.file != Path(clip.file).name:
            raise InputError("the name of a clip must not contain a folder")
        return clip

    def is_current(self, folder: Path, source: SourceFiles, span: tuple[float, float], copy: bool) -> bool:
        """Whether the clip is complete and what would be cut now."""
        is_same = self.source == source and (self.num_encoded == 0) == copy
        is_same = is_same and all(
            abs(a - b) < MIN_CLIP_S for a, b in zip((self.start_s, self.end_s), span, strict=True)
        )
        path = folder / self.file
        return is_same and path.is_file() and path.stat().st_size == self.num_bytes


@dataclass(frozen=True)
class SplitResult:
    """The clips of a folder."""

    clips: tuple[Clip, ...]
    num_written: int
    removed: tuple[str, ...] = ()


def split_video(
    video: Path | Sequence[VideoFile],
    spans: Sequence[tuple[float, float]],
    folder: Path,
    *,
    labels: Sequence[str | None] | None = None,
    stream: int = 0,
    copy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> SplitResult:
    """Write a file for each span of a video; `copy` as in `hiero.decoding.cutting.write_clip`."""
    if isinstance(video, Path):
        files = [VideoFile(str(video), 0.0, max((end for _, end in spans), default=0.0))]
    else:
        files = list(video)
    labels = [None] * len(spans) if labels is None else list(labels)
    source = _describe_source(files)
    known = _read_clips(folder)
    names = clip_names(spans, labels, _suffix_of(files[0].path) if copy else ENCODED_SUFFIX)
    _check_names(folder, names, known, source)
    clips: list[Clip] = []
    num_written = 0
    for name, (start_s, end_s), label in zip(names, spans, labels, strict=True):
        if not end_s - start_s >= MIN_CLIP_S:
            raise InputError(f"a clip from {start_s:g} to {end_s:g} s is empty")
        clip = known.get(name)
        if clip is None or not clip.is_current(folder, source, (start_s, end_s), copy):
            # The list names the clip before it is written, so that a complete clip is known as ours
            # after an interruption; its size is added afterwards.
            clip = Clip(name, round(start_s, 6), round(end_s, 6), label, source, UNKNOWN_SIZE, 0, 0)
            _write_clips(folder, [*clips, clip, *known.values()])
            pieces = cut_pieces(files, start_s, end_s, stream)
            written = write_clip(folder / name, pieces, title=label or "", copy=copy)
            num_bytes = (folder / name).stat().st_size
            clip = replace(clip, num_bytes=num_bytes, num_copied=written.num_copied, num_encoded=written.num_encoded)
            num_written += 1
            _write_clips(folder, [*clips, clip, *known.values()])
        clips.append(clip)
        progress(name)
    removed = _remove_others(folder, known, source, {clip.file for clip in clips})
    others = [clip for clip in known.values() if clip.file not in {*names, *removed}]
    _write_clips(folder, [*clips, *others])
    return SplitResult(tuple(clips), num_written, removed)


def join_moments(
    path: Path,
    moments: Sequence[tuple[Sequence[VideoFile], float, float]],
    stream: int = 0,
    *,
    copy: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> WrittenClip:
    """Join moments of one or several videos in one file; `copy` as in `hiero.decoding.cutting.write_clip`.

    `starts_s` of the result says where each moment starts.
    """
    if path.suffix.lower() not in CONTAINERS:
        raise InputError(f"{path}: a video file ends in one of {', '.join(CONTAINERS)}")
    if not moments:
        raise InputError("there are no moments to join")
    cut = [cut_pieces(files, start_s, end_s, stream) for files, start_s, end_s in moments]
    pieces = [piece for parts in cut for piece in parts]
    if any(piece.path.resolve() == path.resolve() for piece in pieces):
        raise InputError(f"{path}: is one of the videos that it would be made from; name another file")
    written = write_clip(path, pieces, copy=copy, progress=progress)
    first = [0, *itertools.accumulate(map(len, cut))][:-1]  # the first piece of each moment
    return replace(written, starts_s=tuple(written.starts_s[number] for number in first))


def cut_pieces(files: Sequence[VideoFile], start_s: float, end_s: float, stream: int = 0) -> list[Piece]:
    """The pieces of files that a span of a video is made of."""
    return [
        Piece(Path(file.path), begin_s, stop_s, stream)
        for file, begin_s, stop_s in split_by_file(files, start_s, end_s)
    ]


def clip_names(spans: Sequence[tuple[float, float]], labels: Sequence[str | None], suffix: str) -> list[str]:
    """Names of files, such as "03 cut the onion.mp4"; a span without a label has the time of its beginning.

    Examples:
        >>> clip_names([(0.0, 9.0), (9.0, 75.0)], ["cut/peel: the onion?", None], ".mp4")
        ['01 cut peel the onion.mp4', '02 at 0m09s.mp4']
    """
    width = max(2, len(str(len(spans))))
    out = []
    for number, ((start_s, _), label) in enumerate(zip(spans, labels, strict=True), 1):
        time = format_time(start_s).split(":")
        name = safe_name(label or "") or "at " + "".join(
            f"{part}{unit}" for part, unit in zip(time, "hms"[-len(time) :], strict=True)
        )
        out.append(f"{number:0{width}d} {name}{suffix}")
    return out


def safe_name(text: str) -> str:
    """A text as a part of a file's name on any system: without slashes, quotes and the like, and not too long."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(
        " " if unicodedata.category(char).startswith(("C", "Z")) or char in '<>:"/\\|?*' else char for char in text
    )
    text = re.sub(r"\s+", " ", text)
    text = text.encode("utf-8", "ignore")[:MAX_NAME_BYTES].decode("utf-8", "ignore")
    return text.strip(" .")


def _suffix_of(path: str) -> str:
    suffix = Path(path).suffix.lower()
    return suffix if suffix in CONTAINERS else OTHER_SUFFIX


def _check_names(folder: Path, names: Sequence[str], known: dict[str, Clip], source: SourceFiles) -> None:
    """Refuse to overwrite files that are no clips of this video."""
    for name in names:
        if (folder / name).exists() and (name not in known or not _is_same_video(known[name].source, source)):
            raise InputError(f"{folder / name}: exists and is no clip of {source[0][0]}; choose another folder")


def _describe_source(files: Sequence[VideoFile]) -> SourceFiles:
    out = []
    for file in files:
        path = Path(file.path)
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        state = path.stat()
        out.append((path.name, state.st_size, state.st_mtime_ns))
    return tuple(out)


def _is_same_video(one: Sequence[tuple[str, int, int]], other: Sequence[tuple[str, int, int]]) -> bool:
    """Whether the same files are meant, changed or not."""
    return [name for name, *_ in one] == [name for name, *_ in other]


def _read_clips(folder: Path) -> dict[str, Clip]:
    """The list of a folder, by name of the file; empty where there is none, or it is not one."""
    if not (folder / CLIP_LIST).is_file():
        return {}
    try:
        clips = [Clip.from_dict(row) for row in read_json(folder / CLIP_LIST)["clips"]]
    except (InputError, KeyError, TypeError):
        return {}
    return {clip.file: clip for clip in clips}


def _write_clips(folder: Path, clips: Sequence[Clip]) -> None:
    rows = [asdict(clip) for clip in {clip.file: clip for clip in reversed(clips)}.values()]
    document = {"version": CLIP_LIST_VERSION, "clips": sorted(rows, key=lambda row: str(row["file"]))}
    write_text(folder / CLIP_LIST, json.dumps(document, indent=1) + "\n")


def _remove_others(folder: Path, known: dict[str, Clip], source: SourceFiles, names: set[str]) -> tuple[str, ...]:
    """Remove clips of the same video that are not among the names, if nobody changed them since."""
    removed = []
    for clip in known.values():
        path = folder / clip.file
        if clip.file in names or not _is_same_video(clip.source, source) or not path.is_file():
            continue
        if path.stat().st_size == clip.num_bytes:
            path.unlink()
            removed.append(clip.file)
    return tuple(removed)
