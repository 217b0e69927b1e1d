"""hiero index, search, corpus: many videos as one searchable collection."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from hiero.cli.console import log, progress_bar
from hiero.cli.options import DEFAULTS, Flag, Json, StepCounts, VideoOptions, parse_step_counts, read_labels
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.corpus.corpus import Corpus, Hit
    from hiero.engine import Engine

app = App(name="corpus", help="What is in a corpus of videos: list, remove, check.")


def index(
    *videos: Path,
    to: str,
    k: StepCounts = None,
    labels: Path | None = None,
    again: Flag = False,
    source: VideoOptions = DEFAULTS,
) -> None:
    """Add videos, or feature files of them, to a corpus: their steps of all levels, to be searched together.

    What is in unchanged is skipped; a video that changed takes the place of the old one. After an interruption run it again. A
    file that cannot be read does not stop the others; the exit code is then 1.

    **Examples**

    `hiero index kitchen.mp4 garage.mp4 --to corpus/`

    `hiero index features/ --to corpus/ --model hiero-omnivore-b`

    Parameters
    ----------
    videos
        Video or feature files, or folders of them.
    to
        The corpus: a folder, or an address that LanceDB knows (s3://…).
    k
        Numbers of steps of each level; by default three levels that follow from the length.
    labels
        A file with one label a line, instead of the bundled everyday phrases.
    again
        Also those that are in unchanged.
    """
    from hiero.corpus.corpus import Corpus, add_video
    from hiero.extraction.collection import find_files

    files = find_files(videos)
    counts, vocabulary = parse_step_counts(k), read_labels(labels) if labels is not None else None
    engine = source.engine()
    corpus = Corpus(to, create=True)
    corpus.check_model(engine)  # before anything is read
    added, kept, failed = 0, 0, []
    with progress_bar("index", len(files)) as advance:
        for name, path in files.items():
            try:
                _, now = add_video(
                    corpus,
                    engine,
                    path,
                    lambda file: source.read(file, engine),
                    num_steps=counts,
                    labels=vocabulary,
                    name=name,
                    again=again,
                )
                added, kept = added + now, kept + (not now)
            except InputError as error:
                failed.append(str(error))
            advance(name)
    corpus.tidy()
    for line in failed:
        log(f"failed: {line}")
    print(f"{to}: {added} added, {kept} unchanged, {len(failed)} failed; {len(corpus.videos())} videos, {len(corpus)} steps")
    if failed:
        sys.exit(1)


def search(
    corpus: str,
    query: str | None = None,
    /,
    *,
    like: str | None = None,
    video: Annotated[list[str] | None, Parameter(negative="")] = None,
    level: int | None = None,
    num: Annotated[int, Parameter(alias="-n")] = 20,
    exact: Flag = False,
    json_: Json = False,
    source: VideoOptions = DEFAULTS,
) -> None:
    """Find steps in all videos of a corpus: by words, or those that are like a moment of one of them.

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
        VIDEO@m:ss: the same step elsewhere. The step at that moment is compared with the steps of the other videos.
    video
        Only in these videos; may be repeated.
    level
        Only steps of this level, 0 the coarsest; by default of all, each moment once.
    num
        How many.
    exact
        Compare with every step, whatever the size; without it a large corpus is searched by its index.
    json_
        Print one JSON document instead of a table.
    """
    from hiero.corpus.corpus import Corpus

    if (query is None) == (like is None):
        raise InputError('say what to look for, in words or by a moment: hiero search CORPUS "cut the onion", or --like VIDEO@m:ss')
    opened = Corpus(corpus)
    names = [opened.find(name).video for name in video or []]
    document: dict[str, Any] = {"version": 1, "corpus": corpus}
    if like is not None:
        step, hits = opened.like(*parse_moment(like), num=num, level=level, videos=names, exact=exact)
        document["like"] = step.to_dict()
    else:
        vector = query_engine(opened, source).embed_queries([str(query)])[0]
        hits = opened.search(vector, num, videos=names, level=level, exact=exact)
        document["query"] = query
    if json_:
        print(json.dumps({**document, "hits": [hit.to_dict() for hit in hits]}, ensure_ascii=False))
    else:
        _show(hits)


def query_engine(corpus: Corpus, source: VideoOptions) -> Engine:
    """The engine whose words fit a corpus: the model that it was made with, by its name or place."""
    from dataclasses import replace

    from hiero.corpus.corpus import corpus_model

    if not corpus.videos():
        raise InputError(f"{corpus.uri}: is empty; add videos: hiero index VIDEO… --to {corpus.uri}")
    name = corpus_model(corpus)
    engine = (replace(source, model=name) if source.model == DEFAULTS.model and name is not None else source).engine()
    corpus.check_words(engine)
    return engine


def parse_moment(text: str) -> tuple[str, float]:
    """VIDEO@m:ss, VIDEO@h:mm:ss or VIDEO@seconds."""
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
    from rich.table import Table

    from hiero.corpus.corpus import Corpus
    from hiero.types import format_time

    videos = Corpus(corpus).videos()
    if json_:
        print(json.dumps({"version": 1, "videos": [about.__dict__ for about in videos]}, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("video", "length", "steps", "model", "file"):
        table.add_column(column, justify="right" if column == "length" else "left")
    for about in videos:
        table.add_row(about.video, format_time(about.duration_s), ", ".join(map(str, about.levels)), about.model, about.path)
    Console(highlight=False, markup=False).print(table)


@app.command
def remove(corpus: str, /, *videos: str) -> None:
    """Take videos out of a corpus; their files stay.

    **Example**: `hiero corpus remove corpus/ kitchen`
    """
    from hiero.corpus.corpus import Corpus

    opened = Corpus(corpus)
    opened.remove(list(videos))
    print(f"{corpus}: {len(videos)} removed, {len(opened.videos())} videos left")


@app.command
def check(corpus: str, /) -> None:
    """Look whether a corpus is whole and its files are as they were; the exit code is 1 where something is wrong.

    **Example**: `hiero corpus check corpus/`
    """
    from hiero.corpus.corpus import Corpus

    opened = Corpus(corpus)
    problems = opened.check()
    for line in problems:
        log(line)
    print(f"{corpus}: {len(opened.videos())} videos, {len(opened)} steps, {len(problems)} problems")
    if problems:
        sys.exit(1)


def _show(hits: list[Hit]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from hiero.types import format_time

    table = Table(box=None, pad_edge=False)
    for column, justify in (("video", "left"), ("from", "right"), ("to", "right"), ("step", "left"), ("score", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    for hit in hits:
        table.add_row(Text(hit.video), format_time(hit.start_s), format_time(hit.end_s), Text(hit.label or ""), f"{hit.score:.2f}")
    Console(highlight=False).print(table)
