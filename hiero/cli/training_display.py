"""Progress of `hiero train` and `hiero head train`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hiero.formatting import printable

if TYPE_CHECKING:
    from hiero.training.loop import TrainingStatus

LOSS_NAMES = {"alignment": "L_vna", "threads": "L_ft"}  # as the paper writes them


class TrainDisplay:
    """The display of a training run on standard error: messages, and a bar with losses, speed and time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=self.console,
        )
        self.task: Any = None

    def log(self, line: str) -> None:
        """Print a message above the bar."""
        self.console.print(printable(line), soft_wrap=True, markup=False)

    @contextmanager
    def steps(self, done: int, total: int) -> Iterator[None]:
        """The bar of the optimisation steps; `done` of them are from an earlier run."""
        self.task = self.progress.add_task("train", total=total, completed=done, status="")
        with self.progress:
            yield

    @contextmanager
    def texts(self, total: int) -> Iterator[Any]:
        """The bar of encoded texts. Yields a function to call with the number of newly encoded texts."""
        task = self.progress.add_task("texts", total=total, status="")
        with self.progress:
            yield lambda num_texts: self.progress.advance(task, num_texts)
        self.progress.remove_task(task)

    def report(self, report: TrainingStatus) -> None:
        """Update the bar."""
        losses = " ".join(f"{LOSS_NAMES.get(name, name)} {value:.3f}" for name, value in report.losses.items())
        status = f"epoch {report.epoch} {losses} {report.windows_per_s:.0f} windows/s"
        self.progress.update(self.task, completed=report.step, status=status)
