"""Training HiERO from features and narrations: what learns, what a step sees, what is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hiero.config import TrainConfig
from hiero.data.narrated_windows import NarratedWindows, ResidentWindows, TrainingBatch
from hiero.errors import InputError
from hiero.model.hiero import HiERO, Losses
from hiero.model.model_folder import TEXT_ENCODER_FILE
from hiero.model.pretrained import write_model_folder
from hiero.model.stage import SharedDropout
from hiero.storage.files import save_tensors
from hiero.text.encoders import TextEncoder
from hiero.training.captured_step import CapturedStep, check_capturable
from hiero.training.loop import TrainingLoop, autocast_precision
from hiero.training.process_group import ProcessGroup
from hiero.training.step import Objective, Tokens, TrainStep
from hiero.training.validation import validate

WORTH_CAPTURING = 4000  # steps; compiling takes about as long as this many captured ones save
ROOM = 0.6  # share of the free memory of a GPU that data may take


class Training(TrainingLoop):
    """A run. `vectors` holds the text vectors of windows.texts when the text encoder is frozen; otherwise `text` learns too."""

    objective: Objective

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
        spacing = windows.store.clock.spacing_s
        if config.model.depth and spacing >= config.model.radius_s:
            raise InputError(
                f"segments are {spacing:g} s apart and model.radius_s is {config.model.radius_s:g}: no segment would have a "
                f"neighbour; try --set model.radius_s={2.5 * spacing:g}"
            )
        super().__init__(config, len(windows), out, fabric, save_every_s, log_every)
        self.config, self.windows, self.capture = config, windows, capture
        self.vectors, self.text, self.validation = vectors, text, validation
        torch.manual_seed(config.seed)
        self.model = HiERO(config.model)
        if config.model.standardise:
            mean, deviation = windows.statistics()
            self.model.standardise(mean, deviation)

    def prepare(self, *, resume: bool = False, log: Callable[[str], None] = lambda _: None) -> None:
        """Put everything in its place: weights (an earlier run's with `resume`), data, and the step."""
        device = self.fabric.device
        peers = ProcessGroup() if self.fabric.world_size > 1 else None
        if peers is not None:
            for module in self.model.modules():
                if isinstance(module, SharedDropout):
                    module.part = (peers.rank, peers.num)
        spacing_s = None if self.config.model.behaviour.rounded_times else self.windows.store.clock.spacing_s
        objective = Objective(
            self.model,
            self.config.losses,
            spacing_s,
            text=self.text,
            precision=autocast_precision(self.config, device),
            peers=peers,
            noise=self.config.noise,
            jitter=self.config.jitter,
            text_noise=self.config.text_noise,
        )
        self.begin(objective, resume)
        self.resident: ResidentWindows | None = None
        if device.type == "cuda" and self.vectors is not None:
            free, _ = torch.cuda.mem_get_info(device)
            if self.windows.num_bytes(self.vectors.shape[1]) < ROOM * free:
                self.resident = self.windows.resident(self.vectors, device)
        self.step: TrainStep
        if self._can_capture(log) and self.resident is not None:
            log("compiling and recording the step (about a minute)")
            example = torch.zeros(self.config.batch_size, dtype=torch.long, device=device)
            try:
                self.step = CapturedStep(self.objective, self.optimizer, example, clip=self.config.clip, read=self.resident.read)
                return
            except Exception as error:  # a compiler is missing, memory is short … what is only faster must not end the run
                if self.capture is True:
                    raise
                log(f"steps are not captured: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        wrapped, optimizer = self.fabric.setup(self.objective, self.optimizer, move_to_device=False)
        self.step = TrainStep(wrapped, optimizer, clip=self.config.clip, fabric=self.fabric)

    @property
    def on_device(self) -> bool:
        return self.resident is not None

    def _can_capture(self, log: Callable[[str], None]) -> bool:
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
            log(f"steps are not captured: {error}")
            return False
        return True

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

    def _read(self, indices: list[Tensor], number: int) -> list[tuple[TrainingBatch, Tokens | None]]:
        """The part of each batch that belongs to this process, padded as the whole batch is."""
        out: list[tuple[TrainingBatch, Tokens | None]] = []
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

    def _check(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        windows, vectors = self.validation
        if vectors is None:
            assert self.text is not None
            vectors = self.text.encode(windows.texts)
        score = validate(self.objective, windows, vectors, self.config.batch_size)
        return {"narrations found": score.hit, "L_vna": score.alignment, "L_ft": score.threads}

    def _save_model(self, folder: Path) -> None:
        settings = self.config.to_dict()
        settings.pop("model")
        about: dict[str, Any] = {"name": self.config.text.encoder, "file": None}
        if self.text is not None:
            save_tensors(folder / TEXT_ENCODER_FILE, {k: v.clone() for k, v in self.text.plain_state().items()})
            about = {**self.text.describe(), "file": TEXT_ENCODER_FILE}
        extra = {
            "losses": self.config.losses.to_dict(), "text_encoder": about,
            "training": {**settings, "steps_done": self.step_number, "data": self.windows.summary(), "validation": self.scores},
        }  # fmt: skip
        write_model_folder(folder, self.config.model, self.model.state_dict(), extra)

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
