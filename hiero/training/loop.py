"""The training loop: plain and readable, over Lightning Fabric for devices and processes. What learns is the subclass's business.

    OUT/config.json, model.safetensors …     the model so far, ready to use
    OUT/best/                                the same at the best validation
    OUT/training.safetensors                 all that is needed to go on, to the last bit
    OUT/events.out.*                         TensorBoard

What a step sees depends on (seed, step) alone and the random state is kept with the weights, so a run that was stopped and
resumed on a CPU ends with the same weights as one that was not.
"""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero.config import RunConfig
from hiero.errors import InputError
from hiero.training.resume_state import differences, load_state, read_about, save_state
from hiero.training.schedule import learning_rate
from hiero.training.step import make_adam, set_rate

STATE = "training.safetensors"


@dataclass(frozen=True)
class TrainingStatus:
    """Where a run stands, for a progress display."""

    step: int
    num_steps: int
    epoch: int
    lr: float
    losses: dict[str, float]
    """Their means since the last report, by name."""
    windows_per_s: float


class TrainingStopped(KeyboardInterrupt):
    """The run was asked to stop, and has saved what it had."""


def make_fabric(device: str) -> Any:
    """Fabric for this process, or for all processes that torchrun started."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError("training needs lightning-fabric; run: pip install 'hiero-video[train]'") from None
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    num = int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_WORLD_SIZE", num))
    try:
        kind = torch.device(device)
        devices: Any = local if num > 1 else ([kind.index] if kind.type == "cuda" and kind.index is not None else 1)
        fabric = Fabric(
            accelerator=kind.type,
            devices=devices,
            num_nodes=num // local,
            strategy="ddp" if num > 1 else "auto",
            precision="32-true",
        )
        fabric.launch()
    except Exception as error:  # Fabric's own exceptions have no common class
        raise InputError(f"--device {device} cannot be used here ({str(error).splitlines()[0]})") from error
    return fabric


class TrainingLoop(ABC):
    """A run over `num_examples` examples. A subclass says what learns (`objective`), how a step is taken, and what is kept."""

    objective: nn.Module
    optimizer: torch.optim.Optimizer

    def __init__(
        self, config: RunConfig, num_examples: int, out: Path, fabric: Any, save_every_s: float = 300.0, log_every: int = 10
    ) -> None:
        self.settings, self.num_examples, self.out, self.fabric = config, num_examples, out, fabric
        self.save_every_s, self.log_every = save_every_s, log_every
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

    # What a subclass gives

    @abstractmethod
    def _read(self, indices: list[Tensor], number: int) -> Any:
        """The part of each batch of step `number` that belongs to this process; runs in a thread of its own."""

    @abstractmethod
    def _take(self, batches: Any) -> Any:
        """A step; its losses, a NamedTuple."""

    @abstractmethod
    def _check(self) -> dict[str, float]:
        """Scores on the validation set by name, the one that decides first; none without such a set. Larger is better."""

    @abstractmethod
    def _save_model(self, folder: Path) -> None: ...

    @property
    def on_device(self) -> bool:
        """Whether examples lie on the device already; then batches are places among them."""
        return False

    @property
    @abstractmethod
    def _fingerprint(self) -> str:
        """Names the data of the run."""

    # The run

    def begin(self, objective: nn.Module, resume: bool) -> None:
        """Take what learns to its device, with its optimizer; with `resume` as an earlier run left them."""
        config = self.settings
        self.objective = objective.to(self.fabric.device).train()
        self.optimizer = make_adam(objective, config.lr, config.weight_decay, config.optimizer)
        if resume:
            self.load()

    def run(
        self, *, on_report: Callable[[TrainingStatus], None] = lambda _: None, log: Callable[[str], None] = lambda _: None
    ) -> None:
        """Take the steps that are left. Call `prepare` first."""
        sums: dict[str, Tensor] = {}
        counted, began, saved = 0, time.perf_counter(), time.perf_counter()
        with self._stopping(), self._events() as events:
            for batch in self._batches():
                rate = learning_rate(self.step_number, self.num_steps, self.settings)
                set_rate(self.optimizer, rate)
                for name, value in self._take(batch)._asdict().items():
                    sums[name] = sums[name] + value.detach() if name in sums else value.detach().clone()
                self.step_number += 1
                counted += 1
                ends_epoch = self.step_number % self.steps_per_epoch == 0
                if self.step_number % self.log_every == 0 or ends_epoch or self.step_number == self.num_steps:
                    losses = {name: float(value) / counted for name, value in sums.items()}
                    _check_finite(losses.pop("total"), self.step_number)
                    num = counted * self.settings.batch_size * self.settings.accumulate
                    epoch = (self.step_number - 1) // self.steps_per_epoch + 1
                    speed = num / max(time.perf_counter() - began, 1e-9)
                    for name, value in {**losses, "lr": rate, "windows_per_s": speed}.items():
                        events(f"train/{name}", value, self.step_number)
                    on_report(TrainingStatus(self.step_number, self.num_steps, epoch, rate, losses, speed))
                    sums.clear()
                    counted, began = 0, time.perf_counter()
                if ends_epoch:
                    self._validate(events, log)
                    began = time.perf_counter()
                self.stop = self._any(self.stop)
                if self.stop or time.perf_counter() - saved > self.save_every_s or self.step_number == self.num_steps:
                    self.save()
                    saved = began = time.perf_counter()
                if self.stop and self.step_number < self.num_steps:
                    raise TrainingStopped

    def _any(self, asked: bool) -> bool:
        """Whether any process was asked to stop: all must do so at the same step, or the others would wait for it forever."""
        if self.fabric.world_size == 1:
            return asked
        flag = torch.tensor(float(asked), device=self.fabric.device)
        torch.distributed.all_reduce(flag)
        return bool(flag > 0)

    def _validate(self, events: Callable[[str, float, int], None], log: Callable[[str], None]) -> None:
        found = self._check()
        if not found:
            return
        epoch = self.step_number // self.steps_per_epoch
        self.scores.append({"epoch": epoch, **found})
        for name, value in found.items():
            events(f"validation/{name}", value, self.step_number)
        first = next(iter(found.values()))
        better = first == first and (self.best is None or first > self.best)  # NaN is never better
        said = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        log(f"epoch {epoch}: validation {said}{', best so far' if better else ''}")
        if better:
            self.best = first
            if self.fabric.is_global_zero:
                self._save_model(self.out / "best")

    # Data

    def order(self, epoch: int) -> Tensor:
        """The examples of an epoch in its own random order."""
        seed = (self.settings.seed << 20) + epoch
        return torch.randperm(self.num_examples, generator=torch.Generator().manual_seed(seed))

    def _indices(self) -> Iterator[list[Tensor]]:
        """For each step still to take, the examples of its batches."""
        size, many = self.settings.batch_size, self.settings.accumulate
        order, of_epoch = torch.empty(0), -1
        for number in range(self.step_number, self.num_steps):
            epoch, step = divmod(number, self.steps_per_epoch)
            if epoch != of_epoch:
                order, of_epoch = self.order(epoch), epoch
                if self.on_device:
                    order = order.to(self.fabric.device)
            first = [(step * many + i) % self.num_batches * size for i in range(many)]
            chunks = [order[start : start + size] for start in first]
            yield [self._own(chunk) for chunk in chunks] if self.on_device else chunks

    def _batches(self) -> Iterator[Any]:
        """Places of examples that are on the device, or batches read by a thread of its own while the last one is worked on."""
        if self.on_device:
            yield from self._indices()
            return
        with ThreadPoolExecutor(1) as reader:
            ahead: list[Any] = []
            for number, index in enumerate(self._indices(), start=self.step_number):
                ahead.append(reader.submit(self._read, index, number))
                if len(ahead) > 2:
                    yield ahead.pop(0).result()
            for future in ahead:
                yield future.result()

    def _own(self, chunk: Tensor) -> Tensor:
        """The part of a batch's examples that belongs to this process."""
        rank, own = self.fabric.global_rank, len(chunk) // self.fabric.world_size
        return chunk[rank * own : (rank + 1) * own]

    # Files

    def save(self) -> None:
        """The model, and beside it all that is needed to go on. A model that broke never takes the place of one that works."""
        if not all(bool(p.isfinite().all()) for p in self.objective.parameters()):
            _check_finite(float("nan"), self.step_number)
        if not self.fabric.is_global_zero:
            return
        self._save_model(self.out)
        about = {
            "step": self.step_number, "config": self.settings.to_dict(), "data": self._fingerprint,
            "best": self.best, "scores": self.scores,
        }  # fmt: skip
        save_state(self.out / STATE, self.objective, self.optimizer, self.fabric.device, about)

    def load(self) -> None:
        """Go on where a run in the same folder stopped."""
        path = self.out / STATE
        if not path.is_file():
            raise InputError(f"{self.out}: nothing to resume, {STATE} is missing; leave --resume out to begin")
        about = read_about(path)
        if different := differences(about.get("config", {}), self.settings.to_dict()):
            raise InputError(f"{self.out}: was begun with other settings ({'; '.join(different)}); resume with the same ones")
        if about.get("data") != self._fingerprint:
            raise InputError(f"{self.out}: was begun on other features or narrations; resume with the same ones")
        load_state(path, self.objective, self.optimizer, self.fabric.device)
        self.step_number, self.best, self.scores = about["step"], about["best"], about["scores"]

    @contextmanager
    def _events(self) -> Iterator[Callable[[str, float, int], None]]:
        """TensorBoard, when it is installed and this process is the first."""
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
    def _stopping(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM let the step end and save; a second Ctrl-C does not wait."""

        def ask(number: int, frame: object) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        kept = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # not in the main thread: leave signals alone
                kept[number] = signal.signal(number, ask)
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)


def autocast_precision(config: RunConfig, device: torch.device) -> torch.dtype | None:
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if config.precision == "bfloat16" else None


def _check_finite(loss: float, step: int) -> None:
    if loss != loss or loss in (float("inf"), float("-inf")):
        raise InputError(
            f"the loss became {loss} near step {step}; the last saved state is kept. "
            "Try a smaller rate (--set lr=…) or --set precision=float32"
        )
