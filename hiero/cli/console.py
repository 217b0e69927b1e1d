"""What all commands share: lines on standard error, and bars."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hiero.weights import Progress as DownloadProgress


def say(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Any]:
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
def downloads() -> Iterator[DownloadProgress]:
    """Bars for what is fetched; nothing is drawn until something is."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with late_bars(*columns) as bars:
        tasks: list[Any] = []

        def begin(name: str, size: int) -> None:
            bars.start()
            tasks.append(bars.add_task(name, total=size or None))

        yield DownloadProgress(begin=begin, advance=lambda num: bars.advance(tasks[-1], num), say=say)


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
