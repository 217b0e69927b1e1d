"""The same step elsewhere: is the step of another recording that is nearest to a step the same step of the recipe?

    python -m benchmarks.same_step ../shared/captaincook4d --model MODEL [--feature k400|omnivore] [--part test|dev]
    python -m benchmarks.same_step ../shared/captaincook4d --model DEV_MODEL --part dev --choose   the settings, on dev

Each annotated step of each test recording is searched in the other recordings: those of its recipe,
or all. A hit is right if it has the same text. R@1 and R@5: the share of steps with a right one
among the first; mAP: the mean of average precisions over all steps of the others. Steps that no
other recording has are left out. *True steps*: candidates are the annotated steps. *Cut steps*:
those of the finest level as `hiero index` cuts them; one counts as the annotated step at its
middle, and the one at the middle of an annotated step is the query. Intervals hold 95 % of what
other recordings would give (bootstrap).

MODEL was trained without the test recordings, DEV_MODEL without the development recordings too:
`python -m benchmarks.captaincook4d train WORK --part test|dev` leaves them in
WORK/runs/PART/KIND/HiERO/SEED/model. Without one, raw features alone are measured. `--feature
omnivore` takes the 1024-d features of `omnivore-b`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
from torch import Tensor

from benchmarks.captaincook4d_data import CLOCK, PARTS, read_annotations, read_features, split
from hiero import Engine, load
from hiero.corpus.corpus import Corpus, IndexSettings
from hiero.corpus.indexing import index_files
from hiero.corpus.searching import read_step_sequences
from hiero.corpus.table import RowFilter
from hiero.evaluation.results import bootstrap_row, format_cell, weighted_means
from hiero.steps import calibration
from hiero.steps.correspondence import centre_steps, correspondence
from hiero.vectors import unit_vectors

KINDS = {"k400": "k400", "omnivore": "omnivore-b"}
SCOPES = ("recipe", "all recipes")
COLUMNS = ("R@1", "R@5", "mAP")
NEIGHBOUR_WEIGHT = 0.5  # of the steps before and after, chosen on dev of 0.5 and 1
POSITION_WEIGHT = 1.0  # of the difference of positions in the video, chosen on dev of 0.5, 1 and 2
GRID = {
    "temperature": (0.1, 0.15, 0.2),
    "min_cosine": (0.0, 0.1),
    "video_weight": (1.0, 2.0),
    "step_weight": (2.0, 4.0, 8.0),
}
NUM_HITS = 5  # of `hiero search --like`
NUM_FITTED = 20  # hits of each step that the probability is fitted to


@dataclass(frozen=True)
class Recording:
    """Steps of a recording, and what is searched for in others.

    Attributes:
        name: Of the recording.
        recipe: What was cooked.
        vectors: Of its steps in time order, as a corpus stores them, (n, D).
        positions: Of their middles, as a share of the recording, (n,).
        texts: Of the annotated step that each is; empty where it is none.
        queries: Index of a step and the text that is to be found.
        times_s: A moment of each query, in seconds.
    """

    name: str
    recipe: str
    vectors: np.ndarray
    positions: np.ndarray
    texts: list[str]
    queries: list[tuple[int, str]]
    times_s: list[float]


def read_annotated(engine: Engine, features: Tensor, name: str, entry: dict) -> Recording:
    """A recording with its annotated steps."""
    video = engine.read_array(features.numpy(), CLOCK, name)
    steps, last = sort_steps(entry), len(video.nodes) - 1
    starts = [min(round(step["start_s"]), last) for step in steps]
    ends = [min(max(round(step["end_s"]), start + 1), last + 1) for step, start in zip(steps, starts, strict=True)]
    spans, texts = np.array(list(zip(starts, ends, strict=True))), [step["text"] for step in steps]
    positions = spans.mean(1) / len(video.nodes)
    return Recording(
        name,
        entry["recipe"],
        video.sight.embed_spans(spans),
        positions,
        texts,
        list(enumerate(texts)),
        middles_s(steps),
    )


def read_cut(corpus: Corpus, name: str, entry: dict) -> Recording:
    """A recording with its finest steps as a corpus has them."""
    level = len(corpus.find(name).levels) - 1
    (cut,) = read_step_sequences(corpus.tables, RowFilter([name], levels=(level,)))
    steps = sort_steps(entry)
    cut_s = np.array([(hit.start_s + hit.end_s) / 2 for hit in cut.hits])
    starts_s = np.array([hit.start_s for hit in cut.hits])
    index = np.clip(np.searchsorted(starts_s, middles_s(steps), side="right") - 1, 0, len(cut.hits) - 1)
    queries = [(int(i), step["text"]) for i, step in zip(index, steps, strict=True)]
    texts = [_text_at(steps, time_s) for time_s in cut_s]
    return Recording(name, entry["recipe"], cut.vectors, cut_s / cut.hits[-1].end_s, texts, queries, middles_s(steps))


def sort_steps(entry: dict) -> list[dict]:
    """The annotated steps in time order."""
    return sorted(entry["steps"], key=lambda step: (step["start_s"], step["end_s"]))


def middles_s(steps: list[dict]) -> list[float]:
    """The middle of each annotated step."""
    return [(step["start_s"] + step["end_s"]) / 2 for step in steps]


def _text_at(steps: list[dict], time_s: float) -> str:
    return next((step["text"] for step in steps if step["start_s"] <= time_s < step["end_s"]), "")


@dataclass
class Retrieval:
    """Steps of some recordings, searched in all others.

    Attributes:
        recordings: All that are searched.
        parts: Names of those whose steps are searched for, by part.
    """

    recordings: list[Recording]
    parts: dict[str, list[str]]

    def of_part(self, part: str) -> list[int]:
        """Indices of the recordings of a part."""
        names = set(self.parts[part])
        return [i for i, recording in enumerate(self.recordings) if recording.name in names]

    @cached_property
    def owners(self) -> np.ndarray:
        """Recording of each step of all, (N,)."""
        return np.repeat(np.arange(len(self.recordings)), [len(recording.texts) for recording in self.recordings])

    @cached_property
    def texts(self) -> np.ndarray:
        """Of each step of all, (N,)."""
        return np.array([text for recording in self.recordings for text in recording.texts])

    @cached_property
    def recipes(self) -> np.ndarray:
        """Of each step of all, (N,)."""
        return np.array([recording.recipe for recording in self.recordings])[self.owners]

    @cached_property
    def unit_vectors(self) -> np.ndarray:
        """Of each step of all, of length 1, (N, D)."""
        return unit_vectors(np.concatenate([recording.vectors for recording in self.recordings]))

    @cached_property
    def centred_vectors(self) -> np.ndarray:
        """Of each step of all, without what the steps of its recording share, (N, D)."""
        return np.concatenate([centre_steps(recording.vectors) for recording in self.recordings])

    def score(self, rank: Rank, part: str, scope: str) -> tuple[np.ndarray, np.ndarray]:
        """(Q, 3) of R@1, R@5 and average precision of each query, and its recording among those of the part, (Q,)."""
        values, recordings = [], []
        for number, i in enumerate(self.of_part(part)):
            candidates = self.owners != i
            if scope == SCOPES[0]:
                candidates &= self.recipes == self.recordings[i].recipe
            scores = rank(self, i)[:, candidates]
            for index, text in self.recordings[i].queries:
                right = self.texts[candidates] == text
                if right.any():
                    values.append(retrieval_scores(scores[index], right))
                    recordings.append(number)
        return np.array(values), np.array(recordings)


Rank = Callable[[Retrieval, int], np.ndarray]  # scores (n, N) of the steps of a recording with all steps


def retrieval_scores(scores: np.ndarray, right: np.ndarray) -> tuple[float, float, float]:
    """R@1, R@5 and average precision of candidates (N,) by their scores, of which some are right."""
    hits = right[np.argsort(-scores, kind="stable")]
    places = np.flatnonzero(hits)
    return float(hits[0]), float(hits[:5].any()), float(np.mean(np.arange(1, len(places) + 1) / (places + 1)))


# Ways to rank


def by_vector(task: Retrieval, i: int) -> np.ndarray:
    """Cosines of the vectors as they are stored."""
    return task.unit_vectors[task.owners == i] @ task.unit_vectors.T


def by_centred_vector(task: Retrieval, i: int) -> np.ndarray:
    """Cosines without what the steps of a recording share."""
    return task.centred_vectors[task.owners == i] @ task.centred_vectors.T


def by_neighbours(task: Retrieval, i: int) -> np.ndarray:
    """Centred cosines, averaged with those of the steps before, and of the steps after."""
    cosines = by_centred_vector(task, i)
    total, weights = cosines.copy(), np.ones_like(cosines)
    same = task.owners[1:] == task.owners[:-1]
    for rows, near_rows, columns, near_columns in (
        (slice(1, None), slice(None, -1), slice(1, None), slice(None, -1)),
        (slice(None, -1), slice(1, None), slice(None, -1), slice(1, None)),
    ):
        total[rows, columns] += NEIGHBOUR_WEIGHT * same * cosines[near_rows, near_columns]
        weights[rows, columns] += NEIGHBOUR_WEIGHT * same
    return total / weights


def by_position(task: Retrieval, i: int) -> np.ndarray:
    """Minus the difference of the positions in the recordings: what is in the middle is like what
    is in the middle.
    """
    positions = np.concatenate([recording.positions for recording in task.recordings])
    return -abs(positions[task.owners == i][:, None] - positions)


def by_vector_and_position(task: Retrieval, i: int) -> np.ndarray:
    """Centred cosines and positions."""
    return by_centred_vector(task, i) + POSITION_WEIGHT * by_position(task, i)


def by_chance(task: Retrieval, i: int) -> np.ndarray:
    """In random order."""
    return np.random.default_rng(i).random((len(task.recordings[i].texts), len(task.owners)))


def in_order(task: Retrieval, i: int, **settings: float) -> np.ndarray:
    """By content and order, as `Corpus.like`."""
    vectors = [recording.vectors for recording in task.recordings]
    return np.concatenate(correspondence(vectors[i], vectors, **settings), axis=1)


RAW_METHODS: dict[str, Rank] = {
    "chance": by_chance,
    "position alone": by_position,
    "raw": by_vector,
    "raw, centred": by_centred_vector,
    "raw, in order": in_order,
}
METHODS: dict[str, Rank] = {
    "HiERO": by_vector,
    "HiERO, centred": by_centred_vector,
    "HiERO, with neighbours": by_neighbours,
    "HiERO, with position": by_vector_and_position,
    "HiERO, in order": in_order,
}


# Tables


def read_true_steps(
    engine: Engine, features: dict[str, Tensor], annotations: dict, parts: dict[str, list[str]]
) -> Retrieval:
    """All recordings with their annotated steps, as an engine embeds them."""
    names = sorted(name for part in parts.values() for name in part)
    return Retrieval([read_annotated(engine, features[name], name, annotations[name]) for name in names], parts)


def index_recordings(engine: Engine, features: dict[str, Tensor], parts: dict[str, list[str]], folder: Path) -> Corpus:
    """A corpus of all recordings, in a folder."""
    files = {name: folder / f"{name}.npy" for part in parts.values() for name in part}
    for name, file in files.items():
        np.save(file, features[name].numpy())
    corpus = Corpus(str(folder / "corpus"), create=True)
    index_files(corpus, engine, files, lambda source: engine.read(source, cache=False), IndexSettings(labels=[]))
    return corpus


def read_cut_steps(corpus: Corpus, annotations: dict, parts: dict[str, list[str]]) -> Retrieval:
    """All recordings with their finest steps as a corpus has them."""
    return Retrieval([read_cut(corpus, record.video, annotations[record.video]) for record in corpus.videos()], parts)


def format_row(
    name: str, task: Retrieval, score: Callable[[str, str], tuple[np.ndarray, np.ndarray]], scope: str
) -> str:
    """A row of Markdown: the columns of each part, with the interval of R@1."""
    cells = []
    for part in PARTS:
        values, recordings = score(part, scope)
        num = len(task.of_part(part))
        row = bootstrap_row(name, weighted_means(values, recordings, COLUMNS[: values.shape[1]]), num)
        cells += [format_cell(row, column, intervals=column == COLUMNS[0]) for column in COLUMNS]
    return f"| {name} | {' | '.join(cells)} |"


def print_tables(
    tasks: dict[str, tuple[Retrieval, dict[str, Rank]]], title: str, corpus: CorpusHits | None = None
) -> None:
    """A table for each scope."""
    for scope in SCOPES:
        print(f"\n{title}, candidates of {'the recipe' if scope == SCOPES[0] else scope}:\n")
        print("| | " + " | ".join(f"{part.split()[0]} {column}" for part in PARTS for column in COLUMNS) + " |")
        print("|---" * (1 + len(PARTS) * len(COLUMNS)) + "|")
        for task, methods in tasks.values():
            for name, rank in methods.items():
                print(
                    format_row(
                        name, task, lambda part, scope, task=task, rank=rank: task.score(rank, part, scope), scope
                    ),
                    flush=True,
                )
        if corpus is not None:
            print(format_row("`hiero search --like`", corpus.task, corpus.score, scope), flush=True)


@dataclass
class CorpusHits:
    """The same through a corpus: its own cut steps, candidates found by its index.

    Attributes:
        task: With cut steps.
        corpus: Of the same recordings.
        annotations: With the true steps.
    """

    task: Retrieval
    corpus: Corpus
    annotations: dict

    def score(self, part: str, scope: str) -> tuple[np.ndarray, np.ndarray]:
        """As `Retrieval.score`, without the average precision, which needs all candidates."""
        values, recordings = [], []
        for number, i in enumerate(self.task.of_part(part)):
            recording = self.task.recordings[i]
            of_recipe = [
                other.name
                for other in self.task.recordings
                if other.recipe == recording.recipe and other is not recording
            ]
            candidates = (self.task.owners != i) & ((scope != SCOPES[0]) | (self.task.recipes == recording.recipe))
            for time_s, (_, text) in zip(recording.times_s, recording.queries, strict=True):
                if text in self.task.texts[candidates]:
                    _, hits = self.corpus.like(
                        recording.name, time_s, NUM_HITS, videos=of_recipe if scope == SCOPES[0] else ()
                    )
                    middles = [(sort_steps(self.annotations[hit.video]), (hit.start_s + hit.end_s) / 2) for hit in hits]
                    right = [_text_at(*middle) == text for middle in middles]
                    values.append((right[0], any(right)))
                    recordings.append(number)
        return np.array(values, dtype=float), np.array(recordings)


def choose(tasks: list[Retrieval]) -> None:
    """Mean R@1 and mAP over scopes, parts and tasks for each setting of the alignment."""
    print("| " + " | ".join((*GRID, "R@1", "mAP")) + " |\n" + "|---" * (len(GRID) + 2) + "|")
    for values in product(*GRID.values()):
        settings = dict(zip(GRID, values, strict=True))

        def rank(task: Retrieval, i: int, settings: dict[str, float] = settings) -> np.ndarray:
            return in_order(task, i, **settings)

        scores = [task.score(rank, part, scope)[0].mean(0) for task in tasks for part in PARTS for scope in SCOPES]
        means = 100 * np.mean(scores, axis=0)
        print("| " + " | ".join(f"{value:g}" for value in values) + f" | {means[0]:.1f} | {means[2]:.1f} |", flush=True)


def fit_probability(task: Retrieval) -> None:
    """The log-odds that one of the first hits among all recipes is right, by its score; and how often
    one was, by what is said.
    """
    from sklearn.linear_model import LogisticRegression

    scores, right = [], []
    for i in (i for part in PARTS for i in task.of_part(part)):
        candidates = task.owners != i
        ranked = in_order(task, i)[:, candidates]
        for index, text in task.recordings[i].queries:
            first = np.argsort(-ranked[index], kind="stable")[:NUM_FITTED]
            scores += ranked[index, first].tolist()
            right += (task.texts[candidates][first] == text).tolist()
    regression = LogisticRegression(C=100.0).fit(np.array(scores)[:, None], right)
    print(f"SAME_STEP = {regression.coef_[0, 0]:.2f}, {regression.intercept_[0]:.2f}")
    probability, truth = calibration.same_step(np.array(scores)), np.array(right)
    for low in np.arange(5) / 5:
        inside = (probability >= low) & (probability < low + 0.2)
        if inside.any():
            print(f"  said {low:.1f}-{low + 0.2:.1f}: {100 * truth[inside].mean():.0f} % right ({inside.sum()})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="with annotations.json and features")
    parser.add_argument("--feature", choices=list(KINDS), default="k400")
    parser.add_argument("--model", type=Path, help="a folder trained without the recordings that are searched for")
    parser.add_argument("--part", choices=["test", "dev"], default="test")
    parser.add_argument(
        "--choose", action="store_true", help="fit the probability, and print how good each setting is; with --part dev"
    )
    args = parser.parse_args()
    if args.choose and (args.part != "dev" or args.model is None):
        parser.error("--choose needs --part dev and --model")
    annotations, features = read_annotations(args.source), read_features(args.source, KINDS[args.feature])
    parts = split(annotations, list(features), args.part)
    if not args.choose:
        print(f"{args.feature}, {args.part}: {', '.join(f'{len(names)} {name}' for name, names in parts.items())}")
        tasks = {"raw": (read_true_steps(load("raw"), features, annotations, parts), RAW_METHODS)}
        if args.model is None:
            print_tables(tasks, "True steps")
            return
    engine = load(args.model, device="cpu")
    true_steps = read_true_steps(engine, features, annotations, parts)
    if not args.choose:
        print_tables({**tasks, "HiERO": (true_steps, METHODS)}, "True steps")
    with tempfile.TemporaryDirectory() as folder:
        corpus = index_recordings(engine, features, parts, Path(folder))
        cut_steps = read_cut_steps(corpus, annotations, parts)
        if args.choose:
            fit_probability(cut_steps)
            choose([true_steps, cut_steps])
        else:
            print_tables({"HiERO": (cut_steps, METHODS)}, "Cut steps", CorpusHits(cut_steps, corpus, annotations))


if __name__ == "__main__":
    main()
