"""One training step: forward, both losses, backward, clipping, Adam."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hiero.config import LossConfig, RunConfig
from hiero.model.hiero import HiERO
from hiero.model.losses import Losses, Timed, compute_losses
from hiero.model.process_group import ProcessGroup
from hiero.training.narrated_windows import TrainingBatch

Tokens = tuple[Tensor, Tensor]
"""Token ids and their mask, (texts, L) each."""


@dataclass(frozen=True)
class Augmentation:
    """Random changes to the inputs in training, as `TrainConfig` describes them."""

    noise: float = 0.0
    jitter: float = 0.0
    text_noise: float = 0.0


class Objective(nn.Module):
    """The losses of a batch. It holds all trained modules: the network and, unless frozen, the text tower."""

    def __init__(
        self,
        model: HiERO,
        losses: LossConfig,
        spacing_s: float | None,
        *,
        text: nn.Module | None = None,
        precision: torch.dtype | None = None,
        peers: ProcessGroup | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        super().__init__()
        self.model, self.text = model, text
        self.losses, self.spacing_s, self.precision, self.peers = losses, spacing_s, precision, peers
        self.augmentation = augmentation or Augmentation()

    def forward(self, x: TrainingBatch, tokens: Tokens | None = None) -> Losses:
        with torch.autocast(x.features.device.type, dtype=self.precision, enabled=self.precision is not None):
            if tokens is not None and self.text is not None:
                x = x.with_vectors(self.text(*tokens))
            levels = self.model.forward_unchecked(
                self._augment(x.features), x.mask, x.times, self.spacing_s, threads=True
            )
            texts = x.texts
            text_noise = self.augmentation.text_noise
            if text_noise and self.training:
                texts = texts + text_noise / texts.shape[-1] ** 0.5 * self._randn(texts.shape, texts.device)
            narrations = Timed(texts, x.text_times, x.text_mask)
            return compute_losses(self.model, levels, narrations, self.losses, self.peers)

    def _augment(self, features: Tensor) -> Tensor:
        if not self.training:
            return features
        noise, jitter = self.augmentation.noise, self.augmentation.jitter
        if jitter:
            stretch = jitter * self._randn((len(features), 1, features.shape[2]), features.device)
            features = features * stretch.exp()
        if noise:
            scale = self.model.input_scale if self.model.config.standardise else features.new_ones(())
            deviation = torch.where(scale > 0, 1 / scale, 0.0)  # a channel with scale 0 is off and gets no noise
            features = features + noise * deviation * self._randn(features.shape, features.device)
        return features

    def _randn(self, shape: Sequence[int], device: torch.device) -> Tensor:
        """Normal numbers for this process's part of the batch."""
        # Every process draws for the whole batch, so that the numbers do not depend on the number of processes.
        rank, world_size = (self.peers.rank, self.peers.num) if self.peers is not None else (0, 1)
        return torch.randn(world_size * shape[0], *shape[1:], device=device)[rank * shape[0] : (rank + 1) * shape[0]]


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Weight decay for matrices, none for 1-d parameters."""
    decayed = [p for p in module.parameters() if p.requires_grad and p.ndim > 1]
    free = [p for p in module.parameters() if p.requires_grad and p.ndim <= 1]
    return [{"params": free, "weight_decay": 0.0}, {"params": decayed, "weight_decay": weight_decay}]


def make_adam(module: nn.Module, lr: float = 1e-5, weight_decay: float = 1e-5, kind: str = "adam") -> torch.optim.Adam:
    """The paper's Adam, or AdamW; fused."""
    device = next(module.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if cuda else lr  # a captured step reads this tensor
    optimizer_class = torch.optim.AdamW if kind == "adamw" else torch.optim.Adam
    return optimizer_class(parameter_groups(module, weight_decay), lr=rate, fused=True, capturable=cuda)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the rate of all groups. A tensor is changed in place, because a captured step reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def learning_rate(step: int, num_steps: int, config: RunConfig) -> float:
    """Learning rate of a step: linear from warmup_factor · lr to lr, then a cosine to min_lr."""
    warmup_steps = config.warmup_epochs * num_steps / config.epochs
    if step < warmup_steps:
        return config.lr * (config.warmup_factor + (1 - config.warmup_factor) * step / warmup_steps)
    progress = (step - warmup_steps) / max(1.0, num_steps - warmup_steps)
    return config.min_lr + (config.lr - config.min_lr) * (1 + math.cos(math.pi * min(1.0, progress))) / 2


class TrainStep:
    """The plain training step. Gradients of several batches are averaged.

    With a Fabric, several processes work on each batch, and exchange their gradients.
    """

    def __init__(
        self, objective: nn.Module, optimizer: torch.optim.Optimizer, *, clip: float = 1.0, fabric: Any = None
    ) -> None:
        if fabric is not None:
            objective, optimizer = fabric.setup(objective, optimizer, move_to_device=False)
        self.objective, self.optimizer, self.clip, self.fabric = objective, optimizer, clip, fabric

    def __call__(self, *batches: TrainingBatch, tokens: list[Tokens | None] | None = None) -> Losses:
        """Update the weights and return the losses of the last batch."""
        self.optimizer.zero_grad(set_to_none=True)
        for i, batch in enumerate(batches):
            # Processes exchange gradients once, at the last batch.
            accumulating = self.fabric is not None and i + 1 < len(batches)
            with self.fabric.no_backward_sync(self.objective) if accumulating else nullcontext():
                losses = self.objective(batch, tokens[i]) if tokens is not None else self.objective(batch)
                total = losses.total / len(batches)
                self.fabric.backward(total) if self.fabric is not None else total.backward()
        nn.utils.clip_grad_norm_(self.objective.parameters(), self.clip)
        self.optimizer.step()
        return losses
