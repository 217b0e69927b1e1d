"""Searches in the steps of a corpus: by a text, by a vector, or for the same step in other videos."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, Hit, read_features
from hiero.corpus.table import ANY_ROW, SPEECH, VIDEO_LEVEL, CorpusTables, RowFilter, Rows, vector_width
from hiero.engine.answers import join_evidence, strongest_evidence
from hiero.engine.speech import shorten_quote
from hiero.errors import InputError
from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.steps.correspondence import JOINED_STEP_WEIGHT, correspondence, join_features
from hiero.steps.grounding import MAX_OVERLAP
from hiero.vectors import cosine_similarity

OVERSAMPLING = 4  # rows fetched for each hit, because some repeat a moment
MIN_SCORED_ROWS = 500  # rows that are scored by their summaries
SPEECH_COLUMNS = ["video", "start_s", "end_s", "text"]
MIN_WORD_PROBABILITY = 0.1  # probability below which words are ignored
WINDOWS_PER_HIT = 12  # windows of speech fetched for each hit, because several fall into one step
MAX_ALIGNED_VIDEOS = 64  # videos that are compared step by step
NUM_NEAREST_STEPS = 500  # nearest steps whose videos are candidates
MAX_READ_STEPS = 20_000  # steps of all candidates, whose vectors are in memory together
CONTEXT_STEPS = 64  # steps before and after a step that are compared, too

ScoreSummaries = Callable[[list[bytes]], np.ndarray]  # similarities of a text with steps, from their summaries


@dataclass(frozen=True)
class WordEvidence:
    """Words about a step that are similar to the query: what is spoken in it, or the name that a person gave it."""

    probability: float
    quote: str | None = None  # only of speech

    def join(self, hit: Hit) -> Hit:
        """Combine the probability of a hit with that of the words, as independent evidence."""
        rests_on = strongest_evidence(hit.probability, self.probability)
        joined = float(join_evidence(np.array(hit.probability), np.array(self.probability)))
        if self.quote is None and rests_on != "pictures":
            rests_on = "name"
        return replace(hit, probability=joined, rests_on=rests_on, quote=None if rests_on == "pictures" else self.quote)


@dataclass(frozen=True)
class StepQuery:
    """Which steps a search considers, and how many it returns."""

    num: int
    videos: Sequence[str] = ()
    level: int | None = None
    exact: bool = False
    by_text: bool = False  # whether the vector is that of a text and not of a step

    def __post_init__(self) -> None:
        if self.num < 1:
            raise InputError(f"-n must be at least 1, got {self.num}")


def step_filter(videos: Sequence[str], level: int | None = None) -> RowFilter:
    """The steps of some videos, at one level or at all."""
    return RowFilter(videos, levels=() if level is None else (level,), only_steps=level is None)


def search_steps(
    tables: CorpusTables,
    query: StepQuery,
    vector: np.ndarray | None,
    score: ScoreSummaries | None = None,
    words: Mapping[str, WordEvidence] | None = None,
) -> list[Hit]:
    """The steps nearest to a vector, or without one those with words similar to the query.

    Of hits in one video that overlap, only the most probable is kept.
    """
    width = tables.width()
    if vector is not None and width is not None and len(vector) != width:
        raise InputError(
            f"{tables.uri}: its vectors have {width} numbers, the query has {len(vector)}; use the model of the corpus"
        )
    num_rows = max(OVERSAMPLING * query.num, 0 if score is None else MIN_SCORED_ROWS)
    columns = ["uid", *HIT_COLUMNS, *(["summary"] if score is not None else [])]
    where = step_filter(query.videos, query.level)
    worded = tables.read(RowFilter(uids=list(words)), [*columns, "vector"], len(words)) if words else []
    worded_rows = _with_distances(worded, vector)
    while True:
        rows = [] if vector is None else tables.nearest(vector, where, columns, num_rows, query.exact)
        near = {row["uid"] for row in rows}
        rows_to_score = [*rows, *(row for row in worded_rows if row["uid"] not in near)]
        if query.by_text and vector is not None:
            hits = _score_text(tables, rows_to_score, vector, score)
        else:
            hits = _score_vector(rows_to_score)
        if words is not None:
            hits = [words[hit.uid].join(hit) if hit.uid in words else replace(hit, rests_on="pictures") for hit in hits]
        hits = suppress_overlaps(sorted(hits, key=lambda hit: -hit.probability), query.num)
        if len(hits) >= query.num or len(rows) < num_rows:  # enough hits, or no more rows
            return hits
        num_rows *= 4


def find_words(tables: CorpusTables, text: str, query: StepQuery) -> dict[str, WordEvidence] | None:
    """The steps with words similar to a text, by uid. None if a corpus has neither speech nor names by people."""
    names = [
        row
        for row in tables.read_names()
        if (not query.videos or row["video"] in query.videos) and query.level in (None, row["level"])
    ]
    has_speech = tables.count(ANY_ROW, SPEECH) > 0
    if not has_speech and not names:
        return None
    vector = encode_minilm([text])[0]
    found = _find_spoken(tables, vector, query) if has_speech else {}
    if names:
        similarity = encode_minilm([row["label"] for row in names]) @ vector
        for row, probability in zip(names, calibration.probability(similarity, calibration.SPOKEN), strict=True):
            if row["uid"] not in found or found[row["uid"]].probability < probability:
                found[row["uid"]] = WordEvidence(float(probability))
    best = sorted(found, key=lambda uid: -found[uid].probability)[: WINDOWS_PER_HIT * query.num]
    return {uid: found[uid] for uid in best if found[uid].probability >= MIN_WORD_PROBABILITY}


def _find_spoken(tables: CorpusTables, vector: np.ndarray, query: StepQuery) -> dict[str, WordEvidence]:
    """The steps in which something similar to a vector is spoken, at one level or the finest of each video."""
    num = WINDOWS_PER_HIT * query.num
    windows = tables.nearest(vector, RowFilter(query.videos), SPEECH_COLUMNS, num, query.exact, SPEECH)
    by_video = defaultdict(list)
    names = list(dict.fromkeys(window["video"] for window in windows))
    for row in tables.read(step_filter(names, query.level), HIT_COLUMNS) if names else ():
        by_video[row["video"]].append(Hit.from_row(row, 0.0))
    best: dict[str, WordEvidence] = {}
    for window in windows:  # the most similar first
        steps = by_video[window["video"]]
        finest = max((step.level for step in steps), default=0)
        middle_s = (window["start_s"] + window["end_s"]) / 2
        for step in steps:
            if step.level == finest and step.start_s <= middle_s < step.end_s:
                probability = float(calibration.probability(1 - window["_distance"], calibration.SPOKEN))
                best.setdefault(step.uid, WordEvidence(probability, shorten_quote(window["text"])))
    return best


def _score_vector(rows: Rows) -> list[Hit]:
    """Hits of rows with a probability that depends only on their `_distance`."""
    cosines = 1 - np.array([row["_distance"] for row in rows])
    return [Hit.from_row(row, p) for row, p in zip(rows, calibration.answer(cosines, cosines), strict=True)]


def _score_text(tables: CorpusTables, rows: Rows, vector: np.ndarray, score: ScoreSummaries | None) -> list[Hit]:
    """Hits of rows with the probability that they show a text, as `Video.ask` gives it."""
    where = RowFilter(list({row["video"] for row in rows}), levels=(VIDEO_LEVEL,))
    wholes = _with_distances(tables.read(where, ["video", "summary", "vector"]), vector) if rows else []
    by_video = dict(zip((row["video"] for row in wholes), _similarities(wholes, vector, score), strict=True))
    hits = []
    for row, similarity in zip(rows, _similarities(rows, vector, score), strict=True):
        has_pictures = score is not None and row["summary"]
        weights = calibration.PICTURE_ANSWER if has_pictures else calibration.ANSWER
        whole = by_video.get(row["video"], similarity)
        hits.append(Hit.from_row(row, float(calibration.answer(similarity, whole, weights))))
    return hits


def _similarities(rows: Rows, vector: np.ndarray, score: ScoreSummaries | None) -> np.ndarray:
    """Similarities of rows with a query, as `calibration.answer` takes them."""
    out = np.linalg.norm(vector) * (1 - np.array([row["_distance"] for row in rows]))
    summarised = [i for i, row in enumerate(rows) if score is not None and row["summary"]]
    if score is not None and summarised:
        out[summarised] = score([rows[i]["summary"] for i in summarised])
    return np.asarray(out)


def _with_distances(rows: Rows, vector: np.ndarray | None) -> Rows:
    """Replace `vector` in rows by its cosine `_distance` from a query, or by 2, the largest, without a query."""
    for row in rows:
        stored = np.array([row.pop("vector")], dtype=np.float32)
        row["_distance"] = 2.0 if vector is None else 1 - float(cosine_similarity(stored, vector[None])[0, 0])
    return rows


def suppress_overlaps(hits: list[Hit], num: int) -> list[Hit]:
    """The first `num` hits that do not repeat a better one in the same video."""
    by_video: defaultdict[str, list[Hit]] = defaultdict(list)
    out: list[Hit] = []
    for hit in hits:
        if len(out) < num and all(hit.overlap(better) <= MAX_OVERLAP for better in by_video[hit.video]):
            by_video[hit.video].append(hit)
            out.append(hit)
    return out


@dataclass(frozen=True)
class StepSequence:
    """Steps of one video and level in time order, with their vectors."""

    hits: list[Hit]
    vectors: np.ndarray
    features: np.ndarray | None = None  # of the backbone, if the corpus has them

    def around(self, index: int) -> StepSequence:
        """A step and its neighbours."""
        part = slice(max(0, index - CONTEXT_STEPS), index + CONTEXT_STEPS + 1)
        return StepSequence(self.hits[part], self.vectors[part], None if self.features is None else self.features[part])


def read_step_sequences(tables: CorpusTables, rows: RowFilter) -> list[StepSequence]:
    """Steps with their vectors, sorted by level and video."""
    found = tables.read_arrow(rows, [*HIT_COLUMNS, "vector", "features"])
    vectors = np.asarray(found["vector"].combine_chunks().flatten(), dtype=np.float32)
    vectors = vectors.reshape(len(found), vector_width(found.schema))
    steps = found.drop_columns(["vector"]).to_pylist()
    hits = [Hit.from_row(row, 1.0) for row in steps]
    order = sorted(range(len(hits)), key=lambda i: (hits[i].level, hits[i].video, hits[i].start_s))
    groups = [list(group) for _, group in groupby(order, key=lambda i: (hits[i].level, hits[i].video))]
    return [
        StepSequence([hits[i] for i in group], vectors[group], read_features([steps[i]["features"] for i in group]))
        for group in groups
    ]


def find_same_steps(
    tables: CorpusTables,
    name: str,
    level: int,
    time_s: float,
    query: StepQuery,
) -> tuple[Hit, list[Hit]] | None:
    """The step of a video at a moment, and the steps of other videos that are most likely the same."""
    by_level = {s.hits[0].level: s for s in read_step_sequences(tables, RowFilter([name], levels=(VIDEO_LEVEL, level)))}
    own = by_level.get(level)
    at_time = [i for i, hit in enumerate(own.hits) if hit.start_s <= time_s < hit.end_s] if own is not None else []
    if own is None or not at_time:
        return None
    index = at_time[0]
    step, vector = own.hits[index], own.vectors[index]
    whole = by_level.get(VIDEO_LEVEL, own).vectors[0]
    names = _candidate_videos(tables, RowFilter(query.videos, name, (level,)), vector, whole, query.exact)
    others = read_step_sequences(tables, RowFilter(names, levels=(level,))) if names else []
    others = [steps.around(int(cosine_similarity(steps.vectors, vector[None])[:, 0].argmax())) for steps in others]
    near = own.around(index)
    scores, weights = _compare_sequences(near, others)
    row = near.hits.index(step)
    ranked = [
        (score, hit)
        for part, steps in zip(scores, others, strict=True)
        for score, hit in zip(part[row], steps.hits, strict=True)
    ]
    ranked = sorted(ranked, key=lambda pair: (-pair[0], pair[1].video, pair[1].start_s))[: query.num]
    return step, [replace(hit, probability=float(calibration.probability(score, weights))) for score, hit in ranked]


def _compare_sequences(
    steps: StepSequence, others: Sequence[StepSequence]
) -> tuple[list[np.ndarray], tuple[float, float]]:
    """Scores of steps against those of each other video, and the weights that give their probability."""
    sizes = {None if s.features is None else s.features.shape[1] for s in (steps, *others)}
    if None in sizes or len(sizes) > 1:  # some videos have no features of a backbone, or those of another
        return correspondence(steps.vectors, [other.vectors for other in others]), calibration.SAME_STEP
    own, *joined = (join_features(s.vectors, s.features) for s in (steps, *others) if s.features is not None)
    return correspondence(own, joined, step_weight=JOINED_STEP_WEIGHT), calibration.SAME_JOINED_STEP


def _candidate_videos(
    tables: CorpusTables, steps: RowFilter, vector: np.ndarray, whole: np.ndarray, exact: bool
) -> list[str]:
    """Videos with the steps nearest to a step and videos nearest to its video, alternating."""
    near_steps = tables.nearest(vector, steps, ["video"], NUM_NEAREST_STEPS, exact)
    near_videos = tables.nearest(whole, replace(steps, levels=(VIDEO_LEVEL,)), ["video"], MAX_ALIGNED_VIDEOS, exact)
    by_step, by_video = (list(dict.fromkeys(row["video"] for row in rows)) for rows in (near_steps, near_videos))
    names = [video for pair in zip_longest(by_step, by_video) for video in pair if video is not None]
    names = list(dict.fromkeys(names))[:MAX_ALIGNED_VIDEOS]
    while len(names) > 1 and tables.count(RowFilter(names, levels=steps.levels)) > MAX_READ_STEPS:
        names = names[: len(names) // 2]
    return names
