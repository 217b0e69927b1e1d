"""Training of a head on annotated clips, with the same loop that trains HiERO."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
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
from hiero.storage.files import save_tensors, write_text
from hiero.training.fabric import autocast_precision
from hiero.training.loop import RunOptions, TrainingLoop, apply_settings, start_run
from hiero.training.step import TrainStep
from hiero.types import format_count

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
    """A training run of a head on examples: parts of clips, whose meaning is that of the network."""

    labels: Sequence[str] = ()
    network: VSLNet | ActionFormer

    def __init__(
        self,
        config: HeadConfig,
        clips: Clips,
        examples: Sequence[Any],
        out: Path,
        fabric: Any,
        validation: Clips | None,
    ) -> None:
        self.config, self.clips, self.examples, self.validation = config, clips, examples, validation
        super().__init__(config, len(examples), out, fabric)
        torch.manual_seed(config.seed)
        self.network = config.build_network()
        chosen = range(0, len(clips), max(1, len(clips) // NUM_STANDARDISED))
        self.network.standardise.fit(clips.features(i) for i in chosen)

    @abstractmethod
    def _batch(self, examples: Sequence[Any], rng: np.random.Generator) -> tuple[Tensor, ...]:
        """The inputs of the network's losses for some examples."""

    @abstractmethod
    def _score(self, head: TrainedHead, clips: Clips) -> dict[str, float]:
        """The scores of the head on validation clips."""

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
        shares = [self._process_share(index).tolist() for index in indices]
        return [self._batch([self.examples[i] for i in share], rng) for share in shares]

    def _validation_scores(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        self.network.eval()
        scores = self._score(TrainedHead(self.network, list(self.labels)), self.validation)
        self.network.train()
        return scores

    def _save_model(self, folder: Path) -> None:
        save_tensors(folder / WEIGHTS_FILE, self.network.state_dict())
        document = {
            "head": self.config.to_dict(),
            "labels": list(self.labels),
            "clock": {"fps": self.clips.clock.fps, "stride": self.clips.clock.stride},
            "steps_done": self.step_number,
            "validation": self.scores,
            "clips": [clip.name for clip in self.clips.clips],
        }
        write_text(folder / CONFIG_FILE, json.dumps(document, indent=1) + "\n")

    @cached_property
    def _fingerprint(self) -> str:
        """Identifies the labels, the clock, the annotations, and the features of some clips."""
        digest = hashlib.sha256(json.dumps([list(self.labels), self.clips.clock.fps, self.clips.clock.stride]).encode())
        for i, clip in enumerate(self.clips.clips):
            steps = [[step.start_s, step.end_s, step.text] for step in clip.truth]
            digest.update(json.dumps([clip.name, steps]).encode())
            if i % max(1, len(self.clips) // NUM_FINGERPRINTED) == 0:
                digest.update(self.clips.features(i).astype(np.float16).tobytes())
        return digest.hexdigest()


class VSLNetTraining(HeadTraining):
    """Training of VSLNet. An example is a clip with one of its queries, by their indices."""

    network: VSLNet

    def __init__(
        self, config: HeadConfig, clips: Clips, out: Path, fabric: Any, validation: Clips | None, texts: TokenEmbeddings
    ) -> None:
        examples = [(i, j) for i, clip in enumerate(clips.clips) for j in range(len(clip.truth))]
        super().__init__(config, clips, examples, out, fabric, validation)
        self.embeddings = texts
        self._pooled: dict[int, tuple[np.ndarray, int]] = {}  # pooled features and original length by clip

    def _batch(self, examples: Sequence[tuple[int, int]], rng: np.random.Generator) -> tuple[Tensor, ...]:
        features, spans, texts = [], [], []
        for i, j in examples:
            if i not in self._pooled:
                x = self.clips.features(i)
                self._pooled[i] = mean_pool(x, self.network.config.num_positions).astype(np.float32), len(x)
            pooled, length = self._pooled[i]
            features.append(pooled)
            spans.append(span_positions(self.clips.spans(i)[j], length, len(pooled)))
            texts.append(self.clips.clips[i].truth[j].text)
        video, mask = pad_batch(features)
        return video, mask, *self.embeddings.batch(texts), torch.tensor(spans)

    def _score(self, head: TrainedHead, clips: Clips) -> dict[str, float]:
        predicted, truth, _ = predict_spans(head, clips, self.embeddings)
        recall = grounding_recall(predicted, truth)
        return {"R1@.3": recall[0, 0], "R5@.3": recall[0, 1], "R1@.5": recall[1, 0]}


class ActionFormerTraining(HeadTraining):
    """Training of ActionFormer. An example is a clip, by its index."""

    network: ActionFormer

    def __init__(self, config: HeadConfig, clips: Clips, out: Path, fabric: Any, validation: Clips | None) -> None:
        super().__init__(config, clips, range(len(clips)), out, fabric, validation)
        self.labels = clips.texts

    def _batch(self, examples: Sequence[int], rng: np.random.Generator) -> tuple[Tensor, ...]:
        label_index = {label: k for k, label in enumerate(self.labels)}
        crops = []
        for i in examples:
            step_labels = np.array([label_index.get(step.text, -1) for step in self.clips.clips[i].truth])
            x, spans = self.clips.features(i), self.clips.spans(i)
            crops.append(random_crop(x, spans, step_labels, self.network.config.max_length, rng))
        video, mask = pad_batch([x for x, _, _ in crops], self.network.multiple)
        max_steps = max(1, *(len(crop_labels) for _, _, crop_labels in crops))
        padded_spans, labels = torch.zeros(len(crops), max_steps, 2), torch.full((len(crops), max_steps), -1)
        for k, (_, crop_spans, crop_labels) in enumerate(crops):
            padded_spans[k, : len(crop_labels)] = torch.from_numpy(crop_spans).float()
            labels[k, : len(crop_labels)] = torch.from_numpy(crop_labels)
        return video, mask, padded_spans, labels

    def _score(self, head: TrainedHead, clips: Clips) -> dict[str, float]:
        matched = match_detections(*predict_detections(head, clips))
        return {"mAP": float(mean_average_precision(matched).mean())}


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
    training: HeadTraining
    if kind == "actionformer":
        training = ActionFormerTraining(config, clips, out, fabric, validation)
    else:
        if embeddings is None:
            texts = list(dict.fromkeys([*clips.texts, *(validation.texts if validation is not None else [])]))
            with display.texts(len(texts)) as progress:
                embeddings = TokenEmbeddings(texts, fabric.device, progress)
        training = VSLNetTraining(config, clips, out, fabric, validation, embeddings)
    num_parameters = sum(p.numel() for p in training.network.parameters()) / 1e6
    sizes = f"{format_count(len(clips), 'clip')}, {format_count(len(training.examples), 'example')}"
    display.log(f"{sizes}, {num_parameters:.2f} M parameters, {training.num_steps} steps")
    training.save_every_s = options.save_every_s
    training.prepare(options.resume)
    training.run_and_log(display, "head", "hiero head eval {} --features FEATURES --annotations FILE")
    return training
