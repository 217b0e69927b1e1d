"""Training HiERO on features and narrations."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from hiero.config import PAPER_OPERATOR, TrainConfig
from hiero.errors import InputError
from hiero.model.hiero import HiERO, write_model_folder
from hiero.model.losses import Losses, Timed, compute_losses
from hiero.model.model_folder import TEXT_ENCODER_FILE
from hiero.model.process_group import ProcessGroup
from hiero.model.unet import SharedDropout
from hiero.networks.text_encoders import MINILM, TextEncoder
from hiero.training.captured_step import CapturedStep, check_capturable
from hiero.training.fabric import autocast_precision
from hiero.training.loop import TrainingLoop
from hiero.training.narrated_windows import NarratedWindows, ResidentWindows, TrainingBatch
from hiero.training.step import Augmentation, Objective, Tokens, TrainStep

MIN_STEPS_TO_CAPTURE = 4000  # compiling takes about as long as this many captured steps save
MAX_DATA_SHARE = 0.6  # share of the free memory of a GPU that data may take
NUM_FINGERPRINT_VECTORS = 256  # text vectors that are hashed

Capture = bool | Literal["auto"]
"""Whether to capture the step. "auto" captures it if the run is long enough to gain from it."""


class HieroTraining(TrainingLoop):
    """A training run of HiERO from windows with narrations to a model folder."""

    objective: Objective

    def __init__(
        self,
        config: TrainConfig,
        windows: NarratedWindows,
        out: Path,
        fabric: Any,
        *,
        text_vectors: Tensor | None = None,
        text_encoder: TextEncoder | None = None,
        validation: tuple[NarratedWindows, Tensor | None] | None = None,
    ) -> None:
        spacing_s = windows.store.clock.spacing_s
        if config.model.depth and spacing_s >= config.model.radius_s:
            raise InputError(
                f"model.radius_s must be above the spacing of segments ({spacing_s:g} s), got "
                f"{config.model.radius_s:g}; try --set model.radius_s={2.5 * spacing_s:g}"
            )
        if text_encoder is None and config.text.encoder != MINILM:
            raise InputError(
                f"text.encoder {config.text.encoder} must be saved with the model, or it could not be used with texts; "
                "pass it: text_encoder=load_text_encoder(config.text)"
            )
        super().__init__(config, len(windows), out, fabric)
        self.config, self.windows = config, windows
        self.text_vectors, self.text_encoder, self.validation = text_vectors, text_encoder, validation
        torch.manual_seed(config.seed)
        self.model = HiERO(config.model)
        if config.model.standardise:
            mean, deviation = windows.statistics()
            self.model.standardise(mean, deviation)

    def prepare(
        self, *, resume: bool = False, capture: Capture = "auto", log: Callable[[str], None] = lambda _: None
    ) -> None:
        """Set up weights, data and the step."""
        device = self.fabric.device
        if (operator := self.config.model.operator) != PAPER_OPERATOR:
            log(f"training runs without GPU kernels, which support the operator {PAPER_OPERATOR} but not {operator}")
        self._setup(self._make_objective(), resume)
        self.resident: ResidentWindows | None = None
        if device.type == "cuda" and self.text_vectors is not None:
            free, _ = torch.cuda.mem_get_info(device)
            if self.windows.num_bytes(self.text_vectors.shape[1]) < MAX_DATA_SHARE * free:
                self.resident = self.windows.resident(self.text_vectors, device)
        self.step = self._capture(capture, log) or TrainStep(
            self.objective, self.optimizer, clip=self.config.clip, fabric=self.fabric
        )

    def _capture(self, capture: Capture, log: Callable[[str], None]) -> CapturedStep | None:
        """The captured step, or None if the run is too short to gain from it or cannot use it."""
        config = self.config
        is_short = self.num_steps - self.step_number < MIN_STEPS_TO_CAPTURE
        if capture is False or (capture == "auto" and (is_short or config.model.operator != PAPER_OPERATOR)):
            return None
        try:
            if self.resident is None:
                raise InputError("--capture needs a CUDA GPU with memory for the features, and a frozen text encoder")
            if config.accumulate > 1 or len(self.windows) < config.batch_size:
                raise InputError("--capture needs accumulate=1 and a full batch of windows")
            example = torch.zeros(config.batch_size, dtype=torch.long, device=self.fabric.device)
            check_capturable(self.objective, example)
            log("compiling the training step (about a minute)")
            read_batch = self.resident.read
            return CapturedStep(self.objective, self.optimizer, example, clip=config.clip, read_batch=read_batch)
        except Exception as error:  # without a compiler or enough memory, train without capturing
            if capture is True:
                raise
            log(f"the training step is not compiled: {(str(error) or type(error).__name__).splitlines()[0]}")
            return None

    def _make_objective(self) -> Objective:
        config = self.config
        peers = ProcessGroup() if self.fabric.world_size > 1 else None
        if peers is not None:
            for module in self.model.modules():
                if isinstance(module, SharedDropout):
                    module.part = (peers.rank, peers.num)
        return Objective(
            self.model,
            config.losses,
            None if config.model.behaviour.rounded_times else self.windows.store.clock.spacing_s,
            text=self.text_encoder if self.text_vectors is None else None,  # a frozen one has no part in the step
            precision=autocast_precision(config, self.fabric.device),
            peers=peers,
            augmentation=Augmentation(config.noise, config.jitter, config.text_noise),
        )

    @property
    def data_on_device(self) -> bool:
        return self.resident is not None

    def _train_step(self, batches: list[Any]) -> Losses:
        if isinstance(self.step, CapturedStep):
            return self.step(batches[0])
        if self.resident is not None:
            return self.step(*(self.resident.read(index) for index in batches))
        device = self.fabric.device
        inputs = [batch.to(device) for batch, _ in batches]
        if self.text_vectors is not None:
            return self.step(*inputs)
        tokens: list[Tokens | None] = [(ids.to(device), mask.to(device)) for _, (ids, mask) in batches]
        return self.step(*inputs, tokens=tokens)

    def _read_batches(self, indices: list[Tensor], step_number: int) -> list[tuple[TrainingBatch, Tokens | None]]:
        """Read this process's share of each batch, padded like the whole batch so that processes can exchange it."""
        out: list[tuple[TrainingBatch, Tokens | None]] = []
        for index in indices:
            batch = self.windows.read(self._process_share(index).tolist(), self.windows.shape(index.tolist()))
            if self.text_vectors is not None:
                out.append((batch.with_vectors(self.text_vectors), None))
                continue
            assert self.text_encoder is not None
            # Each distinct text is encoded once.
            unique_texts, inverse = batch.texts.unique(return_inverse=True)
            tokens = self.text_encoder.tokenize([self.windows.texts[i] for i in unique_texts.tolist()])
            out.append((batch._replace(texts=inverse), tokens))
        return out

    def _validation_scores(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        windows, text_vectors = self.validation
        if text_vectors is None:
            assert self.text_encoder is not None
            text_vectors = self.text_encoder.encode(windows.texts)
        return validate(self.objective, windows, text_vectors, self.config.batch_size)

    def _save_model(self, folder: Path) -> None:
        training = {**self.config.to_dict(), "steps_done": self.step_number, "data": self.windows.summary()}
        training["validation"], training["videos"] = self.scores, sorted({w.video for w in self.windows.windows})
        del training["model"]
        if self.text_encoder is not None:
            text_encoder = self.text_encoder.save(folder)
        else:
            text_encoder = {"name": self.config.text.encoder, "file": None}
            (folder / TEXT_ENCODER_FILE).unlink(missing_ok=True)  # of another model in this folder
        extra = {"losses": self.config.losses.to_dict(), "text_encoder": text_encoder, "training": training}
        write_model_folder(folder, self.config.model, self.model.state_dict(), extra)

    @cached_property
    def _fingerprint(self) -> str:
        """Hash of features, windows, narrations, and evenly chosen text vectors."""
        digest = hashlib.sha256(self.windows.store.digest.encode())
        for windows, text_vectors in ((self.windows, self.text_vectors), self.validation or (None, None)):
            if windows is not None:
                digest.update(windows.fingerprint().encode())
            if text_vectors is not None:
                step = max(1, len(text_vectors) // NUM_FINGERPRINT_VECTORS)
                digest.update(text_vectors[::step].contiguous().cpu().numpy().tobytes())
        return digest.hexdigest()


@torch.no_grad()
def validate(
    objective: Objective, windows: NarratedWindows, text_vectors: Tensor, batch_size: int = 8
) -> dict[str, float]:
    """The share of narrations that are found in held-out windows, and the losses.

    A narration is found if its best node is near it, or near another one of the window with the same text. The
    network and the random state stay as they are.
    """
    model, config = objective.model, objective.losses
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    loss_sums = torch.zeros(2, dtype=torch.float64)
    num_hits = num_narrations = 0
    starts = range(0, len(windows), batch_size)
    for start in starts:
        batch = windows.read(range(start, min(start + batch_size, len(windows)))).to(device)
        x = batch.with_vectors(text_vectors.to(device))
        with torch.autocast(device.type, dtype=objective.precision, enabled=objective.precision is not None):
            levels = model.forward_unchecked(x.features, x.mask, x.times, objective.spacing_s, threads=True)
            losses = compute_losses(model, levels, Timed(x.texts, x.text_times, x.text_mask), config)
            similarity = model.embed_text(x.texts) @ model.embed_video(levels[0].features).mT  # (B, M, T)
        loss_sums += torch.stack([losses.alignment, losses.threads]).double().cpu()
        best_node = similarity.float().masked_fill(~x.mask[:, None], -torch.inf).argmax(2)
        distance_s = (x.times.gather(1, best_node)[:, :, None] - x.text_times[:, None]).abs()  # (B, M, M)
        is_same = (batch.texts[:, :, None] == batch.texts[:, None]) & x.text_mask[:, None]
        num_hits += int((((distance_s <= 1 / config.alpha) & is_same).any(2) & x.text_mask).sum())
        num_narrations += int(x.text_mask.sum())
    model.train(was_training)
    alignment, threads = (loss_sums / len(starts)).tolist()
    return {"narrations found": num_hits / max(1, num_narrations), "L_vna": alignment, "L_ft": threads}
