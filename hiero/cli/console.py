"""What all commands share: lines on standard error, JSON and tables on standard output, and progress bars."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hiero.types import ProgressCallback, ProgressEvent, format_time

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

MIN_MEASURED_S = 1.0  # a speed is shown after this time; before it would jump about


def log(line: str) -> None:
    """A line for the person at the terminal, on standard error: standard output is for results."""
    print(line, file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """A result as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines. right: the columns that are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    return table


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
    """A bar on standard error; yields a function of the name of what is done, and of how many units that was (by default one)."""
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

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
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


@contextmanager
def reading_bars() -> Iterator[ProgressCallback]:
    """A callback with a bar for a video, its time and how much faster than real time it goes; weights are fetched before it."""
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[status]}"),
        TimeRemainingColumn(),
    )
    with download_bars() as show_download, _transient_bars(*columns) as bars:
        tasks: dict[str, Any] = {}
        start: tuple[float, float] | None = None  # seconds of video that came from an earlier run, and when this one began

        def show(event: ProgressEvent) -> None:
            nonlocal start
            if event.stage != "read":
                show_download(event)
                return
            if event.name not in tasks:
                bars.start()
                tasks[event.name] = bars.add_task(event.name, total=event.total, status="")
                return
            if start is None:
                start = event.done, time.monotonic()
            earlier_s, begin = start
            elapsed_s = time.monotonic() - begin
            speed = f" {(event.done - earlier_s) / elapsed_s:.1f}x" if elapsed_s > MIN_MEASURED_S else ""
            total = f" of {format_time(event.total)}" if event.total else ""
            bars.update(tasks[event.name], completed=event.done, status=f"{format_time(event.done)}{total}{speed}")

        yield show


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
