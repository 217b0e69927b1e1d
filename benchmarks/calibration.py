"""How often answers are right that hiero gives a probability: in `ask`, `search`, `--labels` and `--like`.

    python -m benchmarks.calibration features SOURCE --model MODEL
        feature files, without pictures: CaptainCook4D. MODEL was trained without the recordings that
        `python -m benchmarks.captaincook4d train WORK --part test` holds out; only those are used
    python -m benchmarks.calibration clips CLIPS
        videos, with pictures: clips named after what they show, and procedures with timed steps

Videos are divided into two halves by their names. The numbers of `hiero.steps.calibration` are
fitted on the development half, and the tables are about the other half. Texts that are shown and
texts that are not are asked equally often.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import expit

import hiero
from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, read_features, share, split
from benchmarks.words_score import CAPTIONS, fit_logistic
from hiero.engine import Video
from hiero.steps import calibration
from hiero.steps.correspondence import correspondence
from hiero.steps.grounding import score_spans
from hiero.steps.similarity import presence_statistics
from hiero.types import Step
from hiero.vectors import unit_vectors

NUM_HITS = 5  # hits of a search that are judged
NUM_LIKE = 20  # hits of `--like` that are judged
NUM_BINS = 10
MIN_OVERLAP = 0.5  # share of the shorter span that a hit and a true span have in common
MIN_LABEL_OVERLAP = 0.5  # share of a step that lies in spans of its label


@dataclass
class Sample:
    """A video and the texts of its true spans."""

    video: Video
    name: str
    spans: list[tuple[float, float, str]]

    @property
    def is_development(self) -> bool:
        return share("calibration " + self.name) < 0.5

    def shows(self, start_s: float, end_s: float, text: str) -> bool:
        """Whether a text is true for most of a span, or a span for most of a true one."""
        return any(
            min(end_s, end) - max(start_s, start) > MIN_OVERLAP * min(end_s - start_s, end - start)
            for start, end, own in self.spans
            if own == text
        )


@dataclass
class Judged:
    """Raw values of answers (n, D), whether they were right, and of which half they are."""

    raw: list[list[float]]
    right: list[bool]
    development: list[bool]

    def add(self, raw: list[float], right: bool, development: bool) -> None:
        self.raw.append(raw)
        self.right.append(right)
        self.development.append(development)


def judge_presence(samples: list[Sample], rng: np.random.Generator) -> Judged:
    """`ask`: is a text in the video at all?"""
    judged = Judged([], [], [])
    for sample in samples:
        texts = sorted({text for *_, text in sample.spans})
        absent = sorted({text for other in samples for *_, text in other.spans} - set(texts))
        texts += list(rng.choice(absent, min(len(texts), len(absent)), replace=False))
        video = sample.video
        similarity = video.similarity(texts)
        best = score_spans(similarity, video.spans, video.clock.spacing_s, video.temperature).argmax(1)
        for text, row in zip(texts, presence_statistics(similarity, video.spans, best.tolist()), strict=True):
            judged.add(row.tolist(), any(text == own for *_, own in sample.spans), sample.is_development)
    return judged


def judge_search(samples: list[Sample], rng: np.random.Generator) -> Judged:
    """`search`: does a hit show the text? Hits come from the samples of one half."""
    judged = Judged([], [], [])
    for development in (True, False):
        half = [sample for sample in samples if sample.is_development == development]
        levels = [sample.video.steps(labels=[]).levels[-1] for sample in half]
        rows = [(sample, step) for sample, level in zip(half, levels, strict=True) for step in level]
        shown = sorted({text for sample in half for *_, text in sample.spans})
        absent = sorted({text for sample in samples for *_, text in sample.spans} - set(shown))
        texts = shown + list(rng.choice(absent, min(len(shown), len(absent)), replace=False))
        parts = [search_values(sample.video, level, texts) for sample, level in zip(half, levels, strict=True)]
        for text, raw in zip(texts, np.concatenate(parts, axis=1), strict=True):
            for i in np.argsort(-raw, kind="stable")[:NUM_HITS]:
                sample, step = rows[i]
                judged.add([float(raw[i])], sample.shows(step.start_s, step.end_s, text), development)
    return judged


def search_values(video: Video, level: Sequence[Step], texts: list[str]) -> np.ndarray:
    """Raw values of texts and steps (Q, N): similarities with pictures, or cosines times the length of the query."""
    spans = video.level_spans(level)
    summaries = video.summarise_spans(spans)
    if summaries is not None:
        return summaries.similarity(texts)
    return video.engine.embed_queries(texts) @ unit_vectors(video.embed_spans(spans)).T


def judge_labels(samples: list[Sample]) -> Judged:
    """`--labels`: is the best of the labels of a video right for a step?"""
    judged = Judged([], [], [])
    for sample in samples:
        labels = sorted({text for *_, text in sample.spans})
        if len(labels) < 2:
            continue
        video = sample.video
        level = video.steps(len(sample.spans), labels=[]).levels[-1]
        similarity, spans = video.similarity(labels), video.level_spans(level)
        means = np.stack([similarity[:, start:end].mean(1) for start, end in spans])
        for row, step in enumerate(level):
            best = int(means[row].argmax())
            inside = sum(
                max(0.0, min(end, step.end_s) - max(start, step.start_s))
                for start, end, text in sample.spans
                if text == labels[best]
            )
            right = inside > MIN_LABEL_OVERLAP * (step.end_s - step.start_s)
            judged.add([float(means[row, best])], right, sample.is_development)
    return judged


def judge_like(samples: list[Sample]) -> Judged:
    """`--like`: is a hit the same step?"""
    judged = Judged([], [], [])
    for development in (True, False):
        half = [sample for sample in samples if sample.is_development == development]
        levels = [sample.video.steps(len(sample.spans), labels=[]).levels[-1] for sample in half]
        vectors = [
            sample.video.embed_spans(sample.video.level_spans(level))
            for sample, level in zip(half, levels, strict=True)
        ]
        texts = [
            [text_of(sample, step.start_s, step.end_s) for step in level]
            for sample, level in zip(half, levels, strict=True)
        ]
        for i in range(len(half)):
            others = [j for j in range(len(half)) if j != i]
            scores = np.concatenate(correspondence(vectors[i], [vectors[j] for j in others]), axis=1)
            names = [text for j in others for text in texts[j]]
            for own, row in zip(texts[i], scores, strict=True):
                for hit in np.argsort(-row, kind="stable")[:NUM_LIKE] if own else ():
                    judged.add([float(row[hit])], names[hit] == own, development)
    return judged


def text_of(sample: Sample, start_s: float, end_s: float) -> str | None:
    """The text in the middle of a span."""
    middle_s = (start_s + end_s) / 2
    return next((text for start, end, text in sample.spans if start <= middle_s < end), None)


def report(title: str, judged: Judged, current: tuple[float, ...]) -> None:
    """Print the fitted numbers, the errors of both on the held-out half, and how often answers were right."""
    raw, right = np.array(judged.raw), np.array(judged.right, dtype=float)
    development = np.array(judged.development)
    if development.all() or not development.any():
        print(f"\n{title}: too few videos")
        return
    fitted = fit_logistic(raw[development], right[development], np.ones(development.sum()), penalty=1e-3)
    held, truth = raw[~development], right[~development]
    print(f"\n{title}: {development.sum()} answers to fit, {len(truth)} held out, {100 * truth.mean():.0f} % right")
    for name, numbers in (("now", np.array(current)), ("fitted", fitted)):
        said = expit(held @ numbers[:-1] + numbers[-1])
        print(
            f"{name}: {np.round(numbers, 2).tolist()}, calibration error {100 * calibration_error(said, truth):.1f} %"
        )
    said = expit(held @ fitted[:-1] + fitted[-1])
    print("\n| said | answers | right |\n|---|---|---|")
    for low, high, inside in bins(said):
        print(f"| {low:.0f} to {high:.0f} % | {inside.sum()} | {100 * truth[inside].mean():.0f} % |")


def bins(said: np.ndarray) -> Iterator[tuple[float, float, np.ndarray]]:
    """Bins of equal width that hold answers, in percent."""
    index = np.minimum((said * NUM_BINS).astype(int), NUM_BINS - 1)
    for i in range(NUM_BINS):
        if (index == i).any():
            yield 100 * i / NUM_BINS, 100 * (i + 1) / NUM_BINS, index == i


def calibration_error(said: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error: stated probabilities against how often answers were right, over bins."""
    return float(sum(abs((said - truth)[inside].sum()) for *_, inside in bins(said)) / len(said))


def read_recordings(source: Path, model: Path, folder: Path) -> list[Sample]:
    """The recordings of CaptainCook4D that `--part test` holds out."""
    annotations, features = read_annotations(source), read_features(source, "k400")
    parts = split(annotations, list(features), "test")
    engine = hiero.load(model, backbone="default")
    out = []
    for name in sorted(parts[PARTS[0]] + parts[PARTS[1]]):
        np.save(folder / f"{name}.npy", features[name].half().numpy())
        spans = [(step["start_s"], step["end_s"], step["text"]) for step in annotations[name]["steps"]]
        out.append(Sample(engine.read(folder / f"{name}.npy", clock=CLOCK), name, spans))
    return out


def read_clips(clips: Path) -> list[Sample]:
    """Clips that show one thing, and procedures."""
    engine = hiero.load(backbone="default")
    files = {path: [path.stem.replace("_", " ")] for path in sorted((clips / "chores").glob("*.mp4"))}
    for key, captions in CAPTIONS.items():
        files[next(path for path in sorted(clips.iterdir()) if key in path.name and path.is_file())] = captions
    out = []
    for path, texts in files.items():
        video = engine.read(path)
        out.append(Sample(video, path.name, [(0.0, video.duration_s, text) for text in texts]))
    for name, steps in json.loads((clips / "procedures" / "steps.json").read_text()).items():
        video = engine.read(clips / "procedures" / f"{name}.mp4")
        out.append(Sample(video, name, [(start, end, text) for start, end, text in steps]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["features", "clips"])
    parser.add_argument("source", type=Path)
    parser.add_argument("--model", type=Path, default=Path("hiero-k400"))
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    if args.what == "features":
        with tempfile.TemporaryDirectory() as folder:
            samples = read_recordings(args.source, args.model, Path(folder))
            report("ask, in the video", judge_presence(samples, rng), calibration.PRESENCE)
            report("search", judge_search(samples, rng), calibration.SEARCH)
            report("labels", judge_labels(samples), calibration.LABEL)
            report("like", judge_like(samples), calibration.SAME_STEP)
    else:
        samples = read_clips(args.source)
        report("ask, in the video", judge_presence(samples, rng), calibration.PICTURE_PRESENCE)
        report("search", judge_search(samples, rng), calibration.PICTURE_SEARCH)


if __name__ == "__main__":
    main()
