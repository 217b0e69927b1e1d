"""A file for each span of a video, and one file of the best moments: cut exactly, resumed after an interruption.

A folder of clips has a list of them, clips.json: what each is cut from, and how. A clip that is in
the list, of the same source and span and of the same size on disk, is not cut again.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hiero.decoding.cutting import CONTAINERS, OTHER_SUFFIX, Piece, WrittenClip, write_clip
from hiero.errors import InputError
from hiero.storage.files import read_json, write_text
from hiero.types import VideoFile, format_time, split_by_file

CLIP_LIST = "clips.json"
CLIP_LIST_VERSION = 1
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
    source: tuple[tuple[str, int, int], ...]
    num_bytes: int
    num_copied: int
    num_encoded: int
    note: str = ""

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Clip:
        """From the JSON of a list of clips. Raises InputError where it is not one."""
        try:
            source = tuple((str(name), int(size), int(time)) for name, size, time in document["source"])
            name = str(document["file"])
            if not name or name != Path(name).name:
                raise ValueError("a clip's name has no folder")
            label = document.get("label")
            return cls(
                name,
                float(document["start_s"]),
                float(document["end_s"]),
                None if label is None else str(label),
                source,
                int(document["num_bytes"]),
                int(document["num_copied"]),
                int(document["num_encoded"]),
                str(document.get("note", "")),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not a clip ({type(error).__name__}: {error})") from error


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
    progress: Callable[[str], None] = lambda _: None,
) -> SplitResult:
    """Write a file for each span of a video. Frames are copied but for a few at the edges; see
    `hiero.decoding.cutting`.
    """
    files = (
        [VideoFile(str(video), 0.0, max((end for _, end in spans), default=0.0))]
        if isinstance(video, Path)
        else list(video)
    )
    labels = [None] * len(spans) if labels is None else list(labels)
    source = _describe_source(files)
    known = _read_clips(folder)
    suffix = Path(files[0].path).suffix.lower()
    suffix = suffix if suffix in CONTAINERS else OTHER_SUFFIX
    names = clip_names(spans, labels, suffix)
    for name in names:
        if (folder / name).exists() and (name not in known or not _is_same_video(known[name].source, source)):
            raise InputError(
                f"{folder / name}: is there already, and is no clip of {Path(files[0].path).name}; choose another "
                "folder"
            )
    clips: list[Clip] = []
    num_written = 0
    for name, (start_s, end_s), label in zip(names, spans, labels, strict=True):
        if not end_s - start_s >= MIN_CLIP_S:
            raise InputError(f"a clip from {start_s:g} to {end_s:g} s is empty")
        clip = known.get(name)
        if clip is None or not _is_current(clip, folder, source, start_s, end_s):
            # Before each clip, so that one which is whole when all else is stopped is known as
            # ours; and after it with its size.
            pending = Clip(name, start_s, end_s, label, source, UNKNOWN_SIZE, 0, 0)
            _write_clips(folder, [*clips, pending, *known.values()])
            written = write_clip(folder / name, cut_pieces(files, start_s, end_s, stream), title=label or "")
            clip = _describe_clip(folder / name, start_s, end_s, label, source, written)
            num_written += 1
            _write_clips(folder, [*clips, clip, *known.values()])
        clips.append(clip)
        progress(name)
    removed = _remove_others(folder, known, source, {clip.file for clip in clips})
    others = [clip for clip in known.values() if clip.file not in {*names, *removed}]
    _write_clips(folder, [*clips, *others])
    return SplitResult(tuple(clips), num_written, removed)


def join_moments(
    path: Path, moments: Sequence[tuple[Sequence[VideoFile], float, float]], stream: int = 0
) -> WrittenClip:
    """Join moments of one or several videos in one file."""
    if path.suffix.lower() not in CONTAINERS:
        raise InputError(f"{path}: a video file ends in one of {', '.join(CONTAINERS)}")
    if not moments:
        raise InputError("there are no moments to join")
    pieces = [piece for files, start_s, end_s in moments for piece in cut_pieces(files, start_s, end_s, stream)]
    if any(piece.path.resolve() == path.resolve() for piece in pieces):
        raise InputError(f"{path}: is one of the videos that it would be made from; name another file")
    return write_clip(path, pieces)


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


def _describe_source(files: Sequence[VideoFile]) -> tuple[tuple[str, int, int], ...]:
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


def _is_current(
    clip: Clip, folder: Path, source: tuple[tuple[str, int, int], ...], start_s: float, end_s: float
) -> bool:
    """Whether a clip is what would be cut now."""
    path = folder / clip.file
    is_same = (
        clip.source == source and abs(clip.start_s - start_s) < MIN_CLIP_S and abs(clip.end_s - end_s) < MIN_CLIP_S
    )
    return is_same and path.is_file() and path.stat().st_size == clip.num_bytes


def _describe_clip(
    path: Path,
    start_s: float,
    end_s: float,
    label: str | None,
    source: tuple[tuple[str, int, int], ...],
    written: WrittenClip,
) -> Clip:
    return Clip(
        path.name,
        round(start_s, 6),
        round(end_s, 6),
        label,
        source,
        path.stat().st_size,
        written.num_copied,
        written.num_encoded,
        written.note,
    )


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


def _remove_others(
    folder: Path, known: dict[str, Clip], source: tuple[tuple[str, int, int], ...], names: set[str]
) -> tuple[str, ...]:
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
