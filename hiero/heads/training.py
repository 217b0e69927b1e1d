"""Training a head on annotated clips, on the loop that HiERO trains on: resume, processes, TensorBoard, presets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hiero.config import override, read_preset
from hiero.errors import InputError
from hiero.evaluation.metrics import grounding_recall, match_detections, mean_average_precision
from hiero.heads.actionformer import ActionFormer, ActionFormerInputs
from hiero.heads.clips import Clips
from hiero.heads.head import CONFIG_FILE, KINDS, WEIGHTS_FILE, HeadConfig, TrainedHead, build_head
from hiero.heads.layers import mean_pool, pad_batch
from hiero.heads.prediction import predict_detections, predict_spans
from hiero.heads.token_embeddings import TokenEmbeddings
from hiero.heads.vslnet import VSLNet, VSLNetInputs
from hiero.storage.files import save_tensors, write_text
from hiero.training.from_files import SilentDisplay
from hiero.training.loop import STATE, TrainingLoop, autocast_precision, make_fabric
from hiero.training.step import TrainStep

SAMPLED = 200  # clips that inputs are standardised by


class HeadObjective(nn.Module):
    def __init__(self, network: VSLNet | ActionFormer, precision: torch.dtype | None) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, batch: Any) -> Any:
        with torch.autocast(batch.video.device.type, dtype=self.precision, enabled=self.precision is not None):
            return self.network.losses(batch)


class HeadTraining(TrainingLoop):
    """Examples are (clip, query) for VSLNet and clips for ActionFormer."""

    def __init__(
        self, config: HeadConfig, clips: Clips, out: Path, fabric: Any, *, words: TokenEmbeddings, labels: list[str],
        validation: Clips | None = None, save_every_s: float = 300.0,
    ) -> None:  # fmt: skip
        self.config, self.clips, self.words, self.labels, self.validation = config, clips, words, labels, validation
        if config.vslnet is not None:
            self.examples = [(i, j) for i, clip in enumerate(clips.clips) for j in range(len(clip.truth))]
        else:
            self.examples = [(i, 0) for i in range(len(clips))]
        super().__init__(config, len(self.examples), out, fabric, save_every_s)
        torch.manual_seed(config.seed)
        self.network = build_head(config)
        sampled = range(0, len(clips), max(1, len(clips) // SAMPLED))
        self.network.standardise.fit(clips.features(i) for i in sampled)
        self._pooled: dict[int, tuple[np.ndarray, int]] = {}

    def prepare(self, resume: bool = False) -> None:
        self.begin(HeadObjective(self.network, autocast_precision(self.config, self.fabric.device)), resume)
        wrapped, optimizer = self.fabric.setup(self.objective, self.optimizer, move_to_device=False)
        self.step = TrainStep(wrapped, optimizer, clip=self.config.clip, fabric=self.fabric)

    def _take(self, batches: Any) -> Any:
        device = self.fabric.device
        return self.step(*(type(batch)(*(part.to(device) for part in batch)) for batch in batches))

    def _read(self, indices: list[Tensor], number: int) -> list[Any]:
        rng = np.random.default_rng([self.config.seed, number])
        return [self._batch([self.examples[i] for i in self._own(index).tolist()], rng) for index in indices]

    def _batch(self, examples: list[tuple[int, int]], rng: np.random.Generator) -> VSLNetInputs | ActionFormerInputs:
        if isinstance(self.network, VSLNet):
            return self._queries(examples, self.network.config.num_positions)
        return self._videos([i for i, _ in examples], self.network, rng)

    def _queries(self, examples: list[tuple[int, int]], most: int) -> VSLNetInputs:
        rows, spans, texts = [], [], []
        for i, j in examples:
            if i not in self._pooled:
                self._pooled[i] = mean_pool(self.clips.features(i), most).astype(np.float32), len(self.clips.features(i))
            row, length = self._pooled[i]
            rows.append(row)
            spans.append(place_span(self.clips.spans(i)[j], length, len(row)))
            texts.append(self.clips.clips[i].truth[j].text)
        video, mask = pad_batch(rows)
        return VSLNetInputs(video, mask, *self.words.batch(texts), torch.tensor(spans))

    def _videos(self, places: list[int], network: ActionFormer, rng: np.random.Generator) -> ActionFormerInputs:
        numbers = {label: k for k, label in enumerate(self.labels)}
        found = []
        for i in places:
            known = np.array([numbers.get(t.text, -1) for t in self.clips.clips[i].truth])
            found.append(crop(self.clips.features(i), self.clips.spans(i), known, network.config.max_length, rng))
        video, mask = pad_batch([x for x, _, _ in found], network.multiple)
        most = max(1, *(len(kept) for _, _, kept in found))
        spans, labels = torch.zeros(len(found), most, 2), torch.full((len(found), most), -1)
        for k, (_, inside, kept) in enumerate(found):
            spans[k, : len(kept)] = torch.from_numpy(inside).float()
            labels[k, : len(kept)] = torch.from_numpy(kept)
        return ActionFormerInputs(video, mask, spans, labels)

    def _check(self) -> dict[str, float]:
        if self.validation is None:
            return {}
        head = TrainedHead(self.network, self.labels)
        self.network.eval()
        try:
            if head.kind == "vslnet":
                predicted, truth, _ = predict_spans(head, self.validation, self.words)
                recall = grounding_recall(predicted, truth)
                return {"R1@.3": recall[0, 0], "R5@.3": recall[0, 1], "R1@.5": recall[1, 0]}
            matched = match_detections(*predict_detections(head, self.validation))
            return {"mAP": float(mean_average_precision(matched).mean())}
        finally:
            self.network.train()

    def _save_model(self, folder: Path) -> None:
        save_tensors(folder / WEIGHTS_FILE, self.network.state_dict())
        clock = {"fps": self.clips.clock.fps, "stride": self.clips.clock.stride}
        about = {
            "head": self.config.to_dict(), "labels": self.labels, "clock": clock, "steps_done": self.step_number,
            "validation": self.scores, "clips": [clip.name for clip in self.clips.clips],
        }  # fmt: skip
        write_text(folder / CONFIG_FILE, json.dumps(about, indent=1) + "\n")

    @cached_property
    def _data(self) -> str:
        digest = hashlib.sha256(json.dumps([self.labels, self.clips.clock.fps, self.clips.clock.stride]).encode())
        for i, clip in enumerate(self.clips.clips):
            digest.update(json.dumps([clip.name, [[t.start_s, t.end_s, t.text] for t in clip.truth]]).encode())
            if i % max(1, len(self.clips) // 16) == 0:
                digest.update(self.clips.features(i).astype(np.float16).tobytes())
        return digest.hexdigest()

    @property
    def _fingerprint(self) -> str:
        return self._data


def place_span(span: np.ndarray, length: int, num: int) -> tuple[int, int]:
    """First and last of `num` positions of a span in segments of a clip of `length`."""
    first = min(num - 1, max(0, int(span[0] * num / length)))
    return first, min(num - 1, max(first, int(np.ceil(span[1] * num / length)) - 1))


def crop(
    x: np.ndarray, spans: np.ndarray, labels: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most `most` segments of a video, at random, and the steps that are mostly inside."""
    start = int(rng.integers(0, max(1, len(x) - most + 1))) if len(x) > most else 0
    end = min(len(x), start + most)
    inside = np.clip(spans, start, end)
    mostly_inside = (
        (inside[:, 1] - inside[:, 0] >= 0.75 * (spans[:, 1] - spans[:, 0])) & (labels >= 0) & (inside[:, 1] > inside[:, 0])
    )
    return x[start:end], inside[mostly_inside] - start, labels[mostly_inside]


def train_head(
    kind: str, clips: Clips, out: Path, *, validation: Clips | None = None, preset: str | None = None, settings: Sequence[str] = (),
    resume: bool = False, device: str = "auto", save_every_s: float = 300.0, words: TokenEmbeddings | None = None,
    display: SilentDisplay | Any = None,
) -> HeadTraining:  # fmt: skip
    """Train a head, and leave it in `out`. See `hiero head train --help`."""
    display = display or SilentDisplay()
    if kind not in KINDS:
        raise InputError(f"a head is one of {', '.join(KINDS)}, got {kind}")
    fabric = make_fabric(device)
    display = display if fabric.is_global_zero else SilentDisplay()
    if (out / STATE).is_file() and not resume:
        raise InputError(f"{out}: holds a run already; go on with it (--resume) or choose another folder")
    labels = clips.texts if kind == "actionformer" else []
    values = override(read_preset(preset or f"heads/{kind}"), settings)
    network = {"input_size": clips.width, **values.get(kind, {})}
    if kind == "actionformer":
        network["num_classes"] = len(labels)
    config = HeadConfig.from_dict({**values, kind: network})
    texts = list(dict.fromkeys([*clips.texts, *(validation.texts if validation is not None else [])]))
    if words is None and kind == "actionformer":
        words = TokenEmbeddings([])
    elif words is None:
        with display.texts(len(texts)) as progress:
            words = TokenEmbeddings(texts, fabric.device, progress)
    training = HeadTraining(
        config, clips, out, fabric, words=words, labels=labels, validation=validation, save_every_s=save_every_s
    )
    num = sum(p.numel() for p in training.network.parameters())
    display.log(f"{len(clips)} clips, {len(training.examples)} examples; {num / 1e6:.2f} M parameters, {training.num_steps} steps")
    out.mkdir(parents=True, exist_ok=True)
    training.prepare(resume)
    with display.steps(training.step_number, training.num_steps):
        training.run(on_report=display.report, log=display.log)
    best = f" (the best at validation is {out / 'best'})" if validation is not None else ""
    display.log(f"{out}: trained{best}; next: hiero head eval {out} --features FEATURES --annotations FILE")
    return training
