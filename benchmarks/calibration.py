"""How often are the answers of `ask`, `search`, `--labels` and `--like` right that hiero gives a probability?

    python -m benchmarks.calibration features SOURCE --model MODEL
        feature files of CaptainCook4D; only recordings are used that `python -m benchmarks.captaincook4d
        train WORK --part test` holds out, and MODEL must not have seen them
    python -m benchmarks.calibration clips CLIPS [--egtea WORK]
        videos: clips named after what they show, procedures with timed steps, and the part `dev` of
        `benchmarks.egtea`, which is used for fitting only

Videos are divided into two halves by their names. Numbers are fitted on the development half and
printed as the constants of `hiero/steps/calibration.py`; the tables describe the other half. `ask` and
`search` share the numbers that are fitted on the matches of `ask`. To adopt new ones, paste them, run
the command again, and check the table of `search`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import expit

import hiero
from benchmarks import egtea
from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, read_features, share, split
from benchmarks.scores import bins, calibration_error, fit_logistic
from benchmarks.words import CAPTIONS
from hiero.corpus.corpus import Corpus
from hiero.engine import Video
from hiero.steps import calibration
from hiero.steps.correspondence import correspondence
from hiero.steps.grounding import same_moments
from hiero.types import ANSWER_THRESHOLD, Match

NUM_HITS = 5  # hits of a search that are judged
NUM_LIKE = 20  # hits of `--like` that are judged
THRESHOLDS = (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3)
MIN_OVERLAP = 0.5  # share of the shorter span that a hit and a true span have in common
MIN_LABEL_OVERLAP = 0.5  # share of a step that lies in spans of its label


@dataclass
class Sample:
    """A video and the texts of its true spans."""

    video: Video
    name: str
    spans: list[tuple[float, float, str]]
    is_development: bool = False

    @classmethod
    def of(cls, video: Video, name: str, spans: list[tuple[float, float, str]]) -> Sample:
        """A sample of the half to which its name belongs."""
        return cls(video, name, spans, share("calibration " + name) < 0.5)

    def shows(self, start_s: float, end_s: float, text: str) -> bool:
        """Whether a text is true for most of a span, or a span for most of a true one."""
        return any(
            min(end_s, end) - max(start_s, start) > MIN_OVERLAP * min(end_s - start_s, end - start)
            for start, end, own in self.spans
            if own == text
        )


@dataclass
class Judged:
    """Raw values of answers (n, D), whether each is right, its half, and its weight."""

    raw: list[list[float]] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    development: list[bool] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, raw: list[float], right: bool, development: bool, weight: float = 1.0) -> None:
        self.raw.append(raw)
        self.right.append(right)
        self.development.append(development)
        self.weights.append(weight)


def judge_answers(samples: list[Sample], rng: np.random.Generator) -> Judged:
    """`ask`: is a match right? Absent texts count more, so that the odds are `PRIOR_ODDS`."""
    judged = Judged()
    for sample in samples:
        texts = sorted({text for *_, text in sample.spans})
        absent = sorted({text for other in samples for *_, text in other.spans} - set(texts))
        chosen = list(rng.choice(absent, min(len(texts), len(absent)), replace=False))
        for text, answer in zip(texts + chosen, sample.video.ask(texts + chosen, num=NUM_HITS), strict=True):
            steps = StepValues.of(sample.video, text)
            best = steps.similarity.max()
            for rank, match in enumerate(answer.matches):
                best = best if rank == 0 else min(best, steps.at(match))
                weight = calibration.PRIOR_ODDS if text in texts else 1.0
                right = sample.shows(match.start_s, match.end_s, text)
                judged.add([best, best - steps.whole], right, sample.is_development, weight)
    return judged


def judge_search(samples: list[Sample], rng: np.random.Generator) -> Judged:
    """`search`: does a hit show the text? Hits come from the samples of one half."""
    judged = Judged()
    for development in (True, False):
        half = [sample for sample in samples if sample.is_development == development]
        with tempfile.TemporaryDirectory() as folder:
            corpus = Corpus(folder, create=True)
            for sample in half:
                corpus.add(sample.video, sample.video.steps(labels=[]), sample.name, sample.name)
            by_name = {sample.name: sample for sample in half}
            shown = sorted({text for sample in half for *_, text in sample.spans})
            absent = sorted({text for sample in samples for *_, text in sample.spans} - set(shown))
            for text in shown + list(rng.choice(absent, min(len(shown), len(absent)), replace=False)):
                for hit in corpus.search_text(half[0].video.engine, text, NUM_HITS):
                    sample = by_name[hit.video]
                    right = sample.shows(hit.start_s, hit.end_s, text)
                    judged.add([hit.probability], right, development)
    return judged


@dataclass
class StepValues:
    """Similarities of a text with all steps of a video, the input of `hiero.steps.calibration.answer`."""

    spans_s: np.ndarray
    similarity: np.ndarray
    whole: float

    @classmethod
    def of(cls, video: Video, text: str) -> StepValues:
        spans, similarity = video.sight.step_similarity([text])
        edges_s = np.array([[video.clock.edge_s(int(i)) for i in span] for span in spans[1:]])
        return cls(edges_s, similarity[0, 1:], float(similarity[0, 0]))

    def at(self, match: Match) -> float:
        """The largest similarity of the steps at the moment of a match."""
        (is_same,) = same_moments(np.array([[match.start_s, match.end_s]]), self.spans_s)
        return float(self.similarity[is_same].max())


def judge_labels(samples: list[Sample]) -> Judged:
    """`--labels`: is the best of the labels of a video right for a step?"""
    judged = Judged()
    for sample in samples:
        labels = sorted({text for *_, text in sample.spans})
        if len(labels) < 2:
            continue
        video = sample.video
        level = video.steps(len(sample.spans), labels=[]).levels[-1]
        similarity, spans = video.sight.similarity(labels), video.sight.level_spans(level)
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
    judged = Judged()
    for development in (True, False):
        half = [sample for sample in samples if sample.is_development == development]
        levels = [sample.video.steps(len(sample.spans), labels=[]).levels[-1] for sample in half]
        vectors = [
            sample.video.sight.embed_spans(sample.video.sight.level_spans(level))
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


def report(title: str, judged: Judged, constant: str | None) -> None:
    """Print the fitted numbers of a constant, and how often answers of the held-out half were right.

    Without a constant, the raw values are probabilities.
    """
    raw, right = np.array(judged.raw), np.array(judged.right, dtype=float)
    development, weights = np.array(judged.development), np.array(judged.weights)
    if development.all() or not development.any():
        print(f"\n{title}: too few videos")
        return
    held, truth, weight = raw[~development], right[~development], weights[~development]
    share = 100 * np.average(truth, weights=weight)
    print(f"\n{title}: {development.sum()} answers to fit, {len(truth)} held out, {share:.0f} % right")
    said = held[:, 0]
    if constant is not None:
        fitted = fit_logistic(raw[development], right[development], weights[development], penalty=1e-3)
        for name, numbers in (("now", np.array(getattr(calibration, constant))), ("fitted", fitted)):
            said = expit(held @ numbers[:-1] + numbers[-1])
            print(f"{name}: calibration error {100 * calibration_error(said, truth, weight):.1f} %")
        print(f"{constant} = ({', '.join(f'{number:.2f}' for number in fitted)})")
    else:
        print(f"now: calibration error {100 * calibration_error(said, truth, weight):.1f} %")
    print("\n| said | answers | right |\n|---|---|---|")
    for low, high, inside in bins(said):
        share = 100 * np.average(truth[inside], weights=weight[inside])
        print(f"| {low:.0f} to {high:.0f} % | {inside.sum()} | {share:.0f} % |")


def report_threshold(samples: list[Sample], rng: np.random.Generator) -> None:
    """Print how many texts are found in the videos that show them, and not in others, at several thresholds."""
    found: dict[tuple[bool, bool], list[float]] = {}
    for sample in samples:
        texts = sorted({text for *_, text in sample.spans})
        absent = sorted({text for other in samples for *_, text in other.spans} - set(texts))
        chosen = list(rng.choice(absent, min(len(texts), len(absent)), replace=False))
        for text, row in zip(texts + chosen, sample.video.sight.probable_steps(texts + chosen)[1], strict=True):
            found.setdefault((sample.is_development, text in texts), []).append(row.max())
    print(f"\nANSWER_THRESHOLD = {ANSWER_THRESHOLD} (hiero/types.py); choose it by the columns of development")
    print("\n| threshold | development: shown kept | absent hidden | held out: shown kept | absent hidden |")
    print("|---|---|---|---|---|")
    for threshold in THRESHOLDS:
        cells = []
        for development in (True, False):
            shown, absent = (np.array(found[development, is_shown]) for is_shown in (True, False))
            cells += [100 * np.mean(shown >= threshold), 100 * np.mean(absent < threshold)]
        print(f"| {threshold} | {' | '.join(f'{cell:.0f} %' for cell in cells)} |")


def read_recordings(source: Path, model: Path, folder: Path) -> list[Sample]:
    """The recordings of CaptainCook4D that `--part test` holds out."""
    annotations, features = read_annotations(source), read_features(source, "k400")
    parts = split(annotations, list(features), "test")
    engine = hiero.load(model)
    out = []
    for name in sorted(parts[PARTS[0]] + parts[PARTS[1]]):
        np.save(folder / f"{name}.npy", features[name].half().numpy())
        spans = [(step["start_s"], step["end_s"], step["text"]) for step in annotations[name]["steps"]]
        out.append(Sample.of(engine.read(folder / f"{name}.npy", clock=CLOCK), name, spans))
    return out


def read_clips(clips: Path) -> list[Sample]:
    """Clips that show one thing, and procedures."""
    engine = hiero.load()
    files = {path: [path.stem.replace("_", " ")] for path in sorted((clips / "chores").glob("*.mp4"))}
    for key, captions in CAPTIONS.items():
        files[next(path for path in sorted(clips.iterdir()) if key in path.name and path.is_file())] = captions
    out = []
    for path, texts in files.items():
        video = engine.read(path)
        out.append(Sample.of(video, path.name, [(0.0, video.duration_s, text) for text in texts]))
    for name, steps in json.loads((clips / "procedures" / "steps.json").read_text()).items():
        video = engine.read(clips / "procedures" / f"{name}.mp4")
        out.append(Sample.of(video, name, [(start, end, text) for start, end, text in steps]))
    return out


def read_egtea(work: Path) -> list[Sample]:
    """Whole videos on which numbers may be chosen."""
    engine = hiero.load()
    return [
        Sample(egtea.read_video(engine, work, name), name, [(a.start_s, a.end_s, a.text) for a in own if a.verb], True)
        for name, own in egtea.read_actions(work, "dev").items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["features", "clips"])
    parser.add_argument("source", type=Path)
    parser.add_argument("--model", type=Path, default=Path("hiero-k400"))
    parser.add_argument("--egtea", type=Path, metavar="WORK")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    has_pictures = args.what == "clips"
    with tempfile.TemporaryDirectory() as folder:
        samples = read_clips(args.source) if has_pictures else read_recordings(args.source, args.model, Path(folder))
        if args.egtea is not None:
            samples += read_egtea(args.egtea)
        report("ask", judge_answers(samples, rng), "PICTURE_ANSWER" if has_pictures else "ANSWER")
        report("search", judge_search(samples, rng), None)
        report_threshold(samples, rng)
        if not has_pictures:
            report("labels", judge_labels(samples), "LABEL")
            report("like", judge_like(samples), "SAME_STEP")


if __name__ == "__main__":
    main()
