"""hiero index, search, corpus: many videos as one searchable collection."""

from __future__ import annotations

import functools
import json
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import App

from hiero.cli.console import log, plain_table, progress_bar
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
from hiero.types import file_fields, format_time, locate_time

if TYPE_CHECKING:
    from hiero.corpus.corpus import Corpus, Hit
    from hiero.engine import Engine
    from hiero.sources.source import VideoSource
    from hiero.types import VideoFile

app = App(name="corpus", help="What is in a corpus of videos: list, remove, check.")


def index(
    *videos: str,
    to: str,
    k: StepCounts = None,
    labels: Path | None = None,
    again: Flag = False,
    watch: Flag = False,
    every: float = 10.0,
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
    from hiero.corpus.corpus import Corpus, IndexSettings
    from hiero.corpus.index_files import index_files
    from hiero.extraction.collection import find_recordings

    num_steps = parse_step_counts(k)
    vocabulary = read_labels(labels)
    if watch and (not videos or again or not every > 0):
        raise InputError("--watch needs a folder or an address to look at, --every above 0, and no --again")
    engine = options.load_engine()
    corpus = Corpus(to, create=True)
    if watch:
        _index_arrivals(corpus, engine, videos, every, join, num_steps, vocabulary, options)
        return
    files = find_recordings(videos, join, log=log) if videos or not corpus.is_stale(engine) else {}
    options.check_single_transcript(len(files))
    with progress_bar("index", len(files)) as advance:
        result = index_files(
            corpus,
            engine,
            files,
            lambda file: options.read_video(file, engine),
            IndexSettings(num_steps, vocabulary, again, not options.no_transcript),
            advance,
        )
    for problem in result.problems:
        log(f"failed: {problem}")
    _log_single_chapters(corpus, files)
    print(
        f"{to}: {result.num_added} added, {result.num_unchanged} unchanged, {len(result.problems)} failed; "
        f"{corpus.num_videos} videos, {len(corpus)} steps"
    )
    if result.problems:
        sys.exit(1)


def _index_arrivals(
    corpus: Corpus,
    engine: Engine,
    videos: Sequence[str],
    every_s: float,
    join: bool | None,
    num_steps: list[int] | None,
    labels: list[str] | None,
    options: VideoOptions,
) -> None:
    """`--watch`: index what arrives, a line each, until Ctrl-C or a signal to end."""
    from hiero.corpus.corpus import IndexSettings
    from hiero.corpus.index_files import index_files
    from hiero.corpus.watching import ArrivalWatcher
    from hiero.extraction.collection import NoFilesError, find_files

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
                result = index_files(
                    corpus,
                    engine,
                    {name: source},
                    lambda file: options.read_video(file, engine),
                    IndexSettings(num_steps, labels),
                )
                num_added += result.num_added
                if result.num_added:
                    print(f"{name}: added; {corpus.num_videos} videos, {len(corpus)} steps", flush=True)
                for problem in result.problems:
                    log(f"failed: {problem}")
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


def search(
    corpus: str,
    query: str | None = None,
    /,
    *,
    like: str | None = None,
    video: Repeated = None,
    level: int | None = None,
    num: NumResults = 20,
    exact: Flag = False,
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
    from hiero.corpus.corpus import Corpus

    if (query is None) == (like is None):
        raise InputError(
            'say what to look for, in words or by a moment: hiero search CORPUS "cut the onion", or --like VIDEO@m:ss'
        )
    opened = Corpus(corpus)
    names = [opened.find(name).video for name in video or []]
    document: dict[str, Any] = {"version": 1, "corpus": corpus}
    if like is not None:
        step, hits = opened.like(*parse_moment(like), num=num, level=level, videos=names, exact=exact)
        document["like"] = step.to_dict()
    else:
        hits = opened.search_text(
            _query_engine(opened, options), str(query), num, videos=names, level=level, exact=exact
        )
        document["query"] = query
    files = {name: record.files for name, record in opened.lookup({hit.video for hit in hits}).items() if record.files}
    if json_:
        rows = [{**hit.to_dict(), **file_fields(files.get(hit.video, ()), hit.start_s)} for hit in hits]
        print(json.dumps({**document, "hits": rows}, ensure_ascii=False))
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
    from rich.console import Console

    from hiero.corpus.corpus import Corpus

    videos = Corpus(corpus).videos()
    if json_:
        print(json.dumps({"version": 1, "videos": [video.to_dict() for video in videos]}, ensure_ascii=False))
        return
    table = plain_table("video", "length", "steps", "model", "file", right=("length",))
    for video in videos:
        file = f"{video.path} and {len(video.files) - 1} more" if video.files else video.path
        table.add_row(video.video, format_time(video.duration_s), ", ".join(map(str, video.levels)), video.model, file)
    Console(highlight=False, markup=False).print(table)


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
    """A table of hits. files: of the videos that were read from several."""
    from rich.console import Console
    from rich.text import Text

    has_speech = any(hit.rests_on is not None for hit in hits)
    columns = [
        "video",
        "from",
        "to",
        "step",
        "score",
        *(["in file"] if files else []),
        *(["by", "said"] if has_speech else []),
    ]
    table = plain_table(*columns, right=("from", "to", "score"))
    for hit in hits:
        times = format_time(hit.start_s), format_time(hit.end_s)
        cells: list[Text | str] = [Text(hit.video), *times, Text(hit.label or ""), f"{hit.score:.2f}"]
        if hit.video in files:
            file, time_s = locate_time(files[hit.video], hit.start_s)
            cells.append(Text(f"{Path(file.path).name} {format_time(time_s)}"))
        elif files:
            cells.append("")
        if hit.rests_on is not None:
            cells += [
                Text(hit.rests_on, style="cyan"),
                Text("" if hit.quote is None else f"“{hit.quote}”", style="dim"),
            ]
        table.add_row(*cells)
    Console(highlight=False).print(table)
