"""How good are `ask`, `search` and `steps` on 26 real first-person videos?

    python -m benchmarks.words score CLIPS

Videos are read with the shipped weights. Settings of the engine were chosen on these videos, so this
is a development set.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import hiero
from benchmarks.scores import MIN_IOU
from hiero.corpus.corpus import Corpus
from hiero.engine import Engine, Video
from hiero.evaluation.metrics import interval_iou, procedure_scores

RATE = 10  # samples per second at which steps are compared
# Parts of the names of four kitchen clips, and captions of them
CAPTIONS = {
    "frying": [
        "frying food in a pan",
        "a person cooks in a frying pan",
        "frying",
        "cooking food on the stove",
        "stirring food in a pan",
    ],
    "blender": [
        "preparing a sauce in a blender",
        "a chef makes a sauce with a blender",
        "blending",
        "using a blender",
        "making a smoothie in a mixer",
        "chef preparing a sauce in a blender",
    ],
    "dough": [
        "kneading dough",
        "hands knead dough on a table",
        "hands of a baker kneading a dough",
        "making bread dough",
    ],
    "loaf": [
        "cutting a loaf of bread into slices",
        "a baker slices bread with a knife",
        "slicing bread",
        "pastry chef cutting a loaf into slices",
        "cutting bread",
    ],
}


def score(clips: Path, folder: Path) -> None:
    """Print all scores."""
    engine = hiero.load()
    chores = sorted((clips / "chores").glob("*.mp4"))
    names = [path.stem.replace("_", " ") for path in chores]
    kitchen = [next(p for p in sorted(clips.iterdir()) if key in p.name and p.is_file()) for key in CAPTIONS]
    captions = [caption for group in CAPTIONS.values() for caption in group]
    owners = np.repeat(np.arange(len(CAPTIONS)), [len(group) for group in CAPTIONS.values()])
    ranks = search_ranks(engine, [engine.read(path) for path in chores], names, np.arange(len(chores)), folder / "a")
    recalls = ", ".join(f"R@{k} {100 * np.mean(ranks < k):.0f}" for k in (1, 3, 5))
    print(f"chores, search: {recalls} of {len(ranks)}")
    ranks = search_ranks(engine, [engine.read(path) for path in kitchen], captions, owners, folder / "b")
    print(f"kitchen clips, search: {(ranks == 0).sum()} of {len(ranks)} captions find their clip")
    truth = json.loads((clips / "procedures" / "steps.json").read_text())
    score_procedures([(engine.read(clips / "procedures" / f"{name}.mp4"), steps) for name, steps in truth.items()])


def search_ranks(engine: Engine, videos: list[Video], queries: list[str], owners: np.ndarray, uri: Path) -> np.ndarray:
    """The rank of the right video for each query, in a corpus of all videos."""
    corpus = Corpus(str(uri), create=True)
    for video in videos:
        corpus.add(video, video.steps(labels=[]), video.path.stem, "")
    names = [video.path.stem for video in videos]
    out = []
    for query, owner in zip(queries, owners, strict=True):
        ranked = list(dict.fromkeys(hit.video for hit in corpus.search_text(engine, query, 1000)))
        out.append(ranked.index(names[owner]))
    return np.array(out)


def score_procedures(procedures: list[tuple[Video, list[tuple[float, float, str]]]]) -> None:
    """Print R1@.3 and R5@.3 of the texts of steps, and F1 of steps next to equal parts."""
    hits, f1 = [], {}
    for video, steps in procedures:
        for (start_s, end_s, _), answer in zip(steps, video.ask([text for *_, text in steps]), strict=True):
            found = np.array([[match.start_s, match.end_s] for match in answer.matches])
            overlaps = interval_iou(found, np.array([start_s, end_s]))
            hits.append([overlaps[0] >= MIN_IOU, overlaps.max() >= MIN_IOU])
        level = video.steps([len(steps)], labels=[]).levels[0]
        equal_s = np.arange(len(steps)) * video.duration_s / len(steps)
        cuts_s = np.array([step.start_s for step in level]), equal_s
        spans = [(start_s, end_s) for start_s, end_s, _ in steps]
        f1[video.path.stem] = [step_f1(starts_s, spans, video.duration_s) for starts_s in cuts_s]
    r1, r5 = 100 * np.mean(hits, axis=0)
    print(f"procedures, ask: R1@.3 {r1:.0f}, R5@.3 {r5:.0f} of {len(hits)} texts")
    for name, (own, equal) in {**f1, "mean": np.mean(list(f1.values()), axis=0)}.items():
        print(f"procedures, steps, {name}: F1 {own:.0f}, equal parts {equal:.0f}")


def step_f1(starts_s: np.ndarray, steps: Sequence[tuple[float, float]], duration_s: float) -> float:
    """F1 in percent of steps that begin at `starts_s`; seconds outside the true steps do not count."""
    times_s = np.arange(int(duration_s * RATE)) / RATE
    truth = np.full(len(times_s), -1)
    for i, (start_s, end_s) in enumerate(steps):
        truth[(times_s >= start_s) & (times_s < end_s)] = i
    found, inside = np.searchsorted(starts_s[1:], times_s, side="right"), truth >= 0
    return 100 * procedure_scores(found[inside], truth[inside]).f1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["score"])
    parser.add_argument("clips", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        score(args.clips, Path(folder))


if __name__ == "__main__":
    main()
