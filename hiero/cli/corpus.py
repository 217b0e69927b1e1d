"""hiero index, hiero search and hiero corpus: many videos as one searchable collection."""

from __future__ import annotations

import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cyclopts import App, Parameter

import hiero
from hiero.cli.console import (
    OPTIONS,
    echo,
    log,
    plain_table,
    print_json,
    progress_bar,
    results_console,
)
from hiero.cli.moments import Found, Moment, print_found
from hiero.cli.options import (
    CorpusAddress,
    Flag,
    Join,
    Json,
    LevelOptions,
    NumResults,
    Repeated,
    ShowAll,
    Sources,
    VideoOptions,
    announce_edits,
)
from hiero.errors import BusyError, InputError
from hiero.formatting import format_count, format_time
from hiero.types import VERSION

if TYPE_CHECKING:
    from hiero.corpus.indexing import IndexResult
    from hiero.media.source import VideoSource

app = App(name="corpus", help="List, remove and check the videos of a corpus.", group_parameters=OPTIONS)


@Parameter(name="*")
@dataclass(frozen=True)
class IndexOptions:
    """What is indexed, and when."""

    again: Flag = False
    """Also index videos that are unchanged."""
    watch: Flag = False
    """Keep looking for new files until Ctrl-C. A file is indexed when it no longer changes, and retried later if it
    cannot be read."""
    every: float = 10.0
    """Seconds between two checks of `--watch`."""


def index(
    *videos: Sources,
    to: str,
    levels: LevelOptions = LevelOptions(),
    index_options: IndexOptions = IndexOptions(),
    join: Join = None,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Add videos to a corpus, so that they can be searched together.

    Unchanged videos are skipped; changed videos, and videos with a new transcript, replace their old
    version. If a file cannot be read, the others are still indexed and the exit code is 1. After an
    interruption, run the command again. Several processes may index the same files at once.

    **Examples**

    * `hiero index kitchen.mp4 garage.mp4 --to corpus/`
    * `hiero index features/ --to corpus/ --model hiero-omnivore-b`
    * `hiero index s3://bucket/videos/ --to corpus/ --watch`

    Parameters
    ----------
    to
        Corpus: a folder, or an address supported by LanceDB (s3://…).
    """
    from hiero.corpus.corpus import IndexSettings
    from hiero.corpus.indexing import index_files
    from hiero.media.recordings import find_recordings

    again, every_s = index_options.again or options.edits is not None, index_options.every
    if index_options.watch and (not videos or again or not every_s > 0):
        raise InputError("--watch needs a folder or an address, a positive --every, and no --again")
    use_transcripts, use_edits = not options.no_transcript, not options.no_edits
    settings = IndexSettings(levels.num_steps, levels.read_labels(), again, use_transcripts, use_edits)
    engine = options.load_engine()
    corpus = hiero.Corpus(to, create=True)

    def read(source: VideoSource) -> hiero.Video:
        video = options.read_video(source, engine)
        announce_edits(video, "-k cuts the video again" if settings.num_steps else "")
        return video

    def add(files: Mapping[str, VideoSource], progress: Callable[[str], None] = lambda _: None) -> IndexResult:
        """Index files, and report those that cannot be read."""
        result = index_files(corpus, engine, files, read, settings, progress)
        for problem in result.problems:
            log(f"failed: {problem}")
        return result

    if index_options.watch:
        _index_arrivals(corpus, videos, every_s, join, add)
        return
    files = find_recordings(videos, join, log=log) if videos or not corpus.is_stale(engine) else {}
    options.check_single_transcript(len(files))
    with progress_bar("index", len(files)) as advance:
        result = add(files, advance)
    _log_single_chapters(corpus, files)
    counts = f"{result.num_added} added, {result.num_unchanged} unchanged, {len(result.problems)} failed"
    echo(f"{to}: {counts}; {_size(corpus)}")
    if result.problems:
        sys.exit(1)


def _size(corpus: hiero.Corpus) -> str:
    return f"{format_count(corpus.num_videos, 'video')}, {format_count(len(corpus), 'step')}"


def _index_arrivals(
    corpus: hiero.Corpus,
    videos: Sequence[str],
    every_s: float,
    join: bool | None,
    add: Callable[[dict[str, VideoSource]], IndexResult],
) -> None:
    """`--watch`: index new files until Ctrl-C or SIGTERM."""
    from hiero.corpus.indexing import ArrivalWatcher
    from hiero.media.addresses import public_address
    from hiero.media.recordings import NoFilesError, find_files

    with suppress(NoFilesError):  # reports a mistake in a name now; later a folder may be missing for a while
        find_files(videos, resolve_clashes=True)
    watcher = ArrivalWatcher(videos, join, log)
    num_added = 0
    if threading.current_thread() is threading.main_thread():  # other threads cannot handle signals
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # service managers send SIGTERM
    with suppress(KeyboardInterrupt):
        log(f"watching {', '.join(map(public_address, videos))} every {every_s:g} s; press Ctrl-C to stop")
        while True:
            try:
                arrived = watcher.look()
            except InputError as error:
                log(f"hiero: {error}; trying again in {every_s:g} s")
                arrived = {}
            for name, source in arrived.items():
                try:
                    result = add({name: source})
                except BusyError as error:
                    log(f"hiero: {error}")
                    watcher.finish({name: source}, [name])
                    continue
                num_added += result.num_added
                if result.num_added:
                    echo(f"{name}: added; {_size(corpus)}")
                watcher.finish({name: source}, [name] if result.problems else [])
            time.sleep(every_s)
    echo(f"{corpus.uri}: {num_added} added; {_size(corpus)}")


def _log_single_chapters(corpus: hiero.Corpus, files: Mapping[str, VideoSource]) -> None:
    """Name chapters that an earlier run indexed separately and that are now part of a longer video."""
    parts = {path.resolve() for source in files.values() if len(source.files) > 1 for path in source.paths}
    if not parts:
        return
    repeated = [
        record.video for record in corpus.videos() if not record.files and record.source.path.resolve() in parts
    ]
    if repeated:
        command = shlex.join(["hiero", "corpus", "remove", corpus.uri, *repeated])
        log(f"these parts of longer videos are also in the corpus separately; to remove them, run: {command}")


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """Where to search, and how many results to show."""

    video: Repeated = None
    """Search only this video. Repeatable."""
    level: int | None = None
    """Search only this level (0 is the coarsest). By default all levels are searched, and each moment is shown once."""
    num: NumResults = 20
    """Number of results."""
    exact: Flag = False
    """Compare with every step, also in a large corpus, instead of using the vector index."""
    all_: ShowAll = False


def search(
    corpus: CorpusAddress,
    query: str | None = None,
    /,
    *,
    like: str | None = None,
    search_options: SearchOptions = SearchOptions(),
    json_: Json = False,
    options: VideoOptions = VideoOptions(),
) -> None:
    """Find steps in all videos of a corpus, by text or by their similarity to a moment.

    Transcripts of indexed videos and the names that people gave to steps are searched as well; each
    result shows what it was found by, and how probable it is.

    **Examples**

    * `hiero search corpus/ "cut the onion"`
    * `hiero search corpus/ --like kitchen@3:20 -n 5`

    Parameters
    ----------
    query
        Description of the steps to find.
    like
        VIDEO@m:ss: find the step at this moment in the other videos, by what it shows and by what
        comes before and after it.
    """
    if (query is None) == (like is None):
        raise InputError('name what to look for: hiero search CORPUS "cut the onion", or --like VIDEO@m:ss')
    opened = hiero.Corpus(corpus)
    names = [opened.find(name).video for name in search_options.video or []]
    num, level, exact = search_options.num, search_options.level, search_options.exact
    shown: dict[str, Any] = {"version": VERSION, "corpus": corpus}
    if like is not None:
        step, hits = opened.like(*parse_moment(like), num=num, level=level, videos=names, exact=exact)
        shown["like"] = step.to_dict()
    else:
        if not opened.num_videos:
            raise InputError(f"{corpus}: is empty; add videos: hiero index VIDEO… --to {corpus}")
        engine = _corpus_engine(opened, options)
        hits = opened.search_text(engine, str(query), num, videos=names, level=level, exact=exact)
    files = {name: record.files for name, record in opened.lookup({hit.video for hit in hits}).items()}
    moments = [Moment(hit.video, hit, files.get(hit.video, ()), hit.title) for hit in hits]
    found = Found(query or f"like {like}", max((hit.probability for hit in hits), default=0.0), moments)
    if json_:
        print_json({**shown, "queries": [found.to_dict()]})
    else:
        print_found([found], "these videos", names_videos=True, show_all=search_options.all_)


def _corpus_engine(corpus: hiero.Corpus, options: VideoOptions) -> hiero.Engine:
    """The engine of a corpus: by default with the model that it was created with."""
    engine = with_model_of(corpus, options).load_engine()
    corpus.check_model(engine)
    return engine


def with_model_of(corpus: hiero.Corpus, options: VideoOptions) -> VideoOptions:
    """Options with the model that a corpus was created with, unless another one was chosen."""
    from hiero.corpus.corpus import corpus_model

    is_default = options.model == VideoOptions.model
    return replace(options, model=corpus_model(corpus) or options.model) if is_default else options


def parse_moment(text: str) -> tuple[str, float]:
    """Parse VIDEO@m:ss, VIDEO@h:mm:ss or VIDEO@seconds into the video and the time in seconds."""
    match = re.fullmatch(r"(.+)@(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)", text)
    if match is None:
        raise InputError(f"--like takes VIDEO@m:ss, such as kitchen@3:20; got {text!r}")
    name, hours, minutes, seconds = match.groups()
    return name, 3600 * int(hours or 0) + 60 * int(minutes or 0) + float(seconds)


@app.command(name="list")
def list_videos(corpus: CorpusAddress, /, *, json_: Json = False) -> None:
    """List the videos of a corpus."""
    videos = hiero.Corpus(corpus).videos()
    if json_:
        print_json({"version": 1, "videos": [video.to_dict() for video in videos]})
        return
    table = plain_table("video", "length", "steps", "model", "file", right=("length",))
    for video in videos:
        file = f"{video.path} and {len(video.files) - 1} more" if video.files else video.path
        table.add_row(video.video, format_time(video.duration_s), ", ".join(map(str, video.levels)), video.model, file)
    results_console().print(table)


@app.command
def remove(corpus: CorpusAddress, /, *videos: str) -> None:
    """Remove videos from a corpus. Their files are kept.

    **Example**

    * `hiero corpus remove corpus/ kitchen`

    Parameters
    ----------
    videos
        Names from `hiero corpus list`.
    """
    opened = hiero.Corpus(corpus)
    opened.remove(list(videos))
    echo(f"{corpus}: {len(videos)} removed, {format_count(opened.num_videos, 'video')} left")


@app.command
def check(corpus: CorpusAddress, /) -> None:
    """Check that a corpus is complete and its files are unchanged. The exit code is 1 if there are problems.

    To repair a damaged corpus, delete it and run `hiero index` again. Corrected steps are kept.

    **Example**

    * `hiero corpus check corpus/`
    """
    from hiero.corpus.table import DamagedCorpusError

    try:
        opened = hiero.Corpus(corpus)
        problems = opened.check()
    except DamagedCorpusError as error:
        log(str(error))
        echo(f"{corpus}: damaged")
        sys.exit(1)
    for problem in problems:
        log(problem)
    echo(f"{corpus}: {_size(opened)}, {format_count(len(problems), 'problem')}")
    if problems:
        sys.exit(1)
