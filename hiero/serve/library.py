"""What a server shows: files that were given to it, by ids; nothing else on the machine can be named."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from hiero.corpus.corpus import Corpus, add_video
from hiero.corpus.rows import IndexedVideo
from hiero.data.features import FEATURE_SUFFIXES
from hiero.engine import Engine, Video
from hiero.errors import InputError
from hiero.evaluation.own_videos import read_annotations
from hiero.extraction.collection import VIDEO_SUFFIXES, NoFilesError, find_recordings, is_collection, is_video_address
from hiero.formats.edits import EDITS_SUFFIX, encode_edits, parse_hierarchy
from hiero.serve.edit_stores import EditStore, FileEdits, version_of
from hiero.serve.state import SavedEdit
from hiero.sources.source import LocalFile, SourceFile, VideoInput, VideoSource, is_address
from hiero.speech.files import load_transcript
from hiero.steps.prototypes import StepPrototypes
from hiero.storage.files import parse_json
from hiero.types import Hierarchy, ProgressCallback, no_progress

MAX_OPEN_BYTES = 512 * 2**20  # of videos in memory; one stays, however large
MAX_CACHED_HIERARCHIES = 500  # the page asks for the same ones again and again
PLAYABLE_S, MAX_PLAYABLE = 5.0, 10_000  # how long it is believed which file a player opens, and of how many videos
MAX_CACHED_LISTS = 32  # of entries, by what was typed and how they are sorted
ID_LENGTH = 12  # hexadecimal digits
EDITS_PART = re.compile(r"\..+" + re.escape(EDITS_SUFFIX) + r"\.[a-z0-9_]{8}\.part")  # as `atomic_path` names them
STALE_S = 2 * 3600.0  # a file that is being written changes within seconds


SortKey = Literal["added", "name", "length", "steps", "state"]


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts names as people do: day 9 before day 10."""
    parts = re.findall(r"\d+|\D+", name.casefold())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


class NotFoundError(Exception):
    """What a client asked for does not exist."""


class NotReadError(Exception):
    """A video must be read first, which takes its time."""


class ConflictError(Exception):
    """Edits were saved by someone else meanwhile."""

    def __init__(self, message: str, version: str | None, hierarchy: Hierarchy | None) -> None:
        super().__init__(message)
        self.version, self.hierarchy = version, hierarchy


@dataclass(frozen=True)
class Entry:
    """A file that may be looked at."""

    id: str
    name: str
    source: VideoSource
    indexed: bool = False
    duration_s: float | None = None
    num_steps: int | None = None

    @property
    def path(self) -> Path:
        """The first file."""
        return self.source.path

    @property
    def is_video(self) -> bool:
        return self.path.suffix.lower() not in FEATURE_SUFFIXES

    @property
    def playable_files(self) -> list[SourceFile]:
        """What a player opens, in time order: the files themselves, or videos of the same name beside
        feature files; none where one of them is missing.
        """
        period = int(time.monotonic() / PLAYABLE_S)
        playable = [_find_playable(file, period) for file in self.source.files]
        return [file for file in playable if file is not None] if None not in playable else []


@dataclass(frozen=True)
class Edits:
    """Steps as a person changed them, and what tells them from those of another save."""

    hierarchy: Hierarchy
    version: str


@dataclass
class Library:
    """Entries, the engines that read them, and the videos that were read last."""

    engines: dict[str, Engine]
    entries: dict[str, Entry] = field(default_factory=dict)
    corpus: Corpus | None = None
    annotations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    labels: list[str] | None = None
    cache: bool = True
    transcripts: bool = True
    speech: bool = False
    edit_store: EditStore = field(default_factory=FileEdits)
    # by entry and model, last used last
    _videos: OrderedDict[tuple[str, str], Video] = field(default_factory=OrderedDict)
    _hierarchies: OrderedDict[tuple[int, tuple[int, ...]], tuple[weakref.ref[Video], Hierarchy]] = field(
        default_factory=OrderedDict
    )
    _ids_by_name: dict[str, str] = field(default_factory=dict)
    _revision: int = 0  # counts changes of entries
    _lists: dict[tuple[str, str, bool], list[Entry]] = field(default_factory=dict)  # of that revision:
    _listed_at: int = 0
    _read_ids: set[str] = field(default_factory=set)  # entries that were read, also those that left _videos
    _read_locks: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of all the above
    # from the look at a version until it is replaced
    _edits_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def main_model(self) -> str:
        return next(iter(self.engines))

    @property
    def main_engine(self) -> Engine:
        return self.engines[self.main_model]

    def add(self, source: VideoInput, name: str | None = None, record: IndexedVideo | None = None) -> Entry:
        """Show a file, or several that are one video."""
        source = VideoSource.of(source).resolve()
        id = hashlib.sha256("\n".join(map(str, source.paths)).encode()).hexdigest()[:ID_LENGTH]
        with self._lock:
            if id in self.entries:
                return self.entries[id]
            preferred = name or source.path.stem
            candidates = itertools.chain([preferred], (f"{preferred} ({i})" for i in itertools.count(2)))
            free_name = next(candidate for candidate in candidates if candidate not in self._ids_by_name)
            length_s, num_steps = (
                (None, None) if record is None else (record.duration_s, record.levels[-1] if record.levels else None)
            )
            entry = Entry(id, free_name, source, record is not None, length_s, num_steps)
            self.entries[id] = entry
            self._ids_by_name[free_name] = id
            self._revision += 1
            return entry

    def find(self, id: str) -> Entry:
        """Raises NotFoundError where there is no such entry."""
        try:
            return self.entries[id]
        except KeyError:
            raise NotFoundError(f"no video {id}") from None

    def list_entries(self, text: str = "", sort: SortKey = "added", descending: bool = False) -> list[Entry]:
        """Entries whose names hold a text, in some order."""
        key = (text.casefold(), sort, descending)
        with self._lock:
            if self._listed_at != self._revision:
                self._listed_at = self._revision
                self._lists.clear()
            if key not in self._lists:
                entries = [entry for entry in self.entries.values() if key[0] in entry.name.casefold()]
                if sort == "added":
                    entries = entries[::-1] if descending else entries
                else:
                    known = [
                        (value, entry) for entry in entries if (value := self._sort_value(entry, sort)) is not None
                    ]
                    known.sort(key=lambda pair: pair[0], reverse=descending)
                    known_ids = {entry.id for _, entry in known}
                    entries = [entry for _, entry in known] + [entry for entry in entries if entry.id not in known_ids]
                while len(self._lists) >= MAX_CACHED_LISTS:
                    self._lists.pop(next(iter(self._lists)))
                self._lists[key] = entries
            return self._lists[key]

    def _sort_value(self, entry: Entry, sort: SortKey) -> Any:
        if sort == "name":
            return natural_key(entry.name)
        if sort == "state":
            return not self.is_read(entry)
        return entry.duration_s if sort == "length" else entry.num_steps

    def _replace_entry(self, id: str, **changes: Any) -> None:
        with self._lock:
            self.entries[id] = replace(self.entries[id], **changes)
            self._revision += 1

    def find_by_name(self, name: str) -> Entry | None:
        id = self._ids_by_name.get(name)
        return None if id is None else self.entries[id]

    # Reading

    def is_read(self, entry: Entry) -> bool:
        """Whether it opens at once: it was read, now or before, or is a file of features."""
        return entry.indexed or entry.id in self._read_ids or not entry.is_video

    def find_open(self, entry: Entry, model: str | None = None) -> Video | None:
        """A video that is in memory; None where it has to be read from files."""
        if not self.is_read(entry):
            raise NotReadError(f"{entry.name} was not read yet; POST /api/videos/{entry.id}/read first")
        key = (entry.id, model or self.main_model)
        return self._find_in_memory(key)

    def _find_in_memory(self, key: tuple[str, str]) -> Video | None:
        with self._lock:
            if key in self._videos:
                self._videos.move_to_end(key)
            return self._videos.get(key)

    def open_video(self, entry: Entry, model: str | None = None, progress: ProgressCallback | None = None) -> Video:
        """A video that opens at once; one that does not is read by a job, not by whoever looks at it."""
        return self.find_open(entry, model) or self.read(entry, model, progress)

    def read(self, entry: Entry, model: str | None = None, progress: ProgressCallback | None = None) -> Video:
        """Read a video, however long it takes; several that want it at a time wait for the first."""
        model = model or self.main_model
        if model not in self.engines:
            raise NotFoundError(f"no model {model}; there are {', '.join(self.engines)}")
        key = (entry.id, model)
        with self._lock:
            read_lock = self._read_locks.setdefault(key, threading.Lock())
        with read_lock:
            if (video := self._find_in_memory(key)) is not None:  # it may have come while this one waited
                return video
            video = self.engines[model].read(entry.source, cache=self.cache, progress=progress)
            video.transcript = load_transcript(
                video, find=self.transcripts, recognise=self.speech, cache=self.cache, progress=progress or no_progress
            )
            with self._lock:
                self._videos[key] = video
                self._read_ids.add(entry.id)
                while len(self._videos) > 1 and sum(map(_num_bytes, self._videos.values())) > MAX_OPEN_BYTES:
                    self._videos.popitem(last=False)
            self._replace_entry(entry.id, duration_s=video.duration_s)
            return video

    def steps(self, video: Video, num_steps: list[int] | None) -> Hierarchy:
        """The steps of an open video, named with the server's labels; those that were asked for lately are cached."""
        key = (id(video), tuple(num_steps or ()))
        with self._lock:
            cached = self._hierarchies.get(key)
        if cached is not None and cached[0]() is video:
            return cached[1]
        labels, prototypes = self.labels if video.engine.has_text else None, video.engine.prototypes
        if labels and prototypes is not None:
            labels = list(dict.fromkeys([*prototypes.labels, *labels]))
        hierarchy = video.steps(num_steps, labels=labels)
        with self._lock:
            self._hierarchies[key] = weakref.ref(video), hierarchy  # which does not keep a closed video in memory
            while len(self._hierarchies) > MAX_CACHED_HIERARCHIES:
                self._hierarchies.popitem(last=False)
        return hierarchy

    @property
    def num_open_bytes(self) -> int:
        """What the videos in memory take, about."""
        with self._lock:
            return sum(map(_num_bytes, self._videos.values()))

    def set_prototypes(self, prototypes: StepPrototypes) -> None:
        """Find and name steps by what corrections taught, from now on, with the main model."""
        self.main_engine.prototypes = prototypes
        with self._lock:
            self._hierarchies.clear()

    def index(self, entry: Entry, progress: ProgressCallback | None = None) -> None:
        """Read a video, and add it to the corpus where there is one."""
        if self.corpus is not None:
            record = self.corpus.lookup([entry.name]).get(entry.name)
            if record is not None and record.path != entry.source.name:
                raise InputError(f"{entry.name}: the corpus has another video of that name; rename the file")
        video = self.read(entry, progress=progress)
        if self.corpus is not None:
            add_video(self.corpus, self.main_engine, entry.source, lambda _: video, labels=self.labels, name=entry.name)
        num_steps = len(self.steps(video, None).levels[-1])  # which the page will ask for next
        self._replace_entry(entry.id, num_steps=num_steps)

    # Edits and annotations

    def is_edited(self, entry: Entry) -> bool:
        return self.edit_store.exists(entry.id, entry.path)

    def read_edits(self, entry: Entry) -> Edits | None:
        """The hierarchy that a person has changed, if there is one."""
        content = self._edits_content(entry)
        return None if content is None else _parse_edits(entry, content)

    def save_edits(self, entry: Entry, document: Any, expected: Collection[str] | None, user: str = "") -> Edits:
        """Save a hierarchy that a person has changed."""
        hierarchy = parse_hierarchy(document, self.open_video(entry).duration_s)
        content = encode_edits(hierarchy)
        with self._edits_lock:
            self._replace_edits(entry, content, expected, user)
        return Edits(hierarchy, version_of(content))

    def delete_edits(self, entry: Entry, expected: Collection[str] | None = None, user: str = "") -> None:
        """Forget what a person has changed."""
        with self._edits_lock:
            self._replace_edits(entry, None, expected, user)

    def edit_history(self, entry: Entry) -> list[SavedEdit]:
        """All saves of a video, newest first. Raises InputError where they are not remembered."""
        return self.edit_store.history(entry.id)

    def restore_edits(
        self, entry: Entry, number: int, expected: Collection[str] | None, user: str = ""
    ) -> Edits | None:
        """Go back to the steps as they were after one save; a save of its own, so that this too can be undone."""
        content = self.edit_store.content_of(entry.id, number)
        edits = None if content is None else _parse_edits(entry, content)
        with self._edits_lock:
            self._replace_edits(entry, content, expected, user)
        return edits

    def _edits_content(self, entry: Entry) -> bytes | None:
        return self.edit_store.read(entry.id, entry.path)

    def _replace_edits(self, entry: Entry, content: bytes | None, expected: Collection[str] | None, user: str) -> None:
        """Put edits, or none, in place of those that are there, if these are of an expected version."""
        current = self._edits_content(entry)
        if content == current:  # it was done already, and only the answer was lost
            return
        if expected is None or (not expected if current is None else version_of(current) in expected):
            self.edit_store.write(entry.id, entry.path, content, user)
            return
        if current is None:
            raise ConflictError("someone has forgotten the edits of this video meanwhile", None, None)
        try:
            hierarchy = _parse_edits(entry, current).hierarchy
        except InputError:  # a damaged file can be replaced too, by who knows its version
            hierarchy = None
        reason = "someone else has saved steps of this video meanwhile; read them, and send their ETag as If-Match to replace them"
        raise ConflictError(reason, version_of(current), hierarchy)

    def annotations_of(self, entry: Entry) -> list[dict[str, Any]]:
        """Annotated steps of a video: [{start_s, end_s, text}]."""
        return self.annotations.get(entry.name, [])


def open_library(
    sources: list[str],
    engines: dict[str, Engine],
    annotations: Path | None = None,
    log: Callable[[str], None] = lambda _: None,
    join: bool | None = None,
    may_be_empty: bool = False,
) -> Library:
    """A library of what a server was given. Remote files are listed, not brought."""
    library = Library(engines)
    # A corpus first: its videos keep the names that they are searched by, other files of that name get a number.
    for source in filter(is_corpus, sources):
        _add_corpus(library, source, log)
    paths = [source if is_address(source) else Path(source) for source in sources if not is_corpus(source)]
    for path in paths:
        if isinstance(path, Path) and not path.is_file() and not is_collection(path):
            raise InputError(f"{path}: no such file, folder or corpus")
    if paths:
        try:
            recordings = find_recordings(paths, join, resolve_clashes=True, log=log)
        except NoFilesError:
            if not may_be_empty:
                raise
            recordings = {}
        for name, recording in recordings.items():
            library.add(recording, name)
    if annotations is not None:
        library.annotations = _read_annotated_steps(annotations)
    return library


def is_corpus(source: str) -> bool:
    """Whether a source is an address or a folder with LanceDB's table."""
    return not is_video_address(source) if is_address(source) else (Path(source) / "steps.lance").is_dir()


def clear_stale_edits(library: Library) -> None:
    """Remove what a server that was killed left of edits that it was writing, beside the videos."""
    for folder in {entry.path.parent for entry in library.entries.values()}:
        clear_stale(folder, EDITS_PART)


def clear_stale(folder: Path, pattern: re.Pattern[str]) -> None:
    """Remove files that nobody writes any more: they were not changed for hours."""
    try:
        for file in folder.iterdir():
            if pattern.fullmatch(file.name) and time.time() - file.lstat().st_mtime > STALE_S:
                file.unlink(missing_ok=True)
    except OSError:  # of a folder that cannot be read or written nothing is removed; that is no reason not to start
        return


def _read_annotated_steps(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        videos = {video.video: [asdict(step) for step in video.steps] for video in read_annotations(path)}
        json.dumps(videos, ensure_ascii=False).encode()  # as they will be sent: not so with half a character
    except (OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise InputError(f"{path}: cannot be read as annotations ({error})") from error
    return videos


def _parse_edits(entry: Entry, content: bytes) -> Edits:
    try:
        document = parse_json(content)
    except ValueError as error:
        raise InputError(f"{entry.path.name}{EDITS_SUFFIX}: not JSON ({error})") from error
    return Edits(parse_hierarchy(document, None), version_of(content))


def _add_corpus(library: Library, uri: str, log: Callable[[str], None]) -> None:
    if library.corpus is not None:
        raise InputError(f"{uri}: one corpus at a time")
    library.corpus = Corpus(uri)
    library.corpus.check_query_model(library.main_engine)
    for record in library.corpus.videos():
        if record.missing_files:
            log(f"{record.video}: {record.missing_files[0]} is gone; it can be searched but not opened")
        else:
            library.add(record.source, record.video, record)


@lru_cache(maxsize=MAX_PLAYABLE)
def _find_playable(file: SourceFile, period: int) -> SourceFile | None:
    """A video itself, or one of the same name beside a feature file. Looked for once in a period: a
    list asks for many.
    """
    if file.path.suffix.lower() not in FEATURE_SUFFIXES:
        return file if file.exists() else None
    beside = (LocalFile(file.path.with_suffix(suffix)) for suffix in VIDEO_SUFFIXES)
    return next((video for video in beside if video.exists()), None)


def _num_bytes(video: Video) -> int:
    """What an open video takes, about."""
    return (
        video.nodes.nbytes
        + sum(rows.nbytes for rows in video.source.features.values())
        + sum(map(len, video.source.thumbnails))
    )
