"""hiero index, search, corpus: many videos as one searchable collection."""

from __future__ import annotations

import functools
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App, Parameter

from hiero.cli.console import file_cells, log, plain_table, print_json, progress_bar, results_console, speech_cells
from hiero.cli.options import (
    DEFAULTS,
    Flag,
    Join,
    Json,
    NumResults,
    Repeated,
    StepCounts,
    VideoOptions,
    parse_step_counts,
    read_labels,
)
from hiero.errors import InputError
from hiero.types import file_fields, format_time

if TYPE_CHECKING:
    from hiero.corpus.corpus import Corpus, Hit
    from hiero.corpus.indexing import IndexResult
    from hiero.engine import Engine
    from hiero.sources.source import VideoSource
    from hiero.types import VideoFile

app = App(name="corpus", help="What is in a corpus of videos: list, remove, check.")


@Parameter(name="*")
@dataclass(frozen=True)
class IndexOptions:
    """What is indexed, and when.

    Parameters
    ----------
    k
        Numbers of steps of each level; by default three levels that follow from the length.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    again
        Also those that are in unchanged.
    watch
        Go on looking for files that arrive, until Ctrl-C: a file is indexed when its size no longer
        changes. One that cannot be read is named, and tried again later.
    every
        Seconds between two looks of `--watch`.
    """

    k: StepCounts = None
    labels: Path | None = None
    again: Flag = False
    watch: Flag = False
    every: float = 10.0


INDEX_DEFAULTS = IndexOptions()


def index(
    *videos: str,
    to: str,
    index_options: IndexOptions = INDEX_DEFAULTS,
    join: Join = None,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Add videos, or feature files of them, to a corpus: their steps of all levels, to be searched together.

    Chapters of a camera are one video of the corpus, with the name of the first file; what is found
    says which file it is in.

    What is in unchanged is skipped; a video that changed, or has a new transcript beside it, takes
    the place of the old one. A corpus of another version of the model is made anew from its videos.
    After an interruption run it again. A file that cannot be read does not stop the others; the
    exit code is then 1. Several may run at a time, also on the same files: each video is in once.

    **Examples**

    `hiero index kitchen.mp4 garage.mp4 --to corpus/`

    `hiero index features/ --to corpus/ --model hiero-omnivore-b`

    `hiero index card/DCIM --to corpus/`

    `hiero index s3://bucket/videos/ --to corpus/ --watch`

    Parameters
    ----------
    videos
        Video or feature files, folders of them, or patterns ('*.mp4'); also addresses: https://,
        s3:// and what else fsspec opens.
    to
        The corpus: a folder, or an address that LanceDB knows (s3://…).
    """
    from hiero.corpus.corpus import Corpus, IndexSettings
    from hiero.corpus.indexing import index_files
    from hiero.decoding.recordings import find_recordings

    if index_options.watch and (not videos or index_options.again or not index_options.every > 0):
        raise InputError("--watch needs a folder or an address to look at, --every above 0, and no --again")
    settings = IndexSettings(
        parse_step_counts(index_options.k),
        read_labels(index_options.labels),
        index_options.again,
        not options.no_transcript,
    )
    engine = options.load_engine()
    corpus = Corpus(to, create=True)

    def add(files: Mapping[str, VideoSource], progress: Callable[[str], None] = lambda _: None) -> IndexResult:
        """Index files, and name those that cannot be read."""
        read = functools.partial(options.read_video, engine=engine)
        result = index_files(corpus, engine, files, read, settings, progress)
        for problem in result.problems:
            log(f"failed: {problem}")
        return result

    if index_options.watch:
        _index_arrivals(corpus, videos, index_options.every, join, add)
        return
    files = find_recordings(videos, join, log=log) if videos or not corpus.is_stale(engine) else {}
    options.check_single_transcript(len(files))
    with progress_bar("index", len(files)) as advance:
        result = add(files, advance)
    _log_single_chapters(corpus, files)
    print(
        f"{to}: {result.num_added} added, {result.num_unchanged} unchanged, {len(result.problems)} failed; "
        f"{corpus.num_videos} videos, {len(corpus)} steps"
    )
    if result.problems:
        sys.exit(1)


def _index_arrivals(
    corpus: Corpus,
    videos: Sequence[str],
    every_s: float,
    join: bool | None,
    add: Callable[[dict[str, VideoSource]], IndexResult],
) -> None:
    """`--watch`: index what arrives, a line each, until Ctrl-C or a signal to end."""
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.decoding.recordings import NoFilesError, find_files

    with suppress(NoFilesError):  # a mistake in a name ends it now; later a folder may be gone for a while
        find_files(videos, resolve_clashes=True)
    watcher = ArrivalWatcher(videos, join, log)
    num_added = 0
    with suppress(KeyboardInterrupt), _ended_by_signal():
        log(f"watching {', '.join(map(shown_source, videos))}, every {every_s:g} s; Ctrl-C ends it")
        while True:
            try:
                arrived = watcher.look()
            except InputError as error:
                log(f"hiero: {error}; looking again in {every_s:g} s")
                arrived = {}
            for name, source in arrived.items():
                result = add({name: source})
                num_added += result.num_added
                if result.num_added:
                    print(f"{name}: added; {corpus.num_videos} videos, {len(corpus)} steps", flush=True)
                watcher.finish({name: source}, [name] if result.problems else [])
            time.sleep(every_s)
    print(f"{corpus.uri}: {num_added} added; {corpus.num_videos} videos, {len(corpus)} steps")


def shown_source(source: str) -> str:
    """A path, or an address without passwords."""
    from hiero.sources.addresses import is_address, public_address

    return public_address(source) if is_address(source) else source


@contextmanager
def _ended_by_signal() -> Iterator[None]:
    """A signal to end, as a service manager sends it, is Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that one gets signals
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _log_single_chapters(corpus: Corpus, files: Mapping[str, VideoSource]) -> None:
    """Name files that are a part of a video of the corpus, and are in it by themselves too, from an earlier run."""
    parts = {path.resolve() for source in files.values() if len(source.files) > 1 for path in source.paths}
    if not parts:
        return
    repeated = [
        record.video for record in corpus.videos() if not record.files and record.source.path.resolve() in parts
    ]
    if repeated:
        names = " ".join(map(shlex.quote, repeated))
        log(
            "these are parts of longer videos, and in by themselves too; to remove them: hiero corpus remove "
            f"{corpus.uri} {names}"
        )


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """Where to look, and how many hits.

    Parameters
    ----------
    video
        Only in these videos; may be repeated.
    level
        Only steps of this level, 0 the coarsest; by default of all, each moment once.
    num
        How many.
    exact
        Compare with every step, whatever the size; without it a large corpus is searched by its
        index.
    """

    video: Repeated = None
    level: int | None = None
    num: NumResults = 20
    exact: Flag = False


SEARCH_DEFAULTS = SearchOptions()


def search(
    corpus: str,
    query: str | None = None,
    /,
    *,
    like: str | None = None,
    search_options: SearchOptions = SEARCH_DEFAULTS,
    json_: Json = False,
    options: VideoOptions = DEFAULTS,
) -> None:
    """Find steps in all videos of a corpus: by words, or those that are like a moment of one of them.

    Where videos were indexed with their transcripts, also what is said is searched; each hit tells
    whether it rests on speech, on pictures or on both.

    **Examples**

    `hiero search corpus/ "cut the onion"`

    `hiero search corpus/ --like kitchen@3:20 -n 5`

    Parameters
    ----------
    corpus
        Made by `hiero index`.
    query
        What to look for.
    like
        VIDEO@m:ss: the same step elsewhere. The step at that moment is compared with the steps of
        the other videos, by what they show and by what comes before and after.
    """
    from hiero.corpus.corpus import Corpus

    if (query is None) == (like is None):
        raise InputError(
            'say what to look for, in words or by a moment: hiero search CORPUS "cut the onion", or --like VIDEO@m:ss'
        )
    opened = Corpus(corpus)
    num, exact = search_options.num, search_options.exact
    names = [opened.find(name).video for name in search_options.video or []]
    document: dict[str, Any] = {"version": 1, "corpus": corpus}
    if like is not None:
        step, hits = opened.like(*parse_moment(like), num=num, level=search_options.level, videos=names, exact=exact)
        document["like"] = step.to_dict()
    else:
        engine = _query_engine(opened, options)
        hits = opened.search_text(engine, str(query), num, videos=names, level=search_options.level, exact=exact)
        document["query"] = query
    files = {name: record.files for name, record in opened.lookup({hit.video for hit in hits}).items() if record.files}
    if json_:
        rows = [{**hit.to_dict(), **file_fields(files.get(hit.video, ()), hit.start_s)} for hit in hits]
        print_json({**document, "hits": rows})
    else:
        _print_hits(hits, files)


def _query_engine(corpus: Corpus, options: VideoOptions) -> Engine:
    """The engine that puts queries into the space of a corpus: of the model that it was made with,
    unless another is named.
    """
    from hiero.corpus.corpus import corpus_model

    if not corpus.num_videos:
        raise InputError(f"{corpus.uri}: is empty; add videos: hiero index VIDEO… --to {corpus.uri}")
    model = corpus_model(corpus)
    if options.model == DEFAULTS.model and model is not None:
        options = replace(options, model=model)
    engine = options.load_engine()
    corpus.check_query_model(engine)
    return engine


def parse_moment(text: str) -> tuple[str, float]:
    """VIDEO@m:ss, VIDEO@h:mm:ss or VIDEO@seconds → the video and the time in seconds."""
    match = re.fullmatch(r"(.+)@(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)", text)
    if match is None:
        raise InputError(f"--like takes VIDEO@m:ss, such as kitchen@3:20; got {text!r}")
    name, hours, minutes, seconds = match.groups()
    return name, 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds)


@app.command(name="list")
def list_videos(corpus: str, /, *, json_: Json = False) -> None:
    """List the videos of a corpus.

    **Example**: `hiero corpus list corpus/`
    """
    from hiero.corpus.corpus import Corpus

    videos = Corpus(corpus).videos()
    if json_:
        print_json({"version": 1, "videos": [video.to_dict() for video in videos]})
        return
    table = plain_table("video", "length", "steps", "model", "file", right=("length",))
    for video in videos:
        file = f"{video.path} and {len(video.files) - 1} more" if video.files else video.path
        table.add_row(video.video, format_time(video.duration_s), ", ".join(map(str, video.levels)), video.model, file)
    results_console().print(table)


@app.command
def remove(corpus: str, /, *videos: str) -> None:
    """Take videos out of a corpus; their files stay.

    **Example**: `hiero corpus remove corpus/ kitchen`
    """
    from hiero.corpus.corpus import Corpus

    opened = Corpus(corpus)
    opened.remove(list(videos))
    print(f"{corpus}: {len(videos)} removed, {opened.num_videos} videos left")


@app.command
def check(corpus: str, /, *, repair: Flag = False, options: VideoOptions = DEFAULTS) -> None:
    """Look whether a corpus is whole and its files are as they were; the exit code is 1 where something is wrong.

    **Examples**

    `hiero corpus check corpus/`

    `hiero corpus check corpus/ --repair`

    Parameters
    ----------
    corpus
        Made by `hiero index`.
    repair
        Mend it: a video that is in twice is then in once, missing steps are read again from their
        file, and steps without their video are removed. What cannot be mended, such as a file that
        is gone, is said.
    """
    from hiero.corpus.corpus import Corpus

    opened = Corpus(corpus)
    if repair:
        engine = functools.cache(lambda: _query_engine(opened, options))  # loaded only where a file must be read
        opened.repair(lambda file: options.read_video(file, engine()))
    problems = opened.check()
    for problem in problems:
        log(problem)
    print(f"{corpus}: {opened.num_videos} videos, {len(opened)} steps, {len(problems)} problems")
    if problems:
        sys.exit(1)


def _print_hits(hits: list[Hit], files: Mapping[str, Sequence[VideoFile]]) -> None:
    """A table of hits. `files` are those of the videos that were read from several."""
    has_speech = any(hit.rests_on is not None for hit in hits)
    file_column = ["in file"] if files else []
    columns = ["video", "from", "to", "step", "score", *file_column, *(["by", "said"] if has_speech else [])]
    table = plain_table(*columns, right=("from", "to", "score"))
    for hit in hits:
        times = format_time(hit.start_s), format_time(hit.end_s)
        file = file_cells(files.get(hit.video, ()), hit.start_s) or [""] * len(file_column)
        table.add_row(
            hit.video, *times, hit.label or "", f"{hit.score:.2f}", *file, *speech_cells(hit.rests_on, hit.quote)
        )
    results_console().print(table)
