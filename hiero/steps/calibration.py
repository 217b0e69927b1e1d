"""Probabilities that answers are right: every fitted number, and the functions that use them.

The numbers are slopes and an offset of the log-odds. Each was fitted on development data by the
benchmark beside it. `python -m benchmarks.calibration` reports how often answers were right that were
given a probability, on data that it did not fit.
"""

from __future__ import annotations

import numpy as np

# Similarity, and its difference from that of the whole video; offset. benchmarks.calibration features, clips --egtea.
ANSWER = (9.90, 1.39, -7.39)
PICTURE_ANSWER = (7.73, -1.96, -3.72)
MATCH = (2.6, -6.3)  # benchmarks.egtea names
BUNDLED_MATCH = (4.0, -10.5)  # bundled labels, of which the best of 1,320 is seldom right: benchmarks.egtea names
# Log-probability of a word among its kind, and offset: benchmarks.egtea words, and the steps of four short clips.
VERB, THING = (1.24, 0.44), (1.64, 1.01)
WORD_TEMPERATURE = 0.1
LABEL = (7.2, -3.7)  # benchmarks.calibration features
SAME_STEP = (0.75, -8.71)  # benchmarks.calibration features, on the first 20 hits of each step
SAME_JOINED_STEP = (0.75, -5.9)  # the same for joined vectors: benchmarks.cross_validation same-step
# benchmarks.speech, on equally many spoken and unspoken texts (13.5 and −6.8), then shifted to `PRIOR_ODDS`
SPOKEN = (13.5, -7.6)
PRIOR_ODDS = 3 / 7  # most texts that people look for in a video are not in it


def probability(score: np.ndarray, weights: tuple[float, float], log_odds: np.ndarray | float = 0.0) -> np.ndarray:
    """Probability for a score, from a slope and an offset of the log-odds, and prior log-odds.

    The score of a name is `Video.name_similarity`, that of speech a cosine, and that of the same step one
    of `correspondence`.
    """
    slope, offset = weights
    return _sigmoid(slope * score + offset + log_odds)


def answer(similarity: np.ndarray, whole: np.ndarray, weights: tuple[float, float, float] = ANSWER) -> np.ndarray:
    """Probability that a step shows a text, given the text's similarities with the step and with its whole video.

    With `PICTURE_ANSWER`, the similarities are those of `SpanSummaries`. Otherwise they are cosines of
    vectors times the length of the text's vector, which is larger with pictures and class names, whose
    parts of a step's vector may be empty.
    """
    by_similarity, by_difference, offset = weights
    return _sigmoid(by_similarity * similarity + by_difference * (similarity - whole) + offset)


def word(similarity: np.ndarray, weights: tuple[float, float]) -> np.ndarray:
    """Probability that each verb or thing describes a span, (N, Q), from the words' similarities with it."""
    logits = (similarity - similarity.max(1, keepdims=True)) / WORD_TEMPERATURE
    return probability(logits - np.log(np.exp(logits).sum(1, keepdims=True)), weights)


def _sigmoid(log_odds: np.ndarray) -> np.ndarray:
    """The probability of log-odds. Importing scipy's function takes long."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))
