"""The videos of a server. Clients name them by ids, so that no other file of the machine can be reached."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.folder_report import MIN_LABEL_SCORE, FolderReport, build_report, describe_steps, select_corrected
from hiero.corpus.rows import IndexedVideo, edits_key
from hiero.corpus.table import is_corpus
from hiero.engine import Engine, Video
from hiero.engine.transcripts import DEFAULT_SETTINGS, TranscriptSettings, load_transcript
from hiero.errors import BusyError, InputError
from hiero.formats.annotations import annotations_to_dicts
from hiero.formats.hiero_json import mark_origins, parse_hierarchy
from hiero.media.addresses import is_address
from hiero.media.recordings import NoFilesError, find_recordings, free_name, is_collection, natural_key
from hiero.media.source import VideoInput, VideoSource
from hiero.serve.edits import EditStore, FileEdits, SavedSteps, Versions
from hiero.serve.entries import Entry, NotFoundError, NotReadError
from hiero.serve.memory import Memory
from hiero.serve.open_videos import OpenVideos
from hiero.serve.state import KnownVideo
from hiero.serve.workers import WorkerPool
from hiero.steps.prototypes import StepPrototypes
from hiero.types import Answer, Hierarchy, ProgressCallback, ProgressEvent, no_progress

ID_LENGTH = 12  # hexadecimal digits
CORPUS_WAIT_S = 0.5  # then a job or an update gives way to the next, and is tried again
SETTLE_S = 1.0  # a save waits so long for the corpus, which usually takes milliseconds
NUM_FACET_VALUES = 30  # values of a facet that are listed, most frequent first

SortKey = Literal["added", "name", "length", "steps", "state", "date"]


@dataclass(frozen=True)
class VideoFilter:
    """What a listed video must match. Empty values match every video."""

    text: str = ""  # in its name or in the names of its steps
    folder: str = ""
    month: str = ""
    person: str = ""
    step: str = ""

    def matches(self, entry: Entry, people: Sequence[str]) -> bool:
        text = self.text.casefold()
        return (
            (not text or any(text in name.casefold() for name in (entry.name, *entry.names)))
            and self.folder in ("", entry.folder)
            and entry.date.startswith(self.month)
            and (not self.person or self.person in people)
            and (not self.step or self.step in entry.names)
        )


@dataclass
class Library:
    """The entries of a server, the engine that processes them, and their edits."""

    engine: Engine
    entries: dict[str, Entry] = field(default_factory=dict)
    corpus: Corpus | None = None
    annotations: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # annotated steps by name of the video
    labels: list[str] | None = None
    adds_to_corpus: bool = False  # whether videos that are read are added to the corpus
    join: bool | None = None  # chapters of recordings, as for `find_recordings`
    cache: bool = True
    transcripts: TranscriptSettings = DEFAULT_SETTINGS
    edits: EditStore = field(default_factory=FileEdits)
    memory: Memory = field(default_factory=Memory)
    model_problem: str = ""  # why questions cannot be answered yet
    learned: dict[str, Any] = field(default_factory=dict)  # summary of the last learning
    videos: OpenVideos = field(default_factory=OpenVideos)
    _by_name: dict[str, Entry] = field(default_factory=dict)
    _read_locks: dict[str, threading.Lock] = field(default_factory=dict)
    adding: threading.Lock = field(default_factory=threading.Lock)  # held while an upload gets its place
    _lock: threading.Lock = field(default_factory=threading.Lock)  # guards the fields above
    _updates: WorkerPool = field(default_factory=lambda: WorkerPool(1))  # of the corpus

    def add(self, source: VideoInput, name: str | None = None, id: str = "", folder: str = "") -> Entry:
        """Add a video: a file, or several that belong together. Its id and folder follow from its path by default."""
        source = VideoSource.of(source).resolve()
        id = id or path_id(source.paths)
        with self._lock:
            if (entry := self.entries.get(id)) is not None:
                if entry.source != source:  # a recording got another chapter
                    entry.source = source
                    _forget(entry)
                return entry
            name = free_name(name or source.path.stem, self._by_name)
            entry = Entry(id, name, source, folder or Path(source.name).parent.name)
            self.entries[id] = self._by_name[entry.name] = entry
            return entry

    def find(self, id: str) -> Entry:
        """Find an entry by its id. Raises NotFoundError if there is none."""
        if (entry := self.entries.get(id)) is None:
            raise NotFoundError(f"there is no video {id}")
        return entry

    def find_by_name(self, name: str) -> Entry | None:
        return self._by_name.get(name)

    def count_facets(self, entries: Sequence[Entry]) -> dict[str, list[dict[str, Any]]]:
        """How many entries have each value that a filter can ask for, most frequent first."""
        people = self.edits.state.people_of_videos()
        facets = {
            "folder": [entry.folder for entry in entries],
            "month": [entry.date.rpartition("-")[0] for entry in entries],
            "person": [person for entry in entries for person in people.get(entry.id, ())],
            "step": [name for entry in entries for name in entry.names],
        }
        counts = {name: Counter(filter(None, values)).most_common(NUM_FACET_VALUES) for name, values in facets.items()}
        return {name: [{"value": value, "num": num} for value, num in count] for name, count in counts.items()}

    def list_entries(
        self, wanted: VideoFilter = VideoFilter(), sort: SortKey = "added", descending: bool = False
    ) -> list[Entry]:
        """Sorted entries that match a filter. Those without a value come last in either direction."""
        people = self.edits.state.people_of_videos() if wanted.person else {}
        entries = [entry for entry in list(self.entries.values()) if wanted.matches(entry, people.get(entry.id, ()))]
        if sort == "added":
            return entries[::-1] if descending else entries
        value: Callable[[Entry], Any] = {
            "name": lambda entry: natural_key(entry.name),
            "state": lambda entry: not entry.is_read,
            "length": lambda entry: entry.duration_s,
            "steps": lambda entry: entry.num_steps,
            "date": lambda entry: entry.date or None,
        }[sort]
        known = [entry for entry in entries if value(entry) is not None]
        return sorted(known, key=value, reverse=descending) + [entry for entry in entries if value(entry) is None]

    def find_open(self, entry: Entry) -> Video | None:
        """A video that is in memory, or None if it must be read from its files."""
        if not entry.is_read:
            raise NotReadError(f"{entry.name} has not been processed yet; send POST /api/videos/{entry.id}/read first")
        video = self.videos.find(entry.id)
        return None if video is None or video.has_changed else video

    def reopen(self, entry: Entry, progress: ProgressCallback | None = None) -> Video:
        """Read a video that was processed before. If its content is another one, it must be processed first."""
        self.forget_changed(entry)
        return self.find_open(entry) or self.read(entry, progress)

    def forget_changed(self, entry: Entry) -> None:
        """Forget that a video was processed if its files have been replaced since."""
        with suppress(OSError):  # nothing replaces a missing file
            if entry.key is not None and (key := entry.source.known_key()) != entry.key:
                _forget(entry)
                entry.key = key

    def is_current(self, record: IndexedVideo) -> bool:
        """Whether the corpus has the content that the files of a video have now, as far as the server knows."""
        entry = self.find_by_name(record.video)
        if entry is None:
            return True
        if (video := self.videos.find(entry.id)) is not None and video.has_changed:
            self.forget_changed(entry)
        return entry.key in (None, record.sha256)

    def read(self, entry: Entry, progress: ProgressCallback | None = None) -> Video:
        """Read a video, however long it takes. Concurrent calls wait for the first."""
        with self._lock:
            read_lock = self._read_locks.setdefault(entry.id, threading.Lock())
        with read_lock:
            video = self.videos.find(entry.id)
            if video is not None and not video.has_changed:  # another thread was first
                return video
            source = entry.source
            video = self.engine.read(source, cache=self.cache, edits=False, progress=progress)
            video.transcript = load_transcript(video.files, video.origin, self.transcripts, progress or no_progress)
            key = source.known_key()
            if video.has_changed or entry.source != source:
                raise InputError(f"{entry.name}: changed while it was read; process it again when it is complete")
            self.videos.add(entry.id, video)
            entry.was_read, entry.key, entry.duration_s = True, key, video.duration_s
            return video

    def steps(self, video: Video, num_steps: list[int] | None) -> Hierarchy:
        """The steps of an open video with the labels of the server."""
        labels, prototypes = self.labels if video.engine.has_text else None, video.engine.prototypes
        if labels and prototypes is not None:
            labels = list(dict.fromkeys([*prototypes.labels, *labels]))
        return self.videos.steps(video, num_steps, labels)

    def set_prototypes(self, prototypes: StepPrototypes) -> None:
        """Use learned prototypes from now on."""
        self.engine.prototypes = prototypes
        self.videos.forget_steps()

    def index(self, entry: Entry, progress: ProgressCallback | None = None) -> None:
        """Process a video. Update it in the corpus, or add it if new videos are added."""
        self.forget_changed(entry)
        is_indexed = self.find_record(entry) is not None
        if self.corpus is not None and self.adds_to_corpus and not is_indexed and self.corpus.lookup([entry.name]):
            raise InputError(f"{entry.name}: the corpus has another video with this name; rename the file")
        video = self.read(entry, progress=progress)
        if self.corpus is not None and (is_indexed or self.adds_to_corpus):
            (progress or no_progress)(ProgressEvent("message", message="adding it to the search"))
            settings = IndexSettings(labels=self.labels)
            add_video(self.corpus, self.engine, entry.source, lambda _: video, settings, entry.name)
            if self.edits.exists(entry):
                self.update_corpus(entry)
        entry.num_steps = len(self.steps(video, None).levels[-1])  # also caches the steps for the page
        self.memory.remember(entry, self.current_steps(entry))

    def find_record(self, entry: Entry) -> IndexedVideo | None:
        """The record of a video in the corpus, or None if it is not there, or if the corpus is missing or damaged."""
        record = None
        with suppress(InputError, OSError):
            record = None if self.corpus is None else self.corpus.lookup([entry.name]).get(entry.name)
        # In a corpus that was restored elsewhere, the paths are those of before.
        is_same = record is not None and (record.path == entry.source.name or record.sha256 == entry.key)
        return record if is_same else None

    def ask(self, entry: Entry, video: Video, query: str, num: int) -> Answer:
        """Find a text in an open video, also in the names that people gave to its steps."""
        edits = self.edits.read(entry)
        return video.answer(None if edits is None else edits.hierarchy, [query], num)[0]

    def save_edits(self, entry: Entry, document: Any, video: Video, expected: Versions, user: str = "") -> SavedSteps:
        """Save steps as a person edited them, also in the corpus."""
        hierarchy, known = parse_hierarchy(document, video.duration_s), [*self.videos.known_steps(video).values()]
        with suppress(InputError):  # damaged edits can be replaced
            current = self.edits.read(entry)
            known = known if current is None else [current.hierarchy, *known]
        edits = self.edits.save(entry, mark_origins(hierarchy, known), expected, user)
        self.memory.remember(entry, edits.hierarchy)
        self.update_corpus(entry)
        return edits

    def current_steps(self, entry: Entry) -> Hierarchy:
        """The steps of a video as people corrected them, or as they were found."""
        edits = self.edits.read(entry)
        return self.steps(self.read(entry), None) if edits is None else edits.hierarchy

    def report(self, entries: Sequence[Entry], title: str) -> tuple[FolderReport, dict[str, str]]:
        """Compare videos by their finest steps. Also returns the errors of those that cannot be read, by their ids."""
        described, failed = [], {}
        for entry in entries:
            try:
                video = self.read(entry)
                steps = select_corrected(self.current_steps(entry), None, video.duration_s)
                described.append(describe_steps(entry.name, video, steps))
            except InputError as error:
                failed[entry.id] = f"{entry.name} is left out: {error}"
        if failed and len(described) < 2:
            raise InputError("; ".join(failed.values()))
        report = build_report(described, title=title, model=self.engine.name, min_label_score=MIN_LABEL_SCORE)
        return report, failed

    def update_corpus(self, entry: Entry, wait_s: float = SETTLE_S) -> None:
        """Write the current steps of a video to the corpus, if it is there; if that takes longer, in the background."""
        wait([self._updates.submit(entry.id, lambda: self._update_corpus(entry))], wait_s)

    def _update_corpus(self, entry: Entry) -> None:
        """Only one thread does this. Errors are logged: the edits are saved."""
        record = self.find_record(entry)
        if record is None and self.videos.find(entry.id) is None:
            return  # nobody sees its steps, and to read it could take minutes
        try:
            steps = self.current_steps(entry)
            self.memory.remember(entry, steps)
            if self.corpus is not None and record is not None:
                self.corpus.add(self.read(entry), steps, entry.name, entry.source.key(), record.transcripts)
        except BusyError:
            self._updates.submit(entry.id, lambda: self._update_corpus(entry))
        except (InputError, OSError) as error:
            logging.getLogger(__name__).warning("hiero: %s is not up to date in the corpus: %s", entry.name, error)


def _forget(entry: Entry) -> None:
    """Forget what is known about the content of a video."""
    entry.was_read, entry.key, entry.duration_s, entry.num_steps, entry.names = False, None, None, None, ()


def complete_corpus(library: Library, entries: Sequence[Entry]) -> None:
    """Write edits to the corpus that were saved just before the server stopped, or that a backup of it lacks."""
    edited = set(library.edits.state.edited_videos())
    for entry in entries:
        if entry.key in edited and (record := library.find_record(entry)) is not None:
            edits = library.edits.read(entry)
            if record.edits != ("" if edits is None else edits_key(edits.hierarchy)):
                library.update_corpus(entry)


def path_id(paths: Sequence[Path]) -> str:
    """The id of a video that is served from its own place."""
    return hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:ID_LENGTH]


def open_library(
    sources: list[str],
    engine: Engine,
    annotations: Path | None = None,
    log: Callable[[str], None] = lambda _: None,
    join: bool | None = None,
    may_be_empty: bool = False,
) -> Library:
    """Open the library of a server. Remote files are listed but not downloaded."""
    library = Library(engine)
    # The corpus comes first: its videos keep their names, and other files with the same name get a number.
    for source in filter(is_corpus, sources):
        _add_corpus(library, source, log)
    paths = [source if is_address(source) else Path(source) for source in sources if not is_corpus(source)]
    for path in paths:
        if isinstance(path, Path) and not path.is_file() and not is_collection(path):
            raise InputError(f"{path}: no such file, folder or corpus")
    if paths:
        try:
            for name, recording in find_recordings(paths, join, resolve_clashes=True, log=log).items():
                library.add(recording, name)
        except NoFilesError:
            if not may_be_empty:
                raise
    if annotations is not None:
        library.annotations = annotations_to_dicts(annotations)
    return library


def _add_corpus(library: Library, uri: str, log: Callable[[str], None]) -> None:
    if library.corpus is not None:
        raise InputError(f"{uri}: only one corpus can be served at a time")
    library.corpus = Corpus(uri, wait_s=CORPUS_WAIT_S)
    library.corpus.check_model(library.engine)
    names = library.corpus.step_names()
    for record in library.corpus.videos():
        num_steps = record.levels[-1] if record.levels else None
        known = KnownVideo(record.sha256, 0, record.duration_s, num_steps, names.get(record.video, ()))
        library.memory.known[record.sha256] = known
        if missing := record.source.missing_paths:
            log(f"{record.video}: {missing[0]} is missing; it can be searched but not opened")
        else:
            entry = library.add(record.source, record.video)
            entry.was_read, entry.key = True, record.sha256
            entry.duration_s, entry.num_steps, entry.names = known.duration_s, known.num_steps, known.names
