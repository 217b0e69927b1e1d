"""What a server shows: files that were given to it, by ids; nothing else on the machine can be named."""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hiero.corpus.corpus import Corpus, add_video
from hiero.data.features import FEATURE_SUFFIXES
from hiero.engine import Engine, Video
from hiero.errors import InputError
from hiero.extraction.collection import VIDEO_SUFFIXES, files_in
from hiero.steps.hierarchy import link_levels
from hiero.steps.segmentation import MIN_NORM, centre_and_normalise, to_grey
from hiero.storage.files import read_json, write_text
from hiero.types import Hierarchy, ProgressCallback, Step

MAX_READ = 16  # videos in memory
TILE = 128  # cells of a tile of the similarity matrix
EDITS = ".hiero.json"  # beside a video


class NotFoundError(Exception):
    """What a client asked for does not exist."""


class NotReadError(Exception):
    """A video must be read first, which takes its time."""


@dataclass(frozen=True)
class Entry:
    """A file that may be looked at."""

    id: str
    name: str
    path: Path
    indexed: bool = False
    """In the corpus: what was computed is kept, so it opens at once."""

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() not in FEATURE_SUFFIXES

    @property
    def film(self) -> Path | None:
        """What can be played: the video itself, or one of the same name beside a feature file."""
        if self.is_video:
            return self.path if self.path.is_file() else None
        return next((film for suffix in VIDEO_SUFFIXES if (film := self.path.with_suffix(suffix)).is_file()), None)


@dataclass
class Library:
    """Entries, the engines that read them, and what was read last."""

    engines: dict[str, Engine]
    """By name; the first is the main one, the others are rows to compare with."""
    entries: dict[str, Entry] = field(default_factory=dict)
    corpus: Corpus | None = None
    truth: dict[str, Any] = field(default_factory=dict)
    labels: list[str] | None = None
    """For steps; None: the everyday phrases."""
    cache: bool = True
    _read: OrderedDict[tuple[str, str], Video] = field(default_factory=OrderedDict)
    _done: set[str] = field(default_factory=set)
    _turns: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def main(self) -> str:
        return next(iter(self.engines))

    def add(self, path: Path, name: str | None = None, indexed: bool = False) -> Entry:
        """Show a file, under its own name; a name that another file has gets a number."""
        path = path.resolve()
        id = hashlib.sha256(str(path).encode()).hexdigest()[:12]
        with self._lock:
            taken = {entry.name for entry in self.entries.values() if entry.id != id}
            wanted = name or path.stem
            free = next(n for n in itertools.chain([wanted], (f"{wanted} ({i})" for i in itertools.count(2))) if n not in taken)
            return self.entries.setdefault(id, Entry(id, free, path, indexed))

    def find(self, id: str) -> Entry:
        try:
            return self.entries[id]
        except KeyError:
            raise NotFoundError(f"no video {id}") from None

    def by_name(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries.values() if entry.name == name), None)

    def is_read(self, entry: Entry) -> bool:
        """Whether it opens at once: it was read, now or before, or is a file of features."""
        return entry.indexed or entry.id in self._done or not entry.is_video

    def opened(self, entry: Entry, model: str | None = None) -> Video:
        """A video that opens at once; one that does not is read by a job, not by whoever looks."""
        if not self.is_read(entry):
            raise NotReadError(f"{entry.name} was not read yet; POST /api/videos/{entry.id}/read first")
        return self.read(entry, model)

    def read(self, entry: Entry, model: str | None = None, progress: ProgressCallback | None = None) -> Video:
        """A video, read once: others that want it wait for the first."""
        model = model or self.main
        if model not in self.engines:
            raise NotFoundError(f"no model {model}; there are {', '.join(self.engines)}")
        key = (entry.id, model)
        with self._lock:
            turn = self._turns.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                if key in self._read:
                    self._read.move_to_end(key)
                    return self._read[key]
            video = self.engines[model].read(entry.path, cache=self.cache, progress=progress)
            with self._lock:
                self._read[key] = video
                self._done.add(entry.id)
                while len(self._read) > MAX_READ:
                    self._read.popitem(last=False)
            return video

    def index(self, entry: Entry, progress: ProgressCallback | None = None) -> None:
        """Put a video into the corpus, where there is one that may be written to."""
        if self.corpus is not None and any(a.video == entry.name and a.path != str(entry.path) for a in self.corpus.videos()):
            raise InputError(f"{entry.name}: the corpus has another video of that name; rename the file")
        video = self.read(entry, progress=progress)
        if self.corpus is not None:
            add_video(self.corpus, self.engines[self.main], entry.path, lambda _: video, labels=self.labels, name=entry.name)

    # Edits

    def edits_file(self, entry: Entry) -> Path:
        return entry.path.with_name(entry.path.name + EDITS)

    def edited(self, entry: Entry) -> Hierarchy | None:
        file = self.edits_file(entry)
        return parse_hierarchy(read_json(file), None) if file.is_file() else None

    def save_edits(self, entry: Entry, document: Any) -> Hierarchy:
        """Keep a hierarchy that a person has changed, beside the video; it must cover the video and be nested."""
        found = parse_hierarchy(document, self.opened(entry).duration_s)
        write_text(self.edits_file(entry), json.dumps(found.to_dict(), ensure_ascii=False, indent=1) + "\n")
        return found

    def forget_edits(self, entry: Entry) -> None:
        self.edits_file(entry).unlink(missing_ok=True)

    def truth_of(self, entry: Entry) -> list[dict[str, Any]]:
        """Steps of an annotation file for this video: [{start_s, end_s, text}]."""
        return list((self.truth.get(entry.name) or {}).get("steps", []))


def parse_hierarchy(document: Any, duration_s: float | None) -> Hierarchy:
    """A hierarchy out of its JSON, checked: each level covers the video in order, ids differ, parents hold their children."""
    try:
        length = float(document["duration_s"])
        levels = [tuple(_parse_step(row) for row in level["steps"]) for level in document["levels"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"not a hierarchy of steps ({type(error).__name__}: {error})") from error
    if not levels or not all(levels) or not np.isfinite(length) or len(levels) > 16 or sum(map(len, levels)) > 100_000:
        raise InputError("a hierarchy has between 1 and 16 levels, each with steps")
    if duration_s is not None and abs(length - duration_s) > 1.0:
        raise InputError(f"the video is {duration_s:.1f} s long, these steps say {length:.1f}")
    ids = [step.id for level in levels for step in level]
    if len(set(ids)) < len(ids):
        raise InputError("two steps have the same id")
    for number, level in enumerate(levels):
        edges = [0.0, *(step.end_s for step in level)]
        for step, begin in zip(level, edges, strict=False):
            if not (abs(step.start_s - begin) < 0.05 and step.end_s > step.start_s):
                raise InputError(f"level {number}: step {step.id} must begin where the one before it ends, and last")
        if abs(edges[-1] - length) > 0.05:
            raise InputError(f"level {number} ends at {edges[-1]:.1f} s, the video at {length:.1f}")
    for coarse, fine in pairwise(levels):
        holders = {step.id: step for step in coarse}
        for step in fine:
            holder = holders.get(step.parent or "")
            if holder is None or step.start_s < holder.start_s - 0.05 or step.end_s > holder.end_s + 0.05:
                raise InputError(f"step {step.id} must lie inside its parent")
    linked = link_levels([[replace(step, parent=None, children=()) for step in level] for level in levels])
    return Hierarchy(str(document.get("video", "")), str(document.get("model", "")), length, tuple(map(tuple, linked)))


def _parse_step(row: Any) -> Step:
    label, score, parent = row.get("label"), row.get("score"), row.get("parent")
    if not (parent is None or isinstance(parent, str)) or not np.isfinite(float(score or 0)):
        raise ValueError("a parent is an id, a score a number")
    return Step(
        str(row["id"])[:64], float(row["start_s"]), float(row["end_s"]), int(row.get("thread", 0)), parent,
        tuple(map(str, row.get("children", ()))), bool(row.get("background", False)), None if label is None else str(label)[:500],
        None if score is None else float(score),
    )  # fmt: skip


def similarity_tile(video: Video, zoom: int, row: int, column: int) -> np.ndarray:
    """A tile (≤ 128, ≤ 128) of the similarity matrix in grey; at zoom z the whole matrix has 128 · 2ᶻ cells, or one a node."""
    if not 0 <= zoom <= 12:
        raise InputError("zoom is between 0 and 12")
    num = num_cells(video, zoom)
    if not (0 <= row * TILE < num and 0 <= column * TILE < num):
        raise NotFoundError(f"no tile {row}, {column} at zoom {zoom}")
    edges = np.linspace(0, len(video.nodes), num + 1).round().astype(int)
    x = centre_and_normalise(video.segmentation_features, MIN_NORM)

    def means(part: int) -> np.ndarray:
        bounds = edges[part * TILE : part * TILE + TILE + 1]
        total = np.add.reduceat(x[: bounds[-1]], bounds[:-1], axis=0)
        return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12)

    return to_grey(means(row) @ means(column).T)


def num_cells(video: Video, zoom: int) -> int:
    """Rows of the whole similarity matrix at a zoom."""
    return min(len(video.nodes), TILE << zoom)


def open_library(
    what: list[str], engines: dict[str, Engine], truth: Path | None = None, log: Callable[[str], None] = lambda _: None
) -> Library:
    """A library of videos, feature files, folders of them, or one corpus."""
    library = Library(engines)
    for item in sorted(what, key=lambda item: not is_corpus(item)):  # its names come first
        path = Path(item)
        if is_corpus(item):
            _add_corpus(library, item, log)
        elif path.is_dir():
            files = files_in(path, (*VIDEO_SUFFIXES, *FEATURE_SUFFIXES))
            films = {file.with_suffix("") for file in files if file.suffix.lower() in VIDEO_SUFFIXES}
            shown = [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES or file.with_suffix("") not in films]
            if not shown:
                raise InputError(f"{path}: no videos and no feature files in this folder")
            for file in shown:
                library.add(file, file.relative_to(path).with_suffix("").as_posix())
        elif path.is_file():
            library.add(path)
        else:
            raise InputError(f"{item}: no such file, folder or corpus")
    if truth is not None:
        library.truth = read_json(truth)
    return library


def is_corpus(item: str) -> bool:
    return "://" in item or (Path(item) / "steps.lance").is_dir()


def _add_corpus(library: Library, item: str, log: Callable[[str], None]) -> None:
    if library.corpus is not None:
        raise InputError(f"{item}: one corpus at a time")
    library.corpus = Corpus(item)
    library.corpus.check_words(library.engines[library.main])
    for about in library.corpus.videos():
        if Path(about.path).is_file():
            library.add(Path(about.path), about.video, indexed=True)
        else:
            log(f"{about.video}: {about.path} is gone; it can be searched but not opened")
