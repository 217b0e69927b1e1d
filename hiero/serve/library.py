"""What a server shows: files that were given to it, by ids; nothing else on the machine can be named."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.rows import IndexedVideo
from hiero.corpus.table import is_corpus_folder
from hiero.decoding.recordings import NoFilesError, find_recordings, is_collection, is_video_address
from hiero.engine import Engine, Video, engine_for
from hiero.errors import InputError
from hiero.evaluation.own_videos import read_annotations
from hiero.serve.edits import FileEdits
from hiero.serve.entries import Entry, NotFoundError, NotReadError
from hiero.sources.addresses import is_address
from hiero.sources.source import VideoInput, VideoSource
from hiero.speech.recognition import TranscriptSettings, load_transcript
from hiero.steps.prototypes import StepPrototypes
from hiero.types import Hierarchy, ProgressCallback, no_progress

MAX_OPEN_BYTES = 512 * 2**20  # of videos in memory; one stays, however large
MAX_CACHED_HIERARCHIES = 500  # the page asks for the same ones again and again
MAX_CACHED_LISTS = 32  # of entries, by what was typed and how they are sorted
ID_LENGTH = 12  # hexadecimal digits

SortKey = Literal["added", "name", "length", "steps", "state"]


class OpenVideos:
    """The videos that were read last, and their steps, in memory."""

    def __init__(self) -> None:
        self._videos: OrderedDict[tuple[str, str], Video] = OrderedDict()  # by entry and model, last used last
        # By video and numbers of steps; the reference does not keep a closed video in memory.
        self._hierarchies: OrderedDict[tuple[int, tuple[int, ...]], tuple[weakref.ref[Video], Hierarchy]]
        self._hierarchies = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Approximate memory used by the open videos."""
        with self._lock:
            return sum(map(_num_bytes, self._videos.values()))

    def find(self, id: str, model: str) -> Video | None:
        with self._lock:
            if (id, model) in self._videos:
                self._videos.move_to_end((id, model))
            return self._videos.get((id, model))

    def add(self, id: str, model: str, video: Video) -> None:
        with self._lock:
            self._videos[id, model] = video
            while len(self._videos) > 1 and sum(map(_num_bytes, self._videos.values())) > MAX_OPEN_BYTES:
                self._videos.popitem(last=False)

    def steps(self, video: Video, num_steps: list[int] | None, labels: list[str] | None) -> Hierarchy:
        """The steps of a video; those that were asked for lately are cached."""
        key = (id(video), tuple(num_steps or ()))
        with self._lock:
            cached = self._hierarchies.get(key)
        if cached is not None and cached[0]() is video:
            return cached[1]
        hierarchy = video.steps(num_steps, labels=labels)
        with self._lock:
            self._hierarchies[key] = weakref.ref(video), hierarchy
            while len(self._hierarchies) > MAX_CACHED_HIERARCHIES:
                self._hierarchies.popitem(last=False)
        return hierarchy

    def forget_steps(self) -> None:
        with self._lock:
            self._hierarchies.clear()


@dataclass
class Library:
    """Entries, the engines that read them, and what people changed."""

    engines: dict[str, Engine]
    entries: dict[str, Entry] = field(default_factory=dict)
    corpus: Corpus | None = None
    annotations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    labels: list[str] | None = None
    cache: bool = True
    transcripts: bool = True
    speech: bool = False
    reader: Callable[[Entry, ProgressCallback], None] | None = None  # reads videos into the cache, elsewhere
    edits: FileEdits = field(default_factory=FileEdits)
    videos: OpenVideos = field(default_factory=OpenVideos)
    _ids_by_name: dict[str, str] = field(default_factory=dict)
    _lists: dict[tuple[str, SortKey, bool], list[Entry]] = field(default_factory=dict)  # until an entry changes
    _read_locks: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # of all the above

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
            entry = Entry(id, free_name, source, record is not None)
            if record is not None:
                num_steps = record.levels[-1] if record.levels else None
                entry = replace(entry, duration_s=record.duration_s, num_steps=num_steps)
            self.entries[id] = entry
            self._ids_by_name[free_name] = id
            self._lists.clear()
            return entry

    def find(self, id: str) -> Entry:
        """Raises NotFoundError where there is no such entry."""
        try:
            return self.entries[id]
        except KeyError:
            raise NotFoundError(f"no video {id}") from None

    def find_by_name(self, name: str) -> Entry | None:
        id = self._ids_by_name.get(name)
        return None if id is None else self.entries[id]

    def list_entries(self, text: str = "", sort: SortKey = "added", descending: bool = False) -> list[Entry]:
        """Entries whose names hold a text, in some order."""
        key = (text.casefold(), sort, descending)
        with self._lock:
            if key not in self._lists:
                entries = [entry for entry in self.entries.values() if key[0] in entry.name.casefold()]
                while len(self._lists) >= MAX_CACHED_LISTS:
                    self._lists.pop(next(iter(self._lists)))
                self._lists[key] = self._sort(entries, sort, descending)
            return self._lists[key]

    def _sort(self, entries: list[Entry], sort: SortKey, descending: bool) -> list[Entry]:
        """Those of which the value is not known come last, in either direction."""
        if sort == "added":
            return entries[::-1] if descending else entries
        values: dict[str, Any] = {entry.id: self._sort_value(entry, sort) for entry in entries}
        known = [entry for entry in entries if values[entry.id] is not None]
        unknown = [entry for entry in entries if values[entry.id] is None]
        return sorted(known, key=lambda entry: values[entry.id], reverse=descending) + unknown

    def _sort_value(self, entry: Entry, sort: SortKey) -> Any:
        if sort == "name":
            return natural_key(entry.name)
        if sort == "state":
            return not self.is_read(entry)
        return entry.duration_s if sort == "length" else entry.num_steps

    def _update(self, id: str, **changes: Any) -> None:
        with self._lock:
            self.entries[id] = replace(self.entries[id], **changes)
            self._lists.clear()

    def is_read(self, entry: Entry) -> bool:
        """Whether it opens at once: it was read, now or before, or is a file of features."""
        return self.entries[entry.id].was_read or not entry.is_video

    def find_open(self, entry: Entry, model: str | None = None) -> Video | None:
        """A video that is in memory; None where it has to be read from files."""
        if not self.is_read(entry):
            raise NotReadError(f"{entry.name} was not read yet; POST /api/videos/{entry.id}/read first")
        return self.videos.find(entry.id, model or self.main_model)

    def open_video(self, entry: Entry, model: str | None = None, progress: ProgressCallback | None = None) -> Video:
        """A video that opens at once; one that does not is read by a job, not by whoever looks at it."""
        return self.find_open(entry, model) or self.read(entry, model, progress)

    def read(self, entry: Entry, model: str | None = None, progress: ProgressCallback | None = None) -> Video:
        """Read a video, however long it takes; several that want it at a time wait for the first."""
        model = model or self.main_model
        if model not in self.engines:
            raise NotFoundError(f"no model {model}; there are {', '.join(self.engines)}")
        with self._lock:
            read_lock = self._read_locks.setdefault((entry.id, model), threading.Lock())
        with read_lock:
            if (video := self.videos.find(entry.id, model)) is not None:  # it may have come while this one waited
                return video
            video = engine_for(self.engines[model], entry.source).read(
                entry.source, cache=self.cache, progress=progress
            )
            settings = TranscriptSettings(find=self.transcripts, recognise=self.speech, cache=self.cache)
            video.transcript = load_transcript(video.files, video.origin, settings, progress or no_progress)
            self.videos.add(entry.id, model, video)
            self._update(entry.id, was_read=True, duration_s=video.duration_s)
            return video

    def steps(self, video: Video, num_steps: list[int] | None) -> Hierarchy:
        """The steps of an open video, named with the server's labels."""
        labels, prototypes = self.labels if video.engine.has_text else None, video.engine.prototypes
        if labels and prototypes is not None:
            labels = list(dict.fromkeys([*prototypes.labels, *labels]))
        return self.videos.steps(video, num_steps, labels)

    def set_prototypes(self, prototypes: StepPrototypes) -> None:
        """Find and name steps by what corrections taught, from now on, with the main model."""
        self.main_engine.prototypes = prototypes
        self.videos.forget_steps()

    def index(self, entry: Entry, progress: ProgressCallback | None = None) -> None:
        """Read a video, and add it to the corpus where there is one."""
        if self.reader is not None and not self.is_read(entry):
            self.reader(entry, progress or no_progress)
        if self.corpus is not None:
            record = self.corpus.lookup([entry.name]).get(entry.name)
            if record is not None and record.path != entry.source.name:
                raise InputError(f"{entry.name}: the corpus has another video of that name; rename the file")
        video = self.read(entry, progress=progress)
        if self.corpus is not None:
            add_video(
                self.corpus,
                self.main_engine,
                entry.source,
                lambda _: video,
                IndexSettings(labels=self.labels),
                entry.name,
            )
        num_steps = len(self.steps(video, None).levels[-1])  # which the page will ask for next
        self._update(entry.id, num_steps=num_steps)

    def annotations_of(self, entry: Entry) -> list[dict[str, Any]]:
        """Annotated steps of a video: [{start_s, end_s, text}]."""
        return self.annotations.get(entry.name, [])


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts names as people do: day 9 before day 10."""
    parts = re.findall(r"\d+|\D+", name.casefold())
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


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
    return not is_video_address(source) if is_address(source) else is_corpus_folder(Path(source))


def _read_annotated_steps(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        videos = {video.video: [asdict(step) for step in video.steps] for video in read_annotations(path)}
        json.dumps(videos, ensure_ascii=False).encode()  # as they will be sent: not so with half a character
    except (OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise InputError(f"{path}: cannot be read as annotations ({error})") from error
    return videos


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


def _num_bytes(video: Video) -> int:
    """Approximate memory used by an open video."""
    num_feature_bytes = sum(rows.nbytes for rows in video.source.features.values())
    return video.nodes.nbytes + num_feature_bytes + sum(map(len, video.source.thumbnails))
