"""The training loop over Lightning Fabric. A subclass defines what is trained.

    OUT/config.json, model.safetensors …     the current model, ready to use
    OUT/best/                                the model with the best validation score
    OUT/training.safetensors                 everything that is needed to resume exactly: weights, optimizer and
                                             random state as tensors, the rest as JSON metadata
    OUT/events.out.*                         TensorBoard

The input of a step depends only on the seed and its number, and the random state is saved with the
weights. A run on a CPU that is stopped and resumed ends with the same weights as an uninterrupted one.
"""

from __future__ import annotations

import json
import math
import signal
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hiero.config import RunConfig, override
from hiero.errors import InputError
from hiero.storage.files import load_metadata, load_tensors, parse_json, save_tensors
from hiero.training.fabric import make_fabric
from hiero.training.step import learning_rate, make_adam, set_learning_rate

STATE_FILE = "training.safetensors"
BEST_FOLDER = "best"
LOG_EVERY = 10  # steps
NUM_PREFETCHED = 2  # steps whose batches are read ahead
EPOCH_BITS = 20  # low bits of an epoch's seed; the bits above are the seed of the run


@dataclass(frozen=True)
class TrainingStatus:
    """Progress of a run, for a display."""

    step: int
    epoch: int
    losses: dict[str, float]
    windows_per_s: float


class SilentDisplay:
    """A display that shows nothing."""

    def log(self, line: str) -> None:
        """Show a permanent line."""

    def steps(self, done: int, total: int) -> AbstractContextManager[None]:
        """Show a progress bar over training steps."""
        return nullcontext()

    def texts(self, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Show a progress bar over texts. It yields a function that advances it."""
        return nullcontext(lambda _: None)

    def report(self, report: TrainingStatus) -> None:
        """Show losses and speed."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run that do not change what is learned."""

    resume: bool = False
    device: str = "auto"
    save_every_s: float = 300.0
    display: SilentDisplay | Any = field(default_factory=SilentDisplay)


def start_run(out: Path, options: RunOptions) -> tuple[Any, Any]:
    """Fabric and the display of a run. Raises InputError if the folder holds a run that is not resumed."""
    fabric = make_fabric(options.device)
    if (out / STATE_FILE).is_file() and not options.resume:
        raise InputError(f"{out}: already contains a run; resume it (--resume) or choose another folder")
    return fabric, options.display if fabric.is_global_zero else SilentDisplay()


def apply_settings(
    preset: dict[str, Any], settings: Sequence[str], defaults: type[RunConfig], log: Callable[[str], None]
) -> dict[str, Any]:
    """A preset with the settings of `--set`. If fewer epochs are set than the warm-up has, it keeps its share."""
    values = override(preset, settings)
    epochs, warmup = (values.get(name, getattr(defaults, name)) for name in ("epochs", "warmup_epochs"))
    is_set = any(setting.startswith("warmup_epochs=") for setting in settings)
    if isinstance(epochs, int) and isinstance(warmup, int | float) and not is_set and warmup > epochs > 0:
        preset_epochs = preset.get("epochs", defaults.epochs)
        values["warmup_epochs"] = epochs * warmup / preset_epochs
        share = f"as in {warmup:g} of {preset_epochs}; change it with --set warmup_epochs=…"
        log(f"the warm-up takes {values['warmup_epochs']:g} of {epochs} epochs, {share}")
    return values


class TrainingStopped(KeyboardInterrupt):
    """The run was stopped, and has saved its state."""


class _LossMeter:
    """Mean losses and speed since the last report."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.num_steps = 0
        self.started_s = time.perf_counter()

    def add(self, losses: dict[str, Tensor]) -> None:
        # Sums stay on the device: reading them would wait for the GPU in every step.
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
        self.num_steps += 1

    def means(self) -> dict[str, float]:
        return {name: float(value) / self.num_steps for name, value in self.sums.items()}

    def steps_per_s(self) -> float:
        return self.num_steps / max(time.perf_counter() - self.started_s, 1e-9)


class TrainingLoop(ABC):
    """A training run. A subclass defines the objective, how examples are read, and what is saved."""

    objective: nn.Module
    optimizer: torch.optim.Adam

    save_every_s, log_every = RunOptions.save_every_s, LOG_EVERY

    def __init__(self, config: RunConfig, num_examples: int, out: Path, fabric: Any) -> None:
        self.settings, self.num_examples, self.out, self.fabric = config, num_examples, out, fabric
        if config.batch_size % fabric.world_size:
            raise InputError(f"batch_size {config.batch_size} cannot be divided among {fabric.world_size} processes")
        if num_examples < fabric.world_size:
            raise InputError(f"{num_examples} windows are too few for {fabric.world_size} processes")
        self.num_batches = max(1, num_examples // config.batch_size)  # per epoch, without an incomplete last one
        self.steps_per_epoch = max(1, self.num_batches // config.accumulate)
        self.num_steps = config.epochs * self.steps_per_epoch
        self.step_number = 0
        self.best: float | None = None
        self.scores: list[dict[str, float]] = []
        self.stop = False

    @abstractmethod
    def _read_batches(self, indices: list[Tensor], step_number: int) -> Any:
        """Read this process's share of each batch of a step. Called in a reader thread."""

    @abstractmethod
    def _train_step(self, batches: Any) -> Any:
        """Update the weights and return the losses, a NamedTuple with `total`."""

    @abstractmethod
    def _validation_scores(self) -> dict[str, float]:
        """Validation scores, or {} without a validation set. The first selects the best model (larger is better)."""

    @abstractmethod
    def _save_model(self, folder: Path) -> None: ...

    @property
    def data_on_device(self) -> bool:
        """Whether examples are in the device's memory, so that batches are indices of examples."""
        return False

    @property
    @abstractmethod
    def _fingerprint(self) -> str:
        """Identifies the data of the run."""

    def _setup(self, objective: nn.Module, resume: bool) -> None:
        """Move the objective to its device, create its optimizer and optionally resume an earlier run."""
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
        with self._stop_on_signals(), _tensorboard(self.out, self.fabric, self.step_number) as write_scalar:
            for batches in self._batches():
                lr = learning_rate(self.step_number, self.num_steps, self.settings)
                set_learning_rate(self.optimizer, lr)
                meter.add(self._train_step(batches)._asdict())
                self.step_number += 1
                is_last = self.step_number == self.num_steps
                ends_epoch = self.step_number % self.steps_per_epoch == 0
                is_reported = self.step_number % self.log_every == 0 or ends_epoch or is_last
                if is_reported:
                    self._report(meter, lr, write_scalar, on_report)
                if ends_epoch:
                    self._validate(write_scalar, log)
                self.stop = _any_process(self.fabric, self.stop)
                if self.stop or time.perf_counter() - saved_s > self.save_every_s or is_last:
                    self.save()
                    saved_s = time.perf_counter()
                if self.stop and not is_last:
                    raise TrainingStopped
                if is_reported:  # after validation, whose time does not count
                    meter = _LossMeter()

    def run_and_log(self, display: SilentDisplay | Any, kind: str, command: str) -> None:
        """Train to the end, then log where the trained networks are and how the best one is used."""
        self.out.mkdir(parents=True, exist_ok=True)
        with display.steps(self.step_number, self.num_steps):
            self.run(on_report=display.report, log=display.log)
        best = self.out
        if self.best is not None:
            best = self.out / BEST_FOLDER
            display.log(f"{best}: the {kind} with the best validation score ({self.best:.3f})")
        display.log(f"{self.out}: the {kind} after the last step\nNext: {command.format(best)}")

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
        on_report(TrainingStatus(self.step_number, epoch, losses, windows_per_s))

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

    def order(self, epoch: int) -> Tensor:
        """A random permutation of the examples, (num_examples,), given by the seed and the epoch."""
        seed = (self.settings.seed << EPOCH_BITS) + epoch
        return torch.randperm(self.num_examples, generator=torch.Generator().manual_seed(seed))

    def _batch_indices(self) -> Iterator[list[Tensor]]:
        """For each remaining step, the examples of its batches."""
        batch_size, accumulate = self.settings.batch_size, self.settings.accumulate
        first_epoch, first_step = divmod(self.step_number, self.steps_per_epoch)
        for epoch in range(first_epoch, self.settings.epochs):
            order = self.order(epoch)
            if self.data_on_device:
                order = order.to(self.fabric.device)
            for step in range(first_step if epoch == first_epoch else 0, self.steps_per_epoch):
                # With fewer batches in an epoch than a step accumulates, some are used again.
                starts = [(step * accumulate + i) % self.num_batches * batch_size for i in range(accumulate)]
                indices = [order[start : start + batch_size] for start in starts]
                yield [self._process_share(index) for index in indices] if self.data_on_device else indices

    def _batches(self) -> Iterator[Any]:
        """For each remaining step, indices of examples on the device, or batches that a thread reads ahead."""
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

    def save(self) -> None:
        """Save the model and everything that is needed to resume."""
        if not all(bool(p.isfinite().all()) for p in self.objective.parameters()):
            _check_finite(float("nan"), self.step_number)
        if not self.fabric.is_global_zero:
            return
        self._save_model(self.out)
        tensors = {f"objective.{name}": value for name, value in self.objective.state_dict().items()}
        parameter_names: dict[Tensor, str] = {p: name for name, p in self.objective.named_parameters()}
        for p, state in self.optimizer.state.items():
            tensors |= {f"adam.{parameter_names[p]}.{key}": value for key, value in state.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if self.fabric.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.fabric.device)
        metadata = {
            "step": self.step_number,
            "config": self.settings.to_dict(),
            "data": self._fingerprint,
            "best": self.best,
            "scores": self.scores,
        }
        save_tensors(self.out / STATE_FILE, tensors, {"hiero": json.dumps(metadata)})

    def load(self) -> None:
        """Resume an earlier run in the same folder."""
        path, device = self.out / STATE_FILE, self.fabric.device
        if not path.is_file():
            raise InputError(f"{self.out}: nothing to resume, {STATE_FILE} is missing; to start a run, omit --resume")
        try:
            metadata = parse_json(load_metadata(path).get("hiero", "{}"))
        except ValueError as error:  # InputError is one, too
            raise InputError(f"{path}: damaged or cut short ({error})") from error
        if different := config_differences(metadata.get("config", {}), self.settings.to_dict()):
            changes = "; ".join(different)
            raise InputError(f"{self.out}: the run has other settings ({changes}); resume with the same ones")
        if metadata.get("data") != self._fingerprint:
            raise InputError(f"{self.out}: the run has other features or narrations; resume with the same ones")
        tensors = load_tensors(path)
        self.objective.load_state_dict(_select(tensors, "objective."))
        for name, p in self.objective.named_parameters():
            if state := _select(tensors, f"adam.{name}."):  # empty for a parameter that never had a gradient
                self.optimizer.state[p] = {key: value.to(device) for key, value in state.items()}
        torch.set_rng_state(tensors["random.cpu"])
        if device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], device)
        self.step_number, self.best, self.scores = metadata["step"], metadata["best"], metadata["scores"]

    @contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM finish the step and save. A second signal stops at once."""

        def request_stop(number: int, frame: object) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(ValueError):  # signals can only be handled in the main thread
                previous[number] = signal.signal(number, request_stop)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def _tensorboard(out: Path, fabric: Any, step: int) -> Iterator[Callable[[str, float, int], None]]:
    """A function that writes (name, value, step). It does nothing without TensorBoard, or if the rank is not 0."""
    try:
        if not fabric.is_global_zero:
            raise ImportError
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield lambda *_: None
        return
    with SummaryWriter(str(out), purge_step=step) as writer:
        yield writer.add_scalar


def _any_process(fabric: Any, flag: bool) -> bool:
    """Whether any process sets the flag. All must stop at the same step, or some would wait forever."""
    if fabric.world_size == 1:
        return flag
    total = torch.tensor(float(flag), device=fabric.device)
    torch.distributed.all_reduce(total)
    return bool(total > 0)


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise InputError(
            f"the loss became {loss} near step {step}; the last saved state is kept. "
            "Try a smaller learning rate (--set lr=…) or --set precision=float32"
        )


def _select(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def config_differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """Settings that differ, such as "model.depth was 3, now 2"."""
    out = []
    for name in sorted(before.keys() | now.keys()):
        a, b = before.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            out += config_differences(a, b, f"{prefix}{name}.")
        elif a != b:
            out.append(f"{prefix}{name} was {a}, now {b}")
    return out
