"""The training loop: plain and readable, over Lightning Fabric for devices and processes. A subclass
says what is trained.

    OUT/config.json, model.safetensors …     the model so far, ready to use
    OUT/best/                                the same at the best validation
    OUT/training.safetensors                 all that is needed to go on, to the last bit
    OUT/events.out.*                         TensorBoard

What a step sees depends on (seed, step) alone and the random state is saved with the weights, so a
run that was stopped and resumed on a CPU ends with the same weights as one that was not.
"""

from __future__ import annotations

import math
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero.config import RunConfig
from hiero.errors import InputError
from hiero.training.resume_state import config_differences, load_state, read_metadata, save_state
from hiero.training.step import learning_rate, make_adam, set_learning_rate

STATE_FILE = "training.safetensors"
BEST_FOLDER = "best"
LOG_EVERY = 10  # steps
NUM_PREFETCHED = 2  # steps whose batches are read ahead
EPOCH_BITS = 20  # of the seed of an epoch's order; the bits above are the seed of the run


@dataclass(frozen=True)
class TrainingStatus:
    """How far a run is, for a progress display."""

    step: int
    num_steps: int
    epoch: int
    lr: float
    losses: dict[str, float]
    windows_per_s: float


class SilentDisplay:
    """A display that shows nothing; the command line has one that does."""

    def log(self, line: str) -> None:
        """Show a line that stays."""

    def steps(self, done: int, total: int) -> AbstractContextManager[None]:
        """Show a progress bar over training steps."""
        return nullcontext()

    def texts(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar over texts; the function in it advances by a number of texts."""
        return nullcontext(lambda _: None)

    def report(self, report: TrainingStatus) -> None:
        """Show losses and speed."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is carried out; nothing here changes what is learned."""

    resume: bool = False
    device: str = "auto"
    save_every_s: float = 300.0
    display: SilentDisplay | Any = field(default_factory=SilentDisplay)


class TrainingStopped(KeyboardInterrupt):
    """The run was asked to stop, and has saved its state."""


class _LossMeter:
    """Mean losses and speed since the last report."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.num_steps = 0
        self.restart_clock()

    def restart_clock(self) -> None:
        self.started_s = time.perf_counter()

    def add(self, losses: dict[str, Tensor]) -> None:
        # Sums stay on the device: reading them here would wait for the GPU in every step.
        for name, value in losses.items():
            self.sums[name] = self.sums[name] + value.detach() if name in self.sums else value.detach().clone()
        self.num_steps += 1

    def means(self) -> dict[str, float]:
        return {name: float(value) / self.num_steps for name, value in self.sums.items()}

    def steps_per_s(self) -> float:
        return self.num_steps / max(time.perf_counter() - self.started_s, 1e-9)


class TrainingLoop(ABC):
    """A training run. A subclass says what is trained (`objective`), how examples are read, and what is saved."""

    objective: nn.Module
    optimizer: torch.optim.Adam

    save_every_s, log_every = RunOptions.save_every_s, LOG_EVERY

    def __init__(self, config: RunConfig, num_examples: int, out: Path, fabric: Any) -> None:
        self.settings, self.num_examples, self.out, self.fabric = config, num_examples, out, fabric
        if config.batch_size % fabric.world_size:
            raise InputError(f"batch_size {config.batch_size} cannot be divided among {fabric.world_size} processes")
        if num_examples < fabric.world_size:
            raise InputError(f"{num_examples} windows are too few for {fabric.world_size} processes")
        self.num_batches = max(1, num_examples // config.batch_size)  # in an epoch; an incomplete last one is left out
        self.steps_per_epoch = max(1, self.num_batches // config.accumulate)
        self.num_steps = config.epochs * self.steps_per_epoch
        self.step_number = 0
        self.best: float | None = None
        self.scores: list[dict[str, float]] = []
        self.stop = False

    # For subclasses

    @abstractmethod
    def _read_batches(self, indices: list[Tensor], step_number: int) -> Any:
        """This process's share of each batch of a step; called in a reader thread."""

    @abstractmethod
    def _train_step(self, batches: Any) -> Any:
        """Update the weights; returns the losses, a NamedTuple with `total`."""

    @abstractmethod
    def _validation_scores(self) -> dict[str, float]:
        """Scores on the validation set, the one that selects the best model first (larger is better);
        {} without such a set.
        """

    @abstractmethod
    def _save_model(self, folder: Path) -> None: ...

    @property
    def data_on_device(self) -> bool:
        """Whether the examples are in the device's memory; then batches are indices of examples."""
        return False

    @property
    @abstractmethod
    def _fingerprint(self) -> str:
        """Identifies the data of the run."""

    # The run

    def _setup(self, objective: nn.Module, resume: bool) -> None:
        """Move the objective to its device and make its optimizer; with `resume`, load the state of
        the earlier run.
        """
        config = self.settings
        self.objective = objective.to(self.fabric.device).train()
        self.optimizer = make_adam(objective, config.lr, config.weight_decay, config.optimizer)
        if resume:
            self.load()

    def run(
        self,
        *,
        on_report: Callable[[TrainingStatus], None] = lambda _: None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Train to the end. Call `prepare` first."""
        meter, saved_s = _LossMeter(), time.perf_counter()
        with self._stop_on_signals(), self._tensorboard() as write_scalar:
            for batches in self._batches():
                lr = learning_rate(self.step_number, self.num_steps, self.settings)
                set_learning_rate(self.optimizer, lr)
                meter.add(self._train_step(batches)._asdict())
                self.step_number += 1
                is_last = self.step_number == self.num_steps
                ends_epoch = self.step_number % self.steps_per_epoch == 0
                if self.step_number % self.log_every == 0 or ends_epoch or is_last:
                    self._report(meter, lr, write_scalar, on_report)
                    meter = _LossMeter()
                if ends_epoch:
                    self._validate(write_scalar, log)
                    meter.restart_clock()  # validation does not count as training time
                self.stop = self._any_process(self.stop)
                if self.stop or time.perf_counter() - saved_s > self.save_every_s or is_last:
                    self.save()
                    saved_s = time.perf_counter()
                    meter.restart_clock()
                if self.stop and not is_last:
                    raise TrainingStopped

    def _any_process(self, flag: bool) -> bool:
        # All processes must stop at the same step, or the others would wait forever for the one that did.
        if self.fabric.world_size == 1:
            return flag
        total = torch.tensor(float(flag), device=self.fabric.device)
        torch.distributed.all_reduce(total)
        return bool(total > 0)

    def _report(
        self,
        meter: _LossMeter,
        lr: float,
        write_scalar: Callable[[str, float, int], None],
        on_report: Callable[[TrainingStatus], None],
    ) -> None:
        losses = meter.means()
        _check_finite(losses.pop("total"), self.step_number)
        windows_per_s = meter.steps_per_s() * self.settings.batch_size * self.settings.accumulate
        for name, value in {**losses, "lr": lr, "windows_per_s": windows_per_s}.items():
            write_scalar(f"train/{name}", value, self.step_number)
        epoch = (self.step_number - 1) // self.steps_per_epoch + 1
        on_report(TrainingStatus(self.step_number, self.num_steps, epoch, lr, losses, windows_per_s))

    def _validate(self, write_scalar: Callable[[str, float, int], None], log: Callable[[str], None]) -> None:
        """Score the model, log the scores, and save the model if it is the best so far."""
        scores = self._validation_scores()
        if not scores:
            return
        epoch = self.step_number // self.steps_per_epoch
        self.scores.append({"epoch": epoch, **scores})
        for name, value in scores.items():
            write_scalar(f"validation/{name}", value, self.step_number)
        first = next(iter(scores.values()))
        is_best = not math.isnan(first) and (self.best is None or first > self.best)
        message = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
        log(f"epoch {epoch}: validation {message}{', best so far' if is_best else ''}")
        if is_best:
            self.best = first
            if self.fabric.is_global_zero:
                self._save_model(self.out / BEST_FOLDER)

    # Data

    def order(self, epoch: int) -> Tensor:
        """A random permutation of the examples, (num_examples,), that depends on the seed and the epoch alone."""
        seed = (self.settings.seed << EPOCH_BITS) + epoch
        return torch.randperm(self.num_examples, generator=torch.Generator().manual_seed(seed))

    def _batch_indices(self) -> Iterator[list[Tensor]]:
        """For each remaining step, the examples of its batches."""
        batch_size, accumulate = self.settings.batch_size, self.settings.accumulate
        order, order_epoch = torch.empty(0), -1
        for number in range(self.step_number, self.num_steps):
            epoch, step = divmod(number, self.steps_per_epoch)
            if epoch != order_epoch:
                order, order_epoch = self.order(epoch), epoch
                if self.data_on_device:
                    order = order.to(self.fabric.device)
            # With fewer batches in an epoch than a step accumulates, some are used again.
            starts = [(step * accumulate + i) % self.num_batches * batch_size for i in range(accumulate)]
            indices = [order[start : start + batch_size] for start in starts]
            yield [self._process_share(index) for index in indices] if self.data_on_device else indices

    def _batches(self) -> Iterator[Any]:
        """For each remaining step, indices of examples on the device, or batches that a thread reads
        while the GPU works.
        """
        if self.data_on_device:
            yield from self._batch_indices()
            return
        with ThreadPoolExecutor(1) as reader:
            pending: deque[Future[Any]] = deque()
            for number, indices in enumerate(self._batch_indices(), start=self.step_number):
                pending.append(reader.submit(self._read_batches, indices, number))
                if len(pending) > NUM_PREFETCHED:
                    yield pending.popleft().result()
            for future in pending:
                yield future.result()

    def _process_share(self, index: Tensor) -> Tensor:
        """The examples of a batch that this process computes."""
        rank, share = self.fabric.global_rank, len(index) // self.fabric.world_size
        return index[rank * share : (rank + 1) * share]

    # Files

    def save(self) -> None:
        """Save the model, and beside it all that is needed to resume."""
        if not all(bool(p.isfinite().all()) for p in self.objective.parameters()):
            _check_finite(float("nan"), self.step_number)
        if not self.fabric.is_global_zero:
            return
        self._save_model(self.out)
        metadata = {
            "step": self.step_number,
            "config": self.settings.to_dict(),
            "data": self._fingerprint,
            "best": self.best,
            "scores": self.scores,
        }
        save_state(self.out / STATE_FILE, self.objective, self.optimizer, self.fabric.device, metadata)

    def load(self) -> None:
        """Load the state of an earlier run in the same folder."""
        path = self.out / STATE_FILE
        if not path.is_file():
            raise InputError(f"{self.out}: nothing to resume, {STATE_FILE} is missing; leave --resume out to begin")
        metadata = read_metadata(path)
        if different := config_differences(metadata.get("config", {}), self.settings.to_dict()):
            raise InputError(
                f"{self.out}: was begun with other settings ({'; '.join(different)}); resume with the same ones"
            )
        if metadata.get("data") != self._fingerprint:
            raise InputError(f"{self.out}: was begun on other features or narrations; resume with the same ones")
        load_state(path, self.objective, self.optimizer, self.fabric.device)
        self.step_number, self.best, self.scores = metadata["step"], metadata["best"], metadata["scores"]

    @contextmanager
    def _tensorboard(self) -> Iterator[Callable[[str, float, int], None]]:
        """A function that writes (name, value, step), or does nothing where TensorBoard is not
        installed or the rank is not 0.
        """
        writer: Any = None
        if self.fabric.is_global_zero:
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                writer = SummaryWriter(str(self.out), purge_step=self.step_number)
        try:
            yield (lambda name, value, step: writer.add_scalar(name, value, step)) if writer else (lambda *_: None)
        finally:
            if writer is not None:
                writer.close()

    @contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM let the step end and save; a second one does not wait."""

        def request_stop(number: int, frame: object) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread: leave signals alone
                previous[number] = signal.signal(number, request_stop)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InputError(
            f"the loss became {loss} near step {step}; the last saved state is kept. "
            "Try a smaller rate (--set lr=…) or --set precision=float32"
        )
