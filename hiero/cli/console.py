"""What all commands share: lines on standard error, tables, and progress bars."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hiero.types import ProgressCallback, ProgressEvent, format_time


def log(line: str) -> None:
    """A line for the person at the terminal, on standard error: standard output is for results."""
    print(line, file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """A result as one line of JSON on standard output."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
    """A bar on standard error; yields a function of the name of what is done, and how many steps that was."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(title, total=total, now="")
        yield lambda name, num=1: bars.update(task, advance=num, now=name)


@contextmanager
def download_bars() -> Iterator[ProgressCallback]:
    """A callback with bars for what is fetched; nothing is drawn until something is."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with late_bars(*columns) as bars:
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

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[now]}"), TimeRemainingColumn())
    with download_bars() as show_download, late_bars(*columns) as bars:
        tasks: dict[str, Any] = {}
        first: list[tuple[float, float]] = []  # seconds of video that came from an earlier run, and when this one began

        def show(event: ProgressEvent) -> None:
            if event.stage != "read":
                show_download(event)
                return
            if event.name not in tasks:
                bars.start()
                tasks[event.name] = bars.add_task(event.name, total=event.total, now="")
                return
            if not first:
                first.append((event.done, time.monotonic()))
            spent_s = time.monotonic() - first[0][1]
            speed = f" {(event.done - first[0][0]) / spent_s:.1f}x" if spent_s > 1 else ""
            whole = f" of {format_time(event.total)}" if event.total else ""
            bars.update(tasks[event.name], completed=event.done, now=f"{format_time(event.done)}{whole}{speed}")

        yield show


@contextmanager
def late_bars(*columns: Any) -> Iterator[Any]:
    """Bars on standard error that are drawn once they are started, on a terminal only, and leave nothing behind."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    try:
        yield bars
    finally:
        bars.stop()
