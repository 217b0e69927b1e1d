"""Output that all commands share: messages, JSON, tables and progress bars."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cyclopts import Group

from hiero.formatting import format_time, printable
from hiero.types import ProgressCallback, ProgressEvent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table
    from rich.text import Text

OPTIONS = Group("Options", sort_key=10)
ESTIMATE_AFTER_S = 10.0  # of reading
LONG_S = 60.0  # a run that takes longer is announced


def path_exists(argument: str) -> bool:
    """Whether an argument names an existing file. pathlib would raise an error for a text longer than a file name."""
    return os.path.exists(argument)  # noqa: PTH110


def log(line: str) -> None:
    """Print a message to standard error, with addresses in place of the paths of cached copies."""
    if "/remote/" in line or "@" in line:
        from hiero.media.addresses import display_addresses

        line = display_addresses(line)
    if sys.stderr is not None:  # closed with 2>&-; print() would write to standard output
        print(printable(line), file=sys.stderr)


def echo(line: str = "") -> None:
    """Print a line of a result at once. Names of files and labels may contain control characters: they are escaped."""
    print(printable(line), flush=True)


def print_json(document: dict[str, Any]) -> None:
    """Print a result as one line of JSON to standard output."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    # JSON escapes only the control characters of ASCII.
    sys.stdout.write(re.sub("[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def make_console(**options: Any) -> Console:
    """A console that escapes control characters in the text that it is given."""
    from rich.console import Console

    class EscapingConsole(Console):
        def render_str(self, text: str, **options: Any) -> Text:
            return super().render_str(printable(text), **options)

    return EscapingConsole(**options)


def results_console(title: str | None = None, file_width: int | None = None) -> Console:
    """The console for results, which prints text without markup, after a title if there is one.

    `file_width` is the number of characters in a line of a file or pipe.
    """
    console = make_console(highlight=False, markup=False, emoji=False)
    if file_width is not None and not console.is_terminal:
        console.width = file_width
    if title is not None:
        console.print(f"\n{title}", style="bold underline")
    return console


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines; the columns named in `right` are right-aligned."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
    """A bar on standard error. Yields a function to call with the name of a finished item and its size (default 1)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=make_console(stderr=True)) as bars:
        task = bars.add_task(printable(title), total=total, status="")
        yield lambda name, num_units=1: bars.update(task, advance=num_units, status=printable(name))


@contextmanager
def transient_bars() -> Iterator[Progress]:
    """Bars on standard error that appear when started, only on a terminal, and disappear at the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    description, status = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[status]}")
    console = make_console(stderr=True)
    columns = (description, BarColumn(), status, TimeRemainingColumn())
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    try:
        yield bars
    finally:
        bars.stop()


@contextmanager
def reading_bars() -> Iterator[ProgressCallback]:
    """A progress callback that draws a bar for each file that is read or downloaded."""
    with transient_bars() as bars:
        yield ReadingBars(bars)


class CollectionBars:
    """A bar for several videos, with the bars of the current video below it."""

    def __init__(self, title: str, num_videos: int, bars: Progress) -> None:
        self._num_videos, self._num_done, self._bars = num_videos, 0, bars
        self._task = bars.add_task(printable(title), total=num_videos, status=f"0 of {num_videos}")

    @contextmanager
    def reading(self, num_files: int = 1) -> Iterator[ProgressCallback]:
        """A progress callback for the next video, which counts as done when the block ends."""
        self._bars.start()
        tasks = ReadingBars(self._bars, lambda num_files_done: self._update(num_files_done / num_files))
        try:
            yield tasks
        finally:
            tasks.remove()
            self._num_done += 1
            self._update(0.0)
            self._bars.stop()  # the result is printed now; the next video starts the bars again

    def _update(self, share: float) -> None:
        """Redraw the bar; `share` is the part of the current video that is done."""
        status = f"{self._num_done} of {self._num_videos}"
        self._bars.update(self._task, completed=self._num_done + share, status=status)


class ReadingBars:
    """A progress callback with one bar for each file that is read or downloaded.

    `on_update` gets the number of files that are read, with the share of each unfinished one.
    """

    def __init__(
        self,
        bars: Progress,
        on_update: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bars, self._on_update, self._clock = bars, on_update, clock
        self._tasks: dict[tuple[str, str], Any] = {}
        self._shares: dict[str, float] = {}
        self._begun: dict[str, tuple[float, float]] = {}  # when reading a file began, and where

    def __call__(self, event: ProgressEvent) -> None:
        if event.stage == "message":
            log(event.message)
            return
        key = event.stage, event.name
        if key in self._tasks:
            task = next(task for task in self._bars.tasks if task.id == self._tasks[key])
            self._bars.update(task.id, completed=event.done, status=_format_progress(event, task.speed))
        else:
            self._bars.start()
            self._tasks[key] = self._bars.add_task(printable(event.name), total=event.total, status="")
        if event.stage == "read":
            self._announce_length(event)
            self._shares[event.name] = min(1.0, event.done / event.total) if event.total else 0.0
            self._on_update(sum(self._shares.values()))
        elif event.total and event.done >= event.total:
            self.remove(event.name, "download")

    def _announce_length(self, event: ProgressEvent) -> None:
        """Say once how long a file will take, also where no bar is drawn, as soon as its speed is known."""
        now_s = self._clock()
        begun_at_s, begin = self._begun.setdefault(event.name, (now_s, event.done))
        passed_s = now_s - begun_at_s
        if event.total and event.done > begin and passed_s >= ESTIMATE_AFTER_S:
            left_s = passed_s * (event.total - event.done) / (event.done - begin)
            self._begun[event.name] = math.inf, 0.0
            if left_s >= LONG_S:
                log(f"{event.name}: {format_time(left_s)} left at {(event.done - begin) / passed_s:.1f} × real time")

    def remove(self, name: str | None = None, stage: str | None = None) -> None:
        """Remove the bars of a file, or all of them."""
        for key in [key for key in self._tasks if stage in (None, key[0]) and name in (None, key[1])]:
            self._bars.remove_task(self._tasks.pop(key))


def _format_progress(event: ProgressEvent, rate: float | None) -> str:
    """Amount and speed: time and a multiple of real time for reading, bytes and bytes per second for downloads."""
    from rich.filesize import decimal

    if event.stage == "download":
        done, total = decimal(int(event.done)), decimal(int(event.total or 0))
        speed = "" if rate is None else f" {decimal(int(rate))}/s"
    else:
        done, total = format_time(event.done), format_time(event.total or 0)
        speed = "" if rate is None else f" {rate:.1f}x"
    return f"{done} of {total}{speed}" if event.total else f"{done}{speed}"
