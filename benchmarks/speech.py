"""How often does `ask` find a moment in a transcript, and does it know that something is not said?

    python -m benchmarks.speech GOALSTEP.json

Ego4D Goal-Step describes each step twice: freely ("Slice oranges") and by a category ("Cut orange").
The free descriptions are the utterances, shifted by some seconds, and the categories are the queries.
A query is found if the best match overlaps with an utterance of its category. Absent queries are
categories of other videos. No picture is read.

Half of the videos, by the hash of their names, fit the settings of hiero/engine/speech.py, which are
printed under `fit`. The other half is scored.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.scores import auc, fit_logistic
from hiero.engine import speech as speech_evidence
from hiero.engine.speech import SpeechEvidence, speech_probability
from hiero.engine.transcripts import Transcript
from hiero.networks.minilm import encode_minilm
from hiero.steps import calibration
from hiero.storage.files import read_json
from hiero.types import Clock, Utterance

WORDS_PER_S = 2.5
SHIFT_S = 4.0  # standard deviation of how early or late words come
NUM_ABSENT = 10  # queries of each video that are not in it
CLOCK = Clock(1.0, 1.0)
CHANCE = "chance"


@dataclass
class Case:
    """A video: its transcript, queries, and the spans of the answers to each; absent queries have none."""

    transcript: Transcript
    queries: list[str]
    answers: list[list[tuple[float, float]]]
    num_nodes: int


def read_cases(path: Path, seed: int = 0) -> tuple[list[Case], list[Case]]:
    """Cases of the development half and of the other one."""
    rng = np.random.default_rng(seed)
    videos = read_json(path)["videos"]
    names = sorted({_category(step) for video in videos for step in video["segments"]})
    halves: tuple[list[Case], list[Case]] = [], []
    for video in videos:
        by_category: dict[str, list[Utterance]] = {}
        for step in video["segments"]:
            text = step["step_description"].strip()
            if text:
                start_s = max(0.0, step["start_time"] + rng.normal(0, SHIFT_S))
                by_category.setdefault(_category(step), []).append(
                    Utterance(start_s, start_s + max(1.0, len(text.split()) / WORDS_PER_S), text)
                )
        if len(by_category) < 3:
            continue
        utterances = sorted((u for group in by_category.values() for u in group), key=lambda u: u.start_s)
        absent = rng.permutation([name for name in names if name not in by_category])[:NUM_ABSENT].tolist()
        answers = [[(u.start_s, u.end_s) for u in group] for group in by_category.values()]
        num_nodes = int(max(video["end_time"], utterances[-1].end_s)) + 1
        case = Case(
            Transcript(tuple(utterances)), [*by_category, *absent], [*answers, *([] for _ in absent)], num_nodes
        )
        digest = hashlib.sha256(video["video_uid"].encode()).digest()
        halves[digest[0] % 2].append(case)
    return halves


def _category(step: dict) -> str:
    return step["step_category"].split(": ", 1)[-1]


def answer(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """For each query the best span in seconds, (Q, 2), and the largest similarity, (Q,)."""
    speech = SpeechEvidence.from_transcript(case.transcript, CLOCK, case.num_nodes)
    similarity = speech.similarity(case.queries)
    spans = np.unique(speech.spans, axis=0)
    best = speech_probability(similarity, spans, CLOCK.spacing_s).argmax(1)
    return spans[best].astype(float), similarity.max(1)


def answer_by_words(case: Case) -> np.ndarray:
    """Span of the utterance that shares most words with each query, (Q, 2), as a search for words finds it."""
    word_sets = [set(u.text.lower().strip(".").split()) for u in case.transcript]
    out = []
    for query in case.queries:
        words = set(query.lower().split())
        best = max(range(len(word_sets)), key=lambda i: len(words & word_sets[i]) / len(words | word_sets[i]))
        out.append((case.transcript.utterances[best].start_s, case.transcript.utterances[best].end_s))
    return np.array(out)


def hits(case: Case, spans: np.ndarray) -> list[bool]:
    """Whether the span of each present query overlaps with one of its utterances."""
    return [
        any(start < b and a < end for a, b in true)
        for (start, end), true in zip(spans, case.answers, strict=True)
        if true
    ]


def collect(cases: list[Case]) -> dict[str, np.ndarray]:
    """Hits of each method, similarity and presence of all queries."""
    overlaps, by_words, peak, present, chance = [], [], [], [], []
    for case in cases:
        spans, similarity = answer(case)
        overlaps += hits(case, spans)
        by_words += hits(case, answer_by_words(case))
        peak += similarity.tolist()
        present += [bool(true) for true in case.answers]
        chance += [len(true) / len(case.transcript) for true in case.answers if true]
    arrays = {"found": overlaps, "words": by_words, "peak": peak, "present": present, CHANCE: chance}
    return {name: np.array(values, dtype=float) for name, values in arrays.items()}


def fit_presence(peak: np.ndarray, present: np.ndarray) -> list[float]:
    """Slope and offset of a logistic regression, in which present and absent queries have half of the weight each."""
    weights = np.where(present > 0, 0.5 / present.sum(), 0.5 / (1 - present).sum())
    return fit_logistic(peak[:, None], present, weights, penalty=0.0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goalstep", type=Path)
    args = parser.parse_args()
    development, test = read_cases(args.goalstep)
    encode_minilm(sorted({text for case in development + test for text in case.queries}))
    dev = collect(development)
    report = {"fit": {"SPOKEN": [round(value, 1) for value in fit_presence(dev["peak"], dev["present"])]}}
    for name in (0.03, 0.05, 0.1, 0.2):
        speech_evidence.SPEECH_TEMPERATURE, shipped = name, speech_evidence.SPEECH_TEMPERATURE
        report["fit"][f"found, SPEECH_TEMPERATURE={name}"] = round(100 * float(collect(development)["found"].mean()), 1)
        speech_evidence.SPEECH_TEMPERATURE = shipped
    for name in (1, 2, 3):
        speech_evidence.MAX_WINDOW, shipped = name, speech_evidence.MAX_WINDOW
        report["fit"][f"found, MAX_WINDOW={name}"] = round(100 * float(collect(development)["found"].mean()), 1)
        speech_evidence.MAX_WINDOW = shipped
    out = collect(test)
    slope, offset = calibration.SPOKEN
    probability = 1 / (1 + np.exp(-slope * out["peak"] - offset))
    report["test"] = {
        "videos": len(test),
        "queries said": int(out["present"].sum()),
        "queries absent": int((1 - out["present"]).sum()),
        "found %": round(100 * float(out["found"].mean()), 1),
        "found by shared words %": round(100 * float(out["words"].mean()), 1),
        "found by chance %": round(100 * float(out[CHANCE].mean()), 1),
        "present: AUC": round(auc(out["peak"], out["present"]), 3),
        "present ≥ 0.5 of those said %": round(100 * float((probability[out["present"] > 0] >= 0.5).mean()), 1),
        "present ≥ 0.5 of those absent %": round(100 * float((probability[out["present"] == 0] >= 0.5).mean()), 1),
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
