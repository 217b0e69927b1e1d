"""HiERO on pictures: is a model that learned from features of hiero's own backbone better at steps of videos?

    python -m benchmarks.egtea encode WORK --clones CLONES --part train    # and dev, valid
    python -m benchmarks.egtea_graph prepare WORK
    hiero pack WORK/features WORK/store --backbone dinov2-text --fps 1 --stride 1 --window 1
    hiero train WORK/store WORK/narrations.csv -o MODEL --validation-share 0 --set epochs=100 \
        --set model.hidden_size=128 --set model.embedding_size=128    (3 minutes on 2 cores)
    python -m benchmarks.egtea_graph score WORK --clips CLIPS --model MODEL

The model learns from the 19 videos of the part `train` of `benchmarks.egtea`, with their timed texts as
narrations. Its features are the vector of the whole picture and the mean of the patches, one row a second.

`score` cuts videos into their true number of steps by several kinds of evidence, and compares with
equal parts. The procedures of CLIPS have steps that people timed. EGTEA's actions last a second or two;
its steps, one per minute, are the pieces in which hands use the same things.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

import hiero
from benchmarks import egtea
from benchmarks.words_score import equal_parts, step_f1
from hiero.engine import Engine, Video
from hiero.engine.evidence import NODE_WEIGHT, PICTURE_WEIGHT
from hiero.model.ensemble import embed_features, load_model
from hiero.steps.segmentation import LENGTH_PRIOR, MIN_NORM, centre_and_normalise, cut_steps

STEP_S = 60  # mean length of steps of EGTEA
NODE_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
PARTS = ("dev", "valid")


def features_of(video: Video) -> np.ndarray:
    """What the model reads, (T, 512)."""
    assert video.pictures is not None
    return np.concatenate([video.sight.pictures.pictures, video.sight.pictures.patches.mean(1)], axis=1)


def prepare(work: Path) -> None:
    """Features and narrations of the part `train`."""
    engine, folder = hiero.load(), work / "features"
    folder.mkdir(exist_ok=True)
    with (work / "narrations.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["video", "start_s", "end_s", "text"])
        for name, actions in egtea.read_actions(work, "train").items():
            np.save(folder / f"{name}.npy", features_of(egtea.read_video(engine, work, name)))
            rows.writerows([name, a.start_s, a.end_s, a.text] for a in actions if a.verb)


@dataclass
class Sample:
    """A video and when its steps are: start, end."""

    video: Video
    steps: list[tuple[float, float]]

    def f1(self, starts_s: np.ndarray) -> float:
        """F1 of steps that begin at some times, in percent."""
        return step_f1(starts_s, self.steps, self.video.duration_s)

    def cut(self, features: np.ndarray) -> float:
        """F1 of the best cut of features."""
        boundaries = cut_steps(features, len(self.steps), length_prior=LENGTH_PRIOR)
        return self.f1(np.array([self.video.clock.edge_s(i) for i in boundaries[:-1]]))


def read_procedures(engine: Engine, clips: Path) -> list[Sample]:
    steps_of = json.loads((clips / "procedures" / "steps.json").read_text())
    return [
        Sample(engine.read(clips / "procedures" / f"{name}.mp4"), [(start, end) for start, end, _ in steps])
        for name, steps in steps_of.items()
    ]


def read_egtea(engine: Engine, work: Path, part: str) -> list[Sample]:
    """Videos with steps in which hands use the same things."""
    out = []
    for name, actions in egtea.read_actions(work, part).items():
        video = egtea.read_video(engine, work, name)
        middles_s = np.array([(action.start_s + action.end_s) / 2 for action in actions])
        nearest = np.abs(middles_s - (np.arange(len(video.nodes)) + 0.5)[:, None]).argmin(1)
        every = sorted({noun for action in actions for noun in action.nouns})
        used = np.array([[noun in action.nouns for noun in every] for action in actions], dtype=float)
        edges = cut_steps(used[nearest], max(2, round(video.duration_s / STEP_S)), length_prior=LENGTH_PRIOR)
        out.append(Sample(video, list(pairwise(edges))))
    return out


def evidence(sample: Sample, model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Features to cut a video by."""
    video = sample.video
    pictures = video.sight.segmentation_features[:, video.nodes.shape[1] :]  # the shipped model's nodes come first
    read = torch.from_numpy(features_of(video)).float()
    nodes = centre_and_normalise(embed_features(model, read, video.clock, [0])["projected0"].numpy(), MIN_NORM)
    both = {
        f"pictures, new nodes × {w}": np.concatenate([video._model_weight * w * nodes, pictures], 1)
        for w in NODE_WEIGHTS
    }
    return {
        f"hiero steps (nodes × {NODE_WEIGHT}, pictures × {PICTURE_WEIGHT})": video.sight.segmentation_features,
        "pictures alone": pictures,
        "new nodes alone": nodes,
        **both,
    }


def score(work: Path, clips: Path, folder: Path) -> None:
    """Print the mean F1 of each kind of evidence."""
    engine, model = hiero.load(), load_model(folder)
    groups = {"procedures": read_procedures(engine, clips)}
    groups |= {f"EGTEA {part}": read_egtea(engine, work, part) for part in PARTS}
    rows: dict[str, dict[str, list[float]]] = {}
    for group, samples in groups.items():
        for sample in samples:
            values = {"equal parts": sample.f1(equal_parts(len(sample.steps), sample.video.duration_s))}
            values |= {name: sample.cut(features) for name, features in evidence(sample, model).items()}
            for name, value in values.items():
                rows.setdefault(name, {}).setdefault(group, []).append(value)
    print(f"| F1 | {' | '.join(f'{group} ({len(samples)})' for group, samples in groups.items())} |")
    print("|---|" + "---|" * len(groups))
    for name, by_group in rows.items():
        print(f"| {name} | {' | '.join(f'{np.mean(by_group[group]):.1f}' for group in groups)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["prepare", "score"])
    parser.add_argument("work", type=Path, help="folder of `benchmarks.egtea encode`")
    parser.add_argument("--clips", type=Path, help="the videos of `benchmarks.words score`")
    parser.add_argument("--model", type=Path, help="model that learned from WORK")
    args = parser.parse_args()
    if args.command == "prepare":
        prepare(args.work)
    else:
        score(args.work, args.clips, args.model)


if __name__ == "__main__":
    main()
