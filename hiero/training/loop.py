"""The training loop: plain and readable, over Lightning Fabric for devices and processes.

    OUT/config.json, model.safetensors, text_encoder.safetensors    the model so far, ready to use
    OUT/best/                                                       the same at the best validation
    OUT/training.safetensors                                        all that is needed to go on, to the last bit
    OUT/events.out.*                                                TensorBoard

What a step sees depends on (seed, step) alone and the random state is kept with the weights, so a run that was stopped and
resumed on a CPU ends with the same weights as one that was not.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hiero.config import TrainConfig
from hiero.data.narrated import NarratedWindows, ResidentWindows, StepInputs
from hiero.errors import InputError
from hiero.files import save_tensors
from hiero.model.checkpoint import write_checkpoint
from hiero.model.folder import TEXT_ENCODER
from hiero.model.hiero import HiERO, Losses
from hiero.model.tdgc import Dropout
from hiero.text.encoders import TextEncoder
from hiero.training.fast import CapturedStep, check_capturable
from hiero.training.peers import ProcessGroup
from hiero.training.schedule import learning_rate
from hiero.training.state import differences, load_state, read_about, save_state
from hiero.training.step import Objective, Tokens, TrainStep, make_adam, set_rate
from hiero.training.validation import Score, validate

STATE = "training.safetensors"
WORTH_CAPTURING = 4000  # steps; compiling takes about as long as this many captured ones save
ROOM = 0.6  # share of the free memory of a GPU that data may take


@dataclass(frozen=True)
class Report:
    """Where a run stands, for a progress display."""

    step: int
    num_steps: int
    epoch: int
    lr: float
    alignment: float
    threads: float
    windows_per_s: float


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and has saved what it had."""


def make_fabric(device: str) -> Any:
    """Fabric for this process, or for all processes that torchrun started."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError("training needs lightning-fabric; run: pip install 'hiero[train]'") from None
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


class Training:
    """A run. `vectors` holds the text vectors of windows.texts when the text encoder is frozen; otherwise `text` learns too."""

    def __init__(
        self,
        config: TrainConfig,
        windows: NarratedWindows,
        out: Path,
        fabric: Any,
        *,
        vectors: Tensor | None = None,
        text: TextEncoder | None = None,
        validation: tuple[NarratedWindows, Tensor | None] | None = None,
        capture: bool | Literal["auto"] = "auto",
        save_every_s: float = 300.0,
        log_every: int = 10,
    ) -> None:
        self.config, self.windows, self.out, self.fabric = config, windows, out, fabric
        self.vectors, self.text, self.validation = vectors, text, validation
        self.save_every_s, self.log_every = save_every_s, log_every
        _check(config, windows, fabric.world_size)
        torch.manual_seed(config.seed)
        self.model = HiERO(config.model)
        if config.model.standardise:
            mean, deviation = windows.statistics()
            self.model.standardise(mean, deviation)
        self.num_batches = max(1, len(windows) // config.batch_size)  # in an epoch; an incomplete last one is left out
        self.steps_per_epoch = max(1, self.num_batches // config.accumulate)
        self.num_steps = config.epochs * self.steps_per_epoch
        self.step_number = 0
        self.best: float | None = None
        self.scores: list[dict[str, float]] = []
        self.capture = capture
        self.stop = False

    # The run

    def run(self, *, on_report: Callable[[Report], None] = lambda _: None, say: Callable[[str], None] = lambda _: None) -> None:
        """Take the steps that are left. Call `prepare` first."""
        sums, counted, began, saved = torch.zeros(2, device=self.fabric.device), 0, time.perf_counter(), time.perf_counter()
        with self._stopping(), self._events() as events:
            for batch in self._batches():
                rate = learning_rate(self.step_number, self.num_steps, self.config)
                set_rate(self.optimizer, rate)
                losses = self._take(batch)
                self.step_number += 1
                sums += torch.stack([losses.alignment.detach(), losses.threads.detach()])
                counted += 1
                ends_epoch = self.step_number % self.steps_per_epoch == 0
                if self.step_number % self.log_every == 0 or ends_epoch or self.step_number == self.num_steps:
                    alignment, threads = (sums / counted).tolist()
                    _check_finite(alignment + threads, self.step_number)
                    num_windows = counted * self.config.batch_size * self.config.accumulate
                    report = Report(
                        self.step_number, self.num_steps, (self.step_number - 1) // self.steps_per_epoch + 1, rate,
                        alignment, threads, num_windows / max(time.perf_counter() - began, 1e-9),
                    )  # fmt: skip
                    for name in ("alignment", "threads", "lr", "windows_per_s"):
                        events(f"train/{name}", getattr(report, name), self.step_number)
                    on_report(report)
                    sums.zero_()
                    counted, began = 0, time.perf_counter()
                if ends_epoch and self.validation is not None:
                    self._validate(events, say)
                    began = time.perf_counter()
                self.stop = self._any(self.stop)
                if self.stop or time.perf_counter() - saved > self.save_every_s or self.step_number == self.num_steps:
                    self.save()
                    saved = began = time.perf_counter()
                if self.stop and self.step_number < self.num_steps:
                    raise Stopped

    def prepare(self, *, resume: bool = False, say: Callable[[str], None] = lambda _: None) -> None:
        """Put everything in its place: weights (an earlier run's with `resume`), data, and the step."""
        device = self.fabric.device
        peers = ProcessGroup() if self.fabric.world_size > 1 else None
        if peers is not None:
            for module in self.model.modules():
                if isinstance(module, Dropout):
                    module.part = (peers.rank, peers.num)
        spacing_s = None if self.config.model.behaviour.rounded_times else self.windows.store.clock.spacing_s
        self.objective = Objective(
            self.model,
            self.config.losses,
            spacing_s,
            text=self.text,
            precision=_precision(self.config, device),
            peers=peers,
            noise=self.config.noise,
            jitter=self.config.jitter,
            text_noise=self.config.text_noise,
        )
        self.objective.to(device).train()
        self.optimizer: torch.optim.Optimizer = make_adam(
            self.objective, self.config.lr, self.config.weight_decay, self.config.optimizer
        )
        if resume:
            self.load()
        self.resident: ResidentWindows | None = None
        if device.type == "cuda" and self.vectors is not None:
            free, _ = torch.cuda.mem_get_info(device)
            if self.windows.num_bytes(self.vectors.shape[1]) < ROOM * free:
                self.resident = self.windows.resident(self.vectors, device)
        self.step: TrainStep
        if self._can_capture(say) and self.resident is not None:
            say("compiling and recording the step (about a minute)")
            example = torch.zeros(self.config.batch_size, dtype=torch.long, device=device)
            try:
                self.step = CapturedStep(self.objective, self.optimizer, example, clip=self.config.clip, read=self.resident.read)
                return
            except Exception as error:  # a compiler is missing, memory is short … what is only faster must not end the run
                if self.capture is True:
                    raise
                say(f"steps are not captured: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        wrapped, optimizer = self.fabric.setup(self.objective, self.optimizer, move_to_device=False)
        self.step = TrainStep(wrapped, optimizer, clip=self.config.clip, fabric=self.fabric)

    def _can_capture(self, say: Callable[[str], None]) -> bool:
        if self.capture is False or (self.capture == "auto" and self.num_steps - self.step_number < WORTH_CAPTURING):
            return False
        try:
            if self.resident is None:
                raise InputError("a captured step needs a CUDA GPU with room for the features, and frozen text")
            if self.config.accumulate > 1 or len(self.windows) < self.config.batch_size:
                raise InputError("a captured step takes one full batch at a time")
            check_capturable(self.objective, torch.zeros(1, device=self.fabric.device))
        except InputError as error:
            if self.capture is True:
                raise
            say(f"steps are not captured: {error}")
            return False
        return True

    def _any(self, asked: bool) -> bool:
        """Whether any process was asked to stop: all must do so at the same step, or the others would wait for it forever."""
        if self.fabric.world_size == 1:
            return asked
        flag = torch.tensor(float(asked), device=self.fabric.device)
        torch.distributed.all_reduce(flag)
        return bool(flag > 0)

    def _take(self, batches: list[Any]) -> Losses:
        if isinstance(self.step, CapturedStep):
            return self.step(batches[0])
        if self.resident is not None:
            return self.step(*(self.resident.read(index) for index in batches))
        device = self.fabric.device
        inputs = [batch.to(device) for batch, _ in batches]
        if self.vectors is not None:
            return self.step(*inputs)
        tokens: list[Tokens | None] = [(ids.to(device), mask.to(device)) for _, (ids, mask) in batches]
        return self.step(*inputs, tokens=tokens)

    # Data

    def order(self, epoch: int) -> Tensor:
        """The windows of an epoch in its own random order."""
        seed = (self.config.seed << 20) + epoch
        return torch.randperm(len(self.windows), generator=torch.Generator().manual_seed(seed))

    def _indices(self) -> Iterator[list[Tensor]]:
        """For each step still to take, the windows of its batches."""
        size, many = self.config.batch_size, self.config.accumulate
        order, of_epoch = torch.empty(0), -1
        for number in range(self.step_number, self.num_steps):
            epoch, step = divmod(number, self.steps_per_epoch)
            if epoch != of_epoch:
                order, of_epoch = self.order(epoch), epoch
                if self.resident is not None:
                    order = order.to(self.fabric.device)
            first = [(step * many + i) % self.num_batches * size for i in range(many)]
            chunks = [order[start : start + size] for start in first]
            yield [self._own(chunk) for chunk in chunks] if self.resident is not None else chunks

    def _batches(self) -> Iterator[list[Any]]:
        """Places of windows that are on the device, or batches read by a thread of its own while the last one is worked on."""
        if self.resident is not None:
            yield from self._indices()
            return
        with ThreadPoolExecutor(1) as reader:
            ahead: list[Any] = []
            for index in self._indices():
                ahead.append(reader.submit(self._read, index))
                if len(ahead) > 2:
                    yield ahead.pop(0).result()
            for future in ahead:
                yield future.result()

    def _own(self, chunk: Tensor) -> Tensor:
        """The part of a batch's windows that belongs to this process."""
        rank, own = self.fabric.global_rank, len(chunk) // self.fabric.world_size
        return chunk[rank * own : (rank + 1) * own]

    def _read(self, indices: list[Tensor]) -> list[tuple[StepInputs, Tokens | None]]:
        """The part of each batch that belongs to this process, padded as the whole batch is."""
        out: list[tuple[StepInputs, Tokens | None]] = []
        for index in indices:
            batch = self.windows.read(self._own(index).tolist(), self.windows.shape(index.tolist()))
            if self.vectors is not None:
                out.append((batch.with_vectors(self.vectors), None))
                continue
            assert self.text is not None
            different, places = batch.texts.unique(return_inverse=True)
            tokens = self.text.tokenize([self.windows.texts[i] for i in different.tolist()])
            out.append((batch._replace(texts=places), tokens))
        return out

    # Validation, files

    def _validate(self, events: Callable[[str, float, int], None], say: Callable[[str], None]) -> None:
        assert self.validation is not None
        windows, vectors = self.validation
        if vectors is None:
            assert self.text is not None
            vectors = self.text.encode(windows.texts)
        score: Score = validate(self.objective, windows, vectors, self.config.batch_size)
        epoch = self.step_number // self.steps_per_epoch
        self.scores.append({"epoch": epoch, **score._asdict()})
        for name, value in score._asdict().items():
            events(f"validation/{name}", value, self.step_number)
        better = self.best is None or score.hit > self.best
        say(
            f"epoch {epoch}: validation L_vna {score.alignment:.3f}, L_ft {score.threads:.3f}, "
            f"narration found {100 * score.hit:.1f} %{', best so far' if better else ''}"
        )
        if better:
            self.best = score.hit
            self._save_model(self.out / "best")

    def save(self) -> None:
        """The model, and beside it all that is needed to go on. A model that broke never takes the place of one that works."""
        if not all(bool(p.isfinite().all()) for p in self.objective.parameters()):
            _check_finite(float("nan"), self.step_number)
        if not self.fabric.is_global_zero:
            return
        self._save_model(self.out)
        about = {
            "step": self.step_number, "config": self.config.to_dict(), "data": self._fingerprint,
            "best": self.best, "scores": self.scores,
        }  # fmt: skip
        save_state(self.out / STATE, self.objective, self.optimizer, self.fabric.device, about)

    def load(self) -> None:
        """Go on where a run in the same folder stopped."""
        path = self.out / STATE
        if not path.is_file():
            raise InputError(f"{self.out}: nothing to resume, {STATE} is missing; leave --resume out to begin")
        about = read_about(path)
        if different := differences(about.get("config", {}), self.config.to_dict()):
            raise InputError(f"{self.out}: was begun with other settings ({'; '.join(different)}); resume with the same ones")
        if about.get("data") != self._fingerprint:
            raise InputError(f"{self.out}: was begun on other features or narrations; resume with the same ones")
        load_state(path, self.objective, self.optimizer, self.fabric.device)
        self.step_number, self.best, self.scores = about["step"], about["best"], about["scores"]

    def _save_model(self, folder: Path) -> None:
        if not self.fabric.is_global_zero:
            return
        settings = self.config.to_dict()
        settings.pop("model")
        about: dict[str, Any] = {"name": self.config.text.encoder, "file": None}
        if self.text is not None:
            save_tensors(folder / TEXT_ENCODER, {k: v.clone() for k, v in self.text.plain_state().items()})
            about = {**self.text.describe(), "file": TEXT_ENCODER}
        extra = {
            "losses": self.config.losses.to_dict(), "text_encoder": about,
            "training": {**settings, "steps_done": self.step_number, "data": self.windows.summary(), "validation": self.scores},
        }  # fmt: skip
        write_checkpoint(folder, self.config.model, self.model.state_dict(), extra)

    @cached_property
    def _fingerprint(self) -> str:
        """Names the data of the run: features, windows, narrations, and (a choice of) the text vectors."""
        digest = hashlib.sha256(self.windows.store.digest.encode())
        for windows, vectors in ((self.windows, self.vectors), self.validation or (None, None)):
            if windows is not None:
                digest.update(windows.fingerprint().encode())
            if vectors is not None:
                digest.update(vectors[:: max(1, len(vectors) // 256)].contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()

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


def _check(config: TrainConfig, windows: NarratedWindows, num_processes: int) -> None:
    spacing = windows.store.clock.spacing_s
    if config.model.depth and spacing >= config.model.radius_s:
        raise InputError(
            f"segments are {spacing:g} s apart and model.radius_s is {config.model.radius_s:g}: no segment would have a neighbour; "
            f"try --set model.radius_s={2.5 * spacing:g}"
        )
    if config.batch_size % num_processes:
        raise InputError(f"batch_size {config.batch_size} cannot be divided among {num_processes} processes")
    if len(windows) < num_processes:
        raise InputError(f"{len(windows)} windows are too few for {num_processes} processes")


def _precision(config: TrainConfig, device: torch.device) -> torch.dtype | None:
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else None
    return torch.bfloat16 if config.precision == "bfloat16" else None


def _check_finite(loss: float, step: int) -> None:
    if loss != loss or loss in (float("inf"), float("-inf")):
        raise InputError(
            f"the loss became {loss} near step {step}; the last saved state is kept. "
            "Try a smaller rate (--set lr=…) or --set precision=float32"
        )
