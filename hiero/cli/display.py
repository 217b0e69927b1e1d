"""What a training run shows on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hiero.training.loop import TrainingStatus


class TrainDisplay:
    """What a training run shows: lines that stay, and a bar with losses, speed and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn(), TextColumn("{task.fields[now]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True), console=self.console,
        )  # fmt: skip
        self.task: Any = None

    def log(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False)

    @contextmanager
    def steps(self, done: int, total: int) -> Iterator[None]:
        self.task = self.progress.add_task("train", total=total, completed=done, now="")
        with self.progress:
            yield

    @contextmanager
    def texts(self, total: int) -> Iterator[Any]:
        task = self.progress.add_task("texts", total=total, now="")
        with self.progress:
            yield lambda num: self.progress.advance(task, num)
        self.progress.remove_task(task)

    def report(self, report: TrainingStatus) -> None:
        names = {"alignment": "L_vna", "threads": "L_ft"}
        losses = " ".join(f"{names.get(name, name)} {value:.3f}" for name, value in report.losses.items())
        now = f"epoch {report.epoch} {losses} {report.windows_per_s:.0f} windows/s"
        self.progress.update(self.task, completed=report.step, now=now)
