"""`ask`, `search` and `steps` on real first-person videos: the part of `python -m benchmarks.words`
that needs no training.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import hiero
from benchmarks.captaincook4d_data import presence_statistics
from hiero.corpus.corpus import Corpus
from hiero.engine import Engine, Video
from hiero.evaluation.metrics import procedure_scores
from hiero.steps.grounding import score_spans

MIN_IOU = 0.3
NUM_BINS = 10  # of probabilities
RATE = 10  # samples a second at which steps are compared
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


def join_clips(clips: Sequence[Path], path: Path, width: int = 480, height: int = 270, rate: int = 25) -> list[float]:
    """Write the clips one after the other into a video of constant rate; returns where each begins,
    and the end, in seconds.
    """
    import av

    boundaries = [0.0]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = width, height, "yuv420p", 4_000_000
        for clip in clips:
            with av.open(str(clip)) as container:
                frames = [
                    (float(f.pts * f.time_base), f.reformat(width, height, "rgb24").to_ndarray())
                    for f in container.decode(video=0)
                ]
            times_s = np.array([time_s for time_s, _ in frames]) - frames[0][0]
            num_frames = int((times_s[-1] + np.median(np.diff(times_s))) * rate)
            for i in range(num_frames):
                # the frame that is shown at i / rate
                index = max(0, int(np.searchsorted(times_s, i / rate, side="right")) - 1)
                for packet in stream.encode(av.VideoFrame.from_ndarray(frames[index][1], "rgb24")):
                    out.mux(packet)
            boundaries.append(boundaries[-1] + num_frames / rate)
        for packet in stream.encode():
            out.mux(packet)
    return boundaries


def score(clips: Path, folder: Path) -> None:
    """Print all tables."""
    engine = hiero.load()
    chores = sorted((clips / "chores").glob("*.mp4"))
    names = [path.stem.replace("_", " ") for path in chores]
    kitchen = [next(p for p in sorted(clips.iterdir()) if key in p.name and p.is_file()) for key in CAPTIONS]
    captions = [caption for group in CAPTIONS.values() for caption in group]
    owners = np.repeat(np.arange(len(CAPTIONS)), [len(group) for group in CAPTIONS.values()])
    videos = {path: engine.read(path) for path in [*chores, *kitchen, *sorted((clips / "procedures").glob("*.mp4"))]}

    ranks = search_ranks(engine, [videos[path] for path in chores], names, np.arange(len(chores)), folder / "chores")
    print(f"chores, search: {_recalls(ranks)}")
    ranks = ask_ranks(engine, chores, names, np.arange(len(chores)), folder / "chores.mp4")
    print(f"chores as one video, ask: {_recalls(ranks)}")
    ranks = search_ranks(engine, [videos[path] for path in kitchen], captions, owners, folder / "kitchen")
    print(f"kitchen clips, search: {_by_clip(ranks, owners)}")
    ranks = ask_ranks(engine, kitchen, captions, owners, folder / "kitchen.mp4")
    print(f"kitchen clips as one video, ask: {_by_clip(ranks, owners)}")
    truth = json.loads((clips / "procedures" / "steps.json").read_text())
    grounding(videos, {clips / "procedures" / f"{name}.mp4": steps for name, steps in truth.items()})
    queries = [(videos[path], name) for path, name in zip(chores, names, strict=True)]
    queries += [
        (videos[path], caption) for path, group in zip(kitchen, CAPTIONS.values(), strict=True) for caption in group
    ]
    queries += [
        (videos[clips / "procedures" / f"{name}.mp4"], text) for name, steps in truth.items() for *_, text in steps
    ]
    presence(queries)


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


def ask_ranks(engine: Engine, clips: Sequence[Path], queries: list[str], owners: np.ndarray, path: Path) -> np.ndarray:
    """The rank of the first answer that lies in the right clip, in a video of all clips; 99 where
    none of ten does.
    """
    boundaries = join_clips(clips, path)
    out = []
    for answer, owner in zip(engine.read(path).ask(queries, num=10), owners, strict=True):
        middles = [(match.start_s + match.end_s) / 2 for match in answer.matches]
        ranked = [int(np.searchsorted(boundaries, middle, side="right")) - 1 for middle in middles]
        out.append(ranked.index(owner) if owner in ranked else 99)
    return np.array(out)


def grounding(videos: dict[Path, Video], truth: dict[Path, list]) -> None:
    """R1@.3 and R5@.3 of texts of steps; F1 of steps, beside equal parts."""
    hits, gains = [], {}
    for path, steps in truth.items():
        video = videos[path]
        for (start, end, _), answer in zip(steps, video.ask([text for *_, text in steps]), strict=True):
            overlaps = [_iou((start, end), (match.start_s, match.end_s)) for match in answer.matches]
            hits.append([overlaps[0] >= MIN_IOU, max(overlaps) >= MIN_IOU])
        level = video.steps([len(steps)], labels=[]).levels[0]
        spans = [(start, end) for start, end, _ in steps]
        cuts = np.array([step.start_s for step in level]), equal_parts(len(steps), video.duration_s)
        gains[path.stem] = tuple(step_f1(starts_s, spans, video.duration_s) for starts_s in cuts)
    r1, r5 = 100 * np.mean(hits, axis=0)
    print(f"procedures, ask: R1@.3 {r1:.0f}, R5@.3 {r5:.0f} of {len(hits)} texts")
    print(
        f"procedures, steps: F1 (equal parts) {', '.join(f'{n} {a:.0f} ({b:.0f})' for n, (a, b) in gains.items())}; ",
        end="",
    )
    print(f"mean gain {np.mean([a - b for a, b in gains.values()]):+.1f}")


def equal_parts(num: int, duration_s: float) -> np.ndarray:
    """When each of `num` equal parts of a video begins."""
    return np.arange(num) * duration_s / num


def step_f1(starts_s: np.ndarray, steps: Sequence[tuple[float, float]], duration_s: float) -> float:
    """F1 in percent of steps that begin at some times, against true ones; seconds outside these do not count."""
    times_s = np.arange(int(duration_s * RATE)) / RATE
    truth = np.full(len(times_s), -1)
    for i, (start_s, end_s) in enumerate(steps):
        truth[(times_s >= start_s) & (times_s < end_s)] = i
    found, inside = np.searchsorted(starts_s[1:], times_s, side="right"), truth >= 0
    return 100 * procedure_scores(found[inside], truth[inside]).f1


def presence(queries: list[tuple[Video, str]], seed: int = 0) -> None:
    """How well `ask` knows that something is not there: each text of its own video, and of another one."""
    random = np.random.default_rng(seed)
    rows, truth, groups = [], [], []
    for group, (video, text) in enumerate(queries):
        others = [other for other, _ in queries if other is not video]
        for is_there, shown in ((1, video), *((0, others[i]) for i in random.choice(len(others), 4, replace=False))):
            similarity = shown.sight.similarity([text])
            scores = score_spans(similarity, shown.sight.spans, shown.clock.spacing_s, shown.sight.temperature)
            best = int(scores[0].argmax())
            rows.append(presence_statistics(similarity, shown.sight.spans, [best])[0])
            truth.append(is_there)
            groups.append(group)
    x, y = np.array(rows), np.array(truth)
    weights = np.where(y == 1, 1.0, 0.25)  # asked as often of what is there as of what is not
    held_out = np.zeros(len(y))
    for fold in range(5):  # by text: no text is in both parts
        test = np.array(groups) % 5 == fold
        held_out[test] = _sigmoid(x[test], fit_logistic(x[~test], y[~test], weights[~test]))
    print(f"presence, held out in five folds: AUC {auc(held_out, y):.2f}, ECE {_ece(held_out, y, weights):.3f}")
    print(f"fitted on all: {np.round(fit_logistic(x, y, weights), 2).tolist()} ({len(queries)} texts)")


def fit_logistic(x: np.ndarray, y: np.ndarray, weights: np.ndarray, penalty: float = 0.1) -> np.ndarray:
    """Slopes and offset of a logistic regression, by Newton's method."""
    ones = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    beta = np.zeros(ones.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-ones @ beta))
        gradient = ones.T @ (weights * (p - y)) + penalty * np.append(beta[:-1], 0)
        hessian = (ones * (weights * p * (1 - p))[:, None]).T @ ones + penalty * np.diag([*[1.0] * x.shape[1], 1e-6])
        beta -= np.linalg.solve(hessian, gradient)
    return beta


def _sigmoid(x: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x @ beta[:-1] - beta[-1]))


def auc(scores: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(scores[y == 1][:, None] > scores[y == 0][None]))


def _ece(p: np.ndarray, y: np.ndarray, weights: np.ndarray, bins: int = 5) -> float:
    index = np.minimum((p * bins).astype(int), bins - 1)
    gaps = [
        weights[index == b].sum() * abs(np.average((p - y)[index == b], weights=weights[index == b]))
        for b in range(bins)
        if (index == b).any()
    ]
    return float(sum(gaps) / weights.sum())


def bins(said: np.ndarray) -> Iterator[tuple[float, float, np.ndarray]]:
    """Bins of equal width that hold answers, in percent."""
    index = np.minimum((said * NUM_BINS).astype(int), NUM_BINS - 1)
    for i in range(NUM_BINS):
        if (index == i).any():
            yield 100 * i / NUM_BINS, 100 * (i + 1) / NUM_BINS, index == i


def calibration_error(said: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    """Expected calibration error: stated probabilities against how often answers were right, over bins."""
    gaps = weights * (said - truth)
    return float(sum(abs(gaps[inside].sum()) for *_, inside in bins(said)) / weights.sum())


def _iou(a: tuple[float, float], b: tuple[float, float]) -> float:
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0])) / (max(a[1], b[1]) - min(a[0], b[0]))


def _recalls(ranks: np.ndarray) -> str:
    return ", ".join(f"R@{k} {100 * np.mean(ranks < k):.0f}" for k in (1, 3, 5)) + f" of {len(ranks)}"


def _by_clip(ranks: np.ndarray, owners: np.ndarray) -> str:
    cells = [f"{name} {(ranks[owners == i] == 0).sum()} of {(owners == i).sum()}" for i, name in enumerate(CAPTIONS)]
    return ", ".join(cells)
