"""Training of a head on annotated clips, with the same loop that trains HiERO."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hiero.config import read_preset
from hiero.errors import InputError
from hiero.evaluation.heads.actionformer import ActionFormer
from hiero.evaluation.heads.clips import Clips
from hiero.evaluation.heads.head import CONFIG_FILE, KINDS, WEIGHTS_FILE, HeadConfig, TrainedHead
from hiero.evaluation.heads.layers import mean_pool, pad_batch
from hiero.evaluation.heads.scoring import predict_detections, predict_spans
from hiero.evaluation.heads.token_embeddings import TokenEmbeddings
from hiero.evaluation.heads.vslnet import VSLNet
from hiero.evaluation.metrics import grounding_recall, match_detections, mean_average_precision
from hiero.formatting import format_count
from hiero.storage.files import save_tensors, write_text
from hiero.training.fabric import autocast_precision
from hiero.training.loop import RunOptions, TrainingLoop, apply_settings, start_run
from hiero.training.step import TrainStep

NUM_STANDARDISED = 200  # approximate number of clips used for the mean and scale of the inputs
NUM_FINGERPRINTED = 16  # approximate number of clips whose features identify the data
MIN_INSIDE = 0.75  # smallest share of a step that must be inside a crop


class HeadObjective(nn.Module):
    """The losses of the network for a batch of inputs."""

    def __init__(self, network: VSLNet | ActionFormer, precision: torch.dtype | None) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, batch: tuple[Tensor, ...]) -> Any:
        with torch.autocast(batch[0].device.type, dtype=self.precision, enabled=self.precision is not None):
            return self.network.losses(*batch)


class HeadTraining(TrainingLoop):
    """A training run of a head. An example is a (clip, query) pair for VSLNet and a whole clip for ActionFormer."""

    def __init__(
        self,
        config: HeadConfig,
        clips: Clips,
        out: Path,
        fabric: Any,
        embeddings: TokenEmbeddings,
        validation: Clips | None,
    ) -> None:
        self.config, self.clips, self.validation, self.embeddings = config, clips, validation, embeddings
        self.labels = clips.texts if config.actionformer is not None else []
        if config.vslnet is not None:
            self.examples = [(i, j) for i, clip in enumerate(clips.clips) for j in range(len(clip.truth))]
        else:
            self.examples = [(i, 0) for i in range(len(clips))]
        super().__init__(config, len(self.examples), out, fabric)
        torch.manual_seed(config.seed)
        self.network = config.build_network()
        chosen = range(0, len(clips), max(1, len(clips) // NUM_STANDARDISED))
        self.network.standardise.fit(clips.features(i) for i in chosen)
        self._pooled: dict[int, tuple[np.ndarray, int]] = {}  # pooled features and original length by clip

    def prepare(self, resume: bool = False) -> None:
        """Set up the weights and the training step, or load them from the folder with `resume`."""
        self._setup(HeadObjective(self.network, autocast_precision(self.config, self.fabric.device)), resume)
        self.step: Callable[..., Any] = TrainStep(
            self.objective, self.optimizer, clip=self.config.clip, fabric=self.fabric
        )

    def _train_step(self, batches: Any) -> Any:
        device = self.fabric.device
        return self.step(*(tuple(tensor.to(device) for tensor in batch) for batch in batches))

    def _read_batches(self, indices: list[Tensor], step_number: int) -> list[tuple[Tensor, ...]]:
        rng = np.random.default_rng([self.config.seed, step_number])
        batches: list[tuple[Tensor, ...]] = []
        for index in indices:
            examples = [self.examples[i] for i in self._process_share(index).tolist()]
            if isinstance(self.network, VSLNet):
                batches.append(self._vslnet_batch(examples, self.network.config.num_positions))
            else:
                batches.append(self._actionformer_batch([i for i, _ in examples], self.network, rng))
        return batches

    def _vslnet_batch(self, examples: list[tuple[int, int]], num_positions: int) -> tuple[Tensor, ...]:
        features, spans, texts = [], [], []
        for i, j in examples:
            if i not in self._pooled:
                x = self.clips.features(i)
                self._pooled[i] = mean_pool(x, num_positions).astype(np.float32), len(x)
            pooled, length = self._pooled[i]
            features.append(pooled)
            spans.append(span_positions(self.clips.spans(i)[j], length, len(pooled)))
            texts.append(self.clips.clips[i].truth[j].text)
        video, mask = pad_batch(features)
        return video, mask, *self.embeddings.batch(texts), torch.tensor(spans)

    def _actionformer_batch(
        self, clip_indices: list[int], network: ActionFormer, rng: np.random.Generator
    ) -> tuple[Tensor, ...]:
        label_index = {label: k for k, label in enumerate(self.labels)}
        max_length = network.config.max_length
        crops = []
        for i in clip_indices:
            step_labels = np.array([label_index.get(step.text, -1) for step in self.clips.clips[i].truth])
            crops.append(random_crop(self.clips.features(i), self.clips.spans(i), step_labels, max_length, rng))
        video, mask = pad_batch([x for x, _, _ in crops], network.multiple)
        max_steps = max(1, *(len(crop_labels) for _, _, crop_labels in crops))
        spans, labels = torch.zeros(len(crops), max_steps, 2), torch.full((len(crops), max_steps), -1)
        for k, (_, crop_spans, crop_labels) in enumerate(crops):
            spans[k, : len(crop_labels)] = torch.from_numpy(crop_spans).float()
            labels[k, : len(crop_labels)] = torch.from_numpy(crop_labels)
        return video, mask, spans, labels

    def _validation_scores(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        head = TrainedHead(self.network, self.labels)
        self.network.eval()
        if isinstance(self.network, VSLNet):
            predicted, truth, _ = predict_spans(head, self.validation, self.embeddings)
            recall = grounding_recall(predicted, truth)
            scores = {"R1@.3": recall[0, 0], "R5@.3": recall[0, 1], "R1@.5": recall[1, 0]}
        else:
            matched = match_detections(*predict_detections(head, self.validation))
            scores = {"mAP": float(mean_average_precision(matched).mean())}
        self.network.train()
        return scores

    def _save_model(self, folder: Path) -> None:
        save_tensors(folder / WEIGHTS_FILE, self.network.state_dict())
        document = {
            "head": self.config.to_dict(),
            "labels": self.labels,
            "clock": {"fps": self.clips.clock.fps, "stride": self.clips.clock.stride},
            "steps_done": self.step_number,
            "validation": self.scores,
            "clips": [clip.name for clip in self.clips.clips],
        }
        write_text(folder / CONFIG_FILE, json.dumps(document, indent=1) + "\n")

    @cached_property
    def _fingerprint(self) -> str:
        """Identifies the labels, the clock, the annotations, and the features of some clips."""
        digest = hashlib.sha256(json.dumps([self.labels, self.clips.clock.fps, self.clips.clock.stride]).encode())
        for i, clip in enumerate(self.clips.clips):
            steps = [[step.start_s, step.end_s, step.text] for step in clip.truth]
            digest.update(json.dumps([clip.name, steps]).encode())
            if i % max(1, len(self.clips) // NUM_FINGERPRINTED) == 0:
                digest.update(self.clips.features(i).astype(np.float16).tobytes())
        return digest.hexdigest()


def span_positions(span: np.ndarray, length: int, num_positions: int) -> tuple[int, int]:
    """First and last position of a span, given in segments, in a pooled clip."""
    first = min(num_positions - 1, max(0, int(span[0] * num_positions / length)))
    return first, min(num_positions - 1, max(first, int(np.ceil(span[1] * num_positions / length)) - 1))


def random_crop(
    x: np.ndarray, spans: np.ndarray, labels: np.ndarray, max_length: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Crop a long video at random and keep the steps that are mostly inside."""
    start = int(rng.integers(0, len(x) - max_length + 1)) if len(x) > max_length else 0
    end = min(len(x), start + max_length)
    inside = np.clip(spans, start, end)
    length, inside_length = spans[:, 1] - spans[:, 0], inside[:, 1] - inside[:, 0]
    selected = (inside_length >= MIN_INSIDE * length) & (labels >= 0) & (inside_length > 0)
    return x[start:end], inside[selected] - start, labels[selected]


def train_head(
    kind: str,
    clips: Clips,
    out: Path,
    *,
    validation: Clips | None = None,
    preset: str | None = None,
    settings: Sequence[str] = (),
    embeddings: TokenEmbeddings | None = None,
    options: RunOptions | None = None,
) -> HeadTraining:
    """Train a head and save it in a folder, like `hiero head train`."""
    options = options or RunOptions()
    if kind not in KINDS:
        raise InputError(f"the head must be one of {', '.join(KINDS)}, got {kind}")
    fabric, display = start_run(out, options)
    values = apply_settings(read_preset(preset or f"heads/{kind}"), settings, HeadConfig, display.log)
    network = {"input_size": clips.width, **values.get(kind, {})}
    if kind == "actionformer":
        network["num_classes"] = len(clips.texts)
    config = HeadConfig.from_dict({**values, kind: network})
    if embeddings is None and kind == "actionformer":
        embeddings = TokenEmbeddings([])
    elif embeddings is None:
        texts = list(dict.fromkeys([*clips.texts, *(validation.texts if validation is not None else [])]))
        with display.texts(len(texts)) as progress:
            embeddings = TokenEmbeddings(texts, fabric.device, progress)
    training = HeadTraining(config, clips, out, fabric, embeddings, validation)
    num_parameters = sum(p.numel() for p in training.network.parameters()) / 1e6
    sizes = f"{format_count(len(clips), 'clip')}, {format_count(len(training.examples), 'example')}"
    display.log(f"{sizes}, {num_parameters:.2f} M parameters, {training.num_steps} steps")
    training.save_every_s = options.save_every_s
    training.prepare(options.resume)
    training.run_and_log(display, "head", "hiero head eval {} --features FEATURES --annotations FILE")
    return training
