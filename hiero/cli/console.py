"""What all commands share: lines on standard error, JSON and tables on standard output, and progress bars."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiero.types import ProgressCallback, ProgressEvent, format_time, locate_time

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table
    from rich.text import Text

    from hiero.types import VideoFile

MIN_MEASURED_S = 1.0  # a speed is shown after this time; before it would jump about


def log(line: str) -> None:
    """A line for the person at the terminal, on standard error: standard output is for results."""
    print(_show_addresses(line), file=sys.stderr)


def _show_addresses(line: str) -> str:
    """A line with the addresses of remote videos in place of the paths of their copies."""
    if "/remote/" not in line:
        return line
    from hiero.sources.addresses import display_addresses

    return display_addresses(line)


def print_json(document: dict[str, Any]) -> None:
    """A result as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")


def results_console(title: str | None = None) -> Console:
    """The console for results, which prints text as it is. `title` is the name of one of several videos."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    if title is not None:
        console.print(f"\n{title}", style="bold underline")
    return console


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines. right: the columns that are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


def file_columns(files: Sequence[VideoFile]) -> list[str]:
    """The column that says which file a row is in, where several were read as one video."""
    return ["in file"] if len(files) > 1 else []


def file_cells(files: Sequence[VideoFile], time_s: float) -> list[str]:
    """The cell of `file_columns`: the file, and the time in it."""
    if len(files) < 2:
        return []
    file, file_time_s = locate_time(files, time_s)
    return [f"{Path(file.path).name} {format_time(file_time_s)}"]


def speech_cells(rests_on: str | None, quote: str | None) -> list[Text]:
    """What a result rests on, and what is said there; nothing where the video has no transcript."""
    from rich.text import Text

    if rests_on is None:
        return []
    return [Text(rests_on, style="cyan"), Text("" if quote is None else f"“{quote}”", style="dim")]


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
    """A bar on standard error; yields a function of the name of what is done, and of how many units
    that was (by default one).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=total, status="")
        yield lambda name, num_units=1: bars.update(task, advance=num_units, status=name)


@contextmanager
def download_bars() -> Iterator[ProgressCallback]:
    """A callback with bars for what is fetched; nothing is drawn until something is."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with _transient_bars(*columns) as bars:
        tasks: dict[str, Any] = {}

        def show(event: ProgressEvent) -> None:
            if event.stage == "message":
                log(event.message)
            elif event.stage == "download":
                if event.name not in tasks:
                    bars.start()
                    tasks[event.name] = bars.add_task(event.name, total=event.total)
                bars.update(tasks[event.name], completed=event.done)

        yield show


def _reading_columns() -> tuple[Any, ...]:
    """Of bars for videos: name, bar, time and speed, what is left."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    description, status = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[status]}")
    return description, BarColumn(), status, TimeRemainingColumn()


@contextmanager
def reading_bars() -> Iterator[ProgressCallback]:
    """A callback with a bar for a video, its time and how much faster than real time it goes, and for downloads."""
    with _transient_bars(*_reading_columns()) as bars:
        yield _ReadingTasks(bars)


@contextmanager
def collection_bars(title: str, num_videos: int) -> Iterator[CollectionBars]:
    """A bar over several videos, and below it that of the file that is read."""
    with _transient_bars(*_reading_columns()) as bars:
        yield CollectionBars(title, num_videos, bars)


class CollectionBars:
    """How far a command over several videos is."""

    def __init__(self, title: str, num_videos: int, bars: Progress) -> None:
        self._num_videos, self._num_done, self._bars = num_videos, 0, bars
        self._task = bars.add_task(title, total=num_videos, status=f"0 of {num_videos}")

    @contextmanager
    def reading(self, num_files: int = 1) -> Iterator[ProgressCallback]:
        """A callback for the next video, of so many files, which is done when the block ends."""
        self._bars.start()
        tasks = _ReadingTasks(self._bars, lambda: self._update(tasks.done_share / num_files))
        try:
            yield tasks
        finally:
            tasks.remove()
            self._num_done += 1
            self._update(0.0)
            self._bars.stop()  # what was found is printed now; the next video draws it again

    def _update(self, share: float) -> None:
        """The bar over all; `share` is what is done of the present video."""
        self._bars.update(
            self._task, completed=self._num_done + share, status=f"{self._num_done} of {self._num_videos}"
        )


class _ReadingTasks:
    """A callback with a bar for each file that is read, its time and how much faster than real time it goes."""

    def __init__(self, bars: Progress, on_update: Callable[[], None] = lambda: None) -> None:
        self._bars, self._on_update = bars, on_update
        self._tasks: dict[str, Any] = {}
        self._downloads: dict[str, Any] = {}
        self._shares: dict[str, float] = {}
        self._starts: dict[str, tuple[float, float]] = {}  # seconds of an earlier run, and when this one began

    @property
    def done_share(self) -> float:
        """What is done, in files."""
        return sum(self._shares.values())

    def __call__(self, event: ProgressEvent) -> None:
        if event.stage == "message":
            log(event.message)
        elif event.stage == "download":
            self._update_download(event)
        elif event.stage == "read":
            self._update_reading(event)

    def _update_reading(self, event: ProgressEvent) -> None:
        if event.name not in self._tasks:
            self._bars.start()
            self._tasks[event.name] = self._bars.add_task(event.name, total=event.total, status="")
            return
        earlier_s, begin = self._starts.setdefault(event.name, (event.done, time.monotonic()))
        elapsed_s = time.monotonic() - begin
        speed = f" {(event.done - earlier_s) / elapsed_s:.1f}x" if elapsed_s > MIN_MEASURED_S else ""
        total = f" of {format_time(event.total)}" if event.total else ""
        self._bars.update(
            self._tasks[event.name], completed=event.done, status=f"{format_time(event.done)}{total}{speed}"
        )
        self._shares[event.name] = min(1.0, event.done / event.total) if event.total else 0.0
        self._on_update()

    def _update_download(self, event: ProgressEvent) -> None:
        """A bar with the bytes of what is fetched, which goes when all are there."""
        if event.name not in self._downloads:
            self._bars.start()
            self._downloads[event.name] = self._bars.add_task(event.name, total=event.total, status="")
        self._bars.update(self._downloads[event.name], completed=event.done, status=format_download(event))
        if event.total and event.done >= event.total:
            self._bars.remove_task(self._downloads.pop(event.name))

    def remove(self) -> None:
        """Take the bars of the files away."""
        for task in (*self._tasks.values(), *self._downloads.values()):
            self._bars.remove_task(task)


def format_download(event: ProgressEvent) -> str:
    """How many bytes of what is fetched are there."""
    from rich.filesize import decimal

    total = f" of {decimal(int(event.total))}" if event.total else ""
    return f"{decimal(int(event.done))}{total}"


@contextmanager
def _transient_bars(*columns: ProgressColumn) -> Iterator[Progress]:
    """Bars on standard error that are drawn once they are started, on a terminal only, and leave nothing behind."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    try:
        yield bars
    finally:
        bars.stop()
