"""Whether fine-tuning helps: both ways to adapt a model are scored on corrected videos that they did not learn from."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hiero.engine import Video
from hiero.evaluation.metrics import grounding_recall
from hiero.storage.files import read_json, write_text
from hiero.types import AnnotatedStep, Step

NUM_GROUPS = 2  # fine-tuning is repeated once without each group of videos
MIN_GAIN = 0.01  # by which fine-tuning must be better to be chosen

Annotated = Sequence[tuple[Video, Sequence[AnnotatedStep]]]


class HeldOutScores(NamedTuple):
    """Shares of the steps of held-out videos that get the right name, and whose text is found by its first answer."""

    names: float
    answers: float

    @property
    def mean(self) -> float:
        return (self.names + self.answers) / 2

    def __str__(self) -> str:
        return f"{self.names:.0%} of names and {self.answers:.0%} of answers right"


def score_held_out(videos: Annotated, names: Sequence[str]) -> np.ndarray:
    """Whether each step gets the right one of the names and is found by its text, (S, 2), by the videos' engine."""
    rows = []
    for video, steps in videos:
        level = [Step(str(i), s.start_s, s.end_s, 0, origin="person") for i, s in enumerate(steps)]
        named = [best[0][0] for best in video.likely_labels(level, names, num=1)]
        matches = [answer.matches[0] for answer in video.ask([step.text for step in steps], num=1)]
        for step, name, match in zip(steps, named, matches, strict=True):
            found = grounding_recall([np.array([[match.start_s, match.end_s]])], np.array([[step.start_s, step.end_s]]))
            rows.append((name == step.text.strip(), found[0, 0]))
    return np.array(rows, dtype=float).reshape(-1, 2)


def cross_validate(
    num_videos: int,
    score_group: Callable[[list[int], list[int]], tuple[np.ndarray, np.ndarray]],
    folder: Path,
    fingerprint: str,
) -> tuple[HeldOutScores, HeldOutScores]:
    """Scores without and with fine-tuning. Groups that an interrupted run has finished are read from the folder.

    `score_group` learns from some videos and returns both scores of the steps of the others.
    """
    scores: list[list[np.ndarray]] = []
    for group in range(NUM_GROUPS):
        held_out = list(range(group, num_videos, NUM_GROUPS))
        learned = [i for i in range(num_videos) if i not in held_out]
        file = folder / f"{hashlib.sha256(fingerprint.encode()).hexdigest()[:16]}-{group}.json"
        if not file.is_file():
            found = [rows.tolist() for rows in score_group(learned, held_out)]
            folder.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(found))
        scores.append([np.array(rows).reshape(-1, 2) for rows in read_json(file)])
    without, tuned = (np.concatenate(rows).mean(0) for rows in zip(*scores, strict=True))
    shutil.rmtree(folder)
    return HeldOutScores(*without.tolist()), HeldOutScores(*tuned.tolist())
