"""Training a head on annotated clips, on the loop that HiERO trains on: resume, processes, TensorBoard, presets."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hiero import weights
from hiero.bench.metrics import Detections, grounding_recall, match_detections, mean_average_precision
from hiero.cache import cache_folder, keep, kept_before
from hiero.config import Record, override, read_preset
from hiero.errors import InputError
from hiero.files import load_arrays, load_tensors, save_arrays, save_tensors, write_text
from hiero.heads.actionformer import ActionFormer, ActionFormerConfig, ActionFormerInputs
from hiero.heads.clips import Clips
from hiero.heads.layers import pad_batch
from hiero.heads.vslnet import VSLNet, VSLNetConfig, VSLNetInputs, best_spans
from hiero.records import Clock
from hiero.text.minilm import KEY, MiniLM
from hiero.training.loop import STATE, Loop, autocast_precision, make_fabric
from hiero.training.run import Quiet
from hiero.training.step import TrainStep

Kind = Literal["vslnet", "actionformer"]
KINDS: tuple[Kind, ...] = ("vslnet", "actionformer")
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SAMPLED = 200  # clips that inputs are standardised by


@dataclass(frozen=True)
class HeadConfig(Record):
    """A run. One of the two networks is there."""

    vslnet: VSLNetConfig | None = None
    actionformer: ActionFormerConfig | None = None
    epochs: int = 30
    batch_size: int = 32
    accumulate: int = 1
    lr: float = 1e-3
    min_lr: float = 1e-8
    warmup_epochs: float = 1.0
    warmup_factor: float = 0.001
    optimizer: Literal["adam", "adamw"] = "adamw"
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    seed: int = 0

    _nested: ClassVar[dict[str, Any]] = {"vslnet": VSLNetConfig.from_dict, "actionformer": ActionFormerConfig.from_dict}

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulate"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.lr > 0 or not self.clip > 0:
            raise InputError(f"lr and clip must be positive, got {self.lr} and {self.clip}")
        if self.precision not in ("auto", "float32", "bfloat16") or self.optimizer not in ("adam", "adamw"):
            raise InputError(
                f"precision is auto, float32 or bfloat16 and optimizer adam or adamw, got {self.precision}, {self.optimizer}"
            )
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be between 0 and 2³¹, got {self.seed}")

    @property
    def kind(self) -> Kind:
        return "vslnet" if self.vslnet is not None else "actionformer"


@dataclass
class Head:
    """A trained head: its network, the labels that it knows (ActionFormer), and the clock of the features that it learned from."""

    network: VSLNet | ActionFormer
    labels: list[str]
    clock: Clock | None = None
    config: HeadConfig | None = None
    trained_on: frozenset[str] = frozenset()
    """Names of the clips that it learned from."""

    @property
    def kind(self) -> Kind:
        return "vslnet" if isinstance(self.network, VSLNet) else "actionformer"


class Words:
    """Token vectors of texts, encoded once and kept for the next run with the same texts."""

    def __init__(
        self, texts: Sequence[str], device: str | torch.device = "cpu", progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self.vectors: dict[str, np.ndarray] = {}
        texts = sorted(set(texts))
        if not texts:
            return
        named = hashlib.sha256("\0".join([KEY, *texts]).encode()).hexdigest()[:32]
        kept = cache_folder("words") / f"{named}.safetensors"
        held = kept_before(kept, load_arrays)
        if held is None:
            model = MiniLM(weights.get("minilm")).to(device)
            rows: list[np.ndarray] = []
            for start in range(0, len(texts), 512):
                rows += [row.astype(np.float16) for row in model.encode_words(texts[start : start + 512])]
                progress(min(512, len(texts) - start))
            held = {"vectors": np.concatenate(rows), "ends": np.cumsum([len(row) for row in rows])}
            keep(functools.partial(save_arrays, kept, held))
        self.vectors = dict(zip(texts, np.split(held["vectors"], held["ends"][:-1]), strict=True))

    def batch(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        return pad_batch([self.vectors[text] for text in texts])


def pool(x: np.ndarray, most: int) -> np.ndarray:
    """Features (T, D) as means over at most `most` equal parts."""
    if len(x) <= most:
        return x
    edges = np.linspace(0, len(x), most + 1).round().astype(int)
    return np.asarray(np.add.reduceat(x, edges[:-1], axis=0) / np.diff(edges)[:, None])


class Objective(nn.Module):
    def __init__(self, network: VSLNet | ActionFormer, precision: torch.dtype | None) -> None:
        super().__init__()
        self.network, self.precision = network, precision

    def forward(self, batch: Any) -> Any:
        with torch.autocast(batch.video.device.type, dtype=self.precision, enabled=self.precision is not None):
            return self.network.losses(batch)


class HeadTraining(Loop):
    """Examples are (clip, query) for VSLNet and clips for ActionFormer."""

    def __init__(
        self, config: HeadConfig, clips: Clips, out: Path, fabric: Any, *, words: Words, labels: list[str],
        validation: Clips | None = None, save_every_s: float = 300.0,
    ) -> None:  # fmt: skip
        self.config, self.clips, self.words, self.labels, self.validation = config, clips, words, labels, validation
        if config.vslnet is not None:
            self.examples = [(i, j) for i, clip in enumerate(clips.clips) for j in range(len(clip.truth))]
        else:
            self.examples = [(i, 0) for i in range(len(clips))]
        super().__init__(config, len(self.examples), out, fabric, save_every_s)
        torch.manual_seed(config.seed)
        self.network = build(config)
        sampled = range(0, len(clips), max(1, len(clips) // SAMPLED))
        self.network.standardise.fit(clips.features(i) for i in sampled)
        self._pooled: dict[int, tuple[np.ndarray, int]] = {}

    def prepare(self, resume: bool = False) -> None:
        self.begin(Objective(self.network, autocast_precision(self.config, self.fabric.device)), resume)
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
                self._pooled[i] = pool(self.clips.features(i), most).astype(np.float32), len(self.clips.features(i))
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
        head = Head(self.network, self.labels)
        self.network.eval()
        try:
            if head.kind == "vslnet":
                predicted, truth, _ = ground(head, self.validation, self.words)
                recall = grounding_recall(predicted, truth)
                return {"R1@.3": recall[0, 0], "R5@.3": recall[0, 1], "R1@.5": recall[1, 0]}
            matched = match_detections(*detect(head, self.validation))
            return {"mAP": float(mean_average_precision(matched).mean())}
        finally:
            self.network.train()

    def _save_model(self, folder: Path) -> None:
        save_tensors(folder / WEIGHTS, self.network.state_dict())
        clock = {"fps": self.clips.clock.fps, "stride": self.clips.clock.stride}
        about = {
            "head": self.config.to_dict(), "labels": self.labels, "clock": clock, "steps_done": self.step_number,
            "validation": self.scores, "clips": [clip.name for clip in self.clips.clips],
        }  # fmt: skip
        write_text(folder / CONFIG, json.dumps(about, indent=1) + "\n")

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
    keep = (inside[:, 1] - inside[:, 0] >= 0.75 * (spans[:, 1] - spans[:, 0])) & (labels >= 0) & (inside[:, 1] > inside[:, 0])
    return x[start:end], inside[keep] - start, labels[keep]


def build(config: HeadConfig) -> VSLNet | ActionFormer:
    if config.vslnet is not None:
        return VSLNet(config.vslnet)
    if config.actionformer is not None:
        return ActionFormer(config.actionformer)
    raise InputError("a head is vslnet or actionformer")


def load_head(folder: Path, device: str = "cpu") -> Head:
    """A head from its folder."""
    try:
        about = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        config = HeadConfig.from_dict(about["head"])
        network = build(config)
        network.load_state_dict(load_tensors(folder / WEIGHTS))
        clock = Clock(**about["clock"])
    except FileNotFoundError as error:
        raise InputError(f"{folder}: not the folder of a head ({Path(error.filename).name} is missing)") from None
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{folder}: not the folder of a head ({error})") from error
    return Head(network.to(device).eval(), about.get("labels", []), clock, config, frozenset(about.get("clips", [])))


@torch.inference_mode()
def ground(head: Head, clips: Clips, words: Words, num: int = 5) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """VSLNet's best spans in seconds for each query of each clip, the true spans (Q, 2), and the clip of each (Q,)."""
    network = head.network
    assert isinstance(network, VSLNet)
    device = next(network.parameters()).device
    predicted: list[np.ndarray] = []
    truth, owner = [], []
    for i, clip in enumerate(clips.clips):
        features = clips.features(i)
        row = torch.from_numpy(pool(features, network.config.num_positions).astype(np.float32)).to(device)
        step = len(features) * clips.clock.spacing_s / len(row)
        for start in range(0, len(clip.truth), 256):
            part = clip.truth[start : start + 256]
            inputs = words.batch([t.text for t in part])
            video = row.expand(len(part), -1, -1)
            seen = torch.ones(video.shape[:2], dtype=torch.bool, device=device)
            first, last, _ = network(video, seen, *(x.to(device) for x in inputs))
            places, _ = best_spans(first, last, num)
            spans = places.cpu().numpy() + np.array([0.0, 1.0])
            predicted += list(clips.first_s(i) + spans * step)
            truth += [[t.start_s, t.end_s] for t in part]
            owner += [i] * len(part)
    return predicted, np.array(truth), np.array(owner)


def detect(head: Head, clips: Clips) -> tuple[list[Detections], list[Detections]]:
    """True and found steps of each clip, in seconds. Labels that the head does not know are true all the same."""
    network = head.network
    assert isinstance(network, ActionFormer)
    device = next(network.parameters()).device
    places = {label: k for k, label in enumerate([*head.labels, *(t for t in clips.texts if t not in head.labels)])}
    truth, found = [], []
    for i, clip in enumerate(clips.clips):
        spans = np.array([[t.start_s, t.end_s] for t in clip.truth])
        truth.append(Detections(spans, np.array([places[t.text] for t in clip.truth]), np.zeros(len(spans))))
        boxes, scores, labels = network.detect(torch.from_numpy(clips.features(i)).to(device))
        found.append(Detections(clips.first_s(i) + boxes * clips.clock.spacing_s, labels, scores))
    return truth, found


def train_head(
    kind: str, clips: Clips, out: Path, *, validation: Clips | None = None, preset: str | None = None, settings: Sequence[str] = (),
    resume: bool = False, device: str = "auto", save_every_s: float = 300.0, words: Words | None = None,
    display: Quiet | Any = None,
) -> HeadTraining:  # fmt: skip
    """Train a head, and leave it in `out`. See `hiero head train --help`."""
    display = display or Quiet()
    if kind not in KINDS:
        raise InputError(f"a head is one of {', '.join(KINDS)}, got {kind}")
    fabric = make_fabric(device)
    display = display if fabric.is_global_zero else Quiet()
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
        words = Words([])
    elif words is None:
        with display.texts(len(texts)) as progress:
            words = Words(texts, fabric.device, progress)
    training = HeadTraining(
        config, clips, out, fabric, words=words, labels=labels, validation=validation, save_every_s=save_every_s
    )
    num = sum(p.numel() for p in training.network.parameters())
    display.say(f"{len(clips)} clips, {len(training.examples)} examples; {num / 1e6:.2f} M parameters, {training.num_steps} steps")
    out.mkdir(parents=True, exist_ok=True)
    training.prepare(resume)
    with display.steps(training.step_number, training.num_steps):
        training.run(on_report=display.report, say=display.say)
    best = f" (the best at validation is {out / 'best'})" if validation is not None else ""
    display.say(f"{out}: trained{best}; next: hiero head eval {out} --features FEATURES --annotations FILE")
    return training
