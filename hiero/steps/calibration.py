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


def answer(similarity: np.ndarray, whole: np.ndarray, weights: tuple[float, float, float] = ANSWER) -> np.ndarray:
    """Probability that a step shows a text, given the text's similarities with the step and with its whole video.

    With `PICTURE_ANSWER`, the similarities are those of `SpanSummaries`. Otherwise they are cosines of
    vectors times the length of the text's vector, which is larger with pictures and class names, whose
    parts of a step's vector may be empty.
    """
    by_similarity, by_difference, offset = weights
    return _sigmoid(by_similarity * similarity + by_difference * (similarity - whole) + offset)


def match(
    similarity: np.ndarray, log_odds: np.ndarray | float = 0.0, weights: tuple[float, float] = MATCH
) -> np.ndarray:
    """Probability that the best of many texts names a step, from `Video.name_similarity` with pictures.

    `log_odds` are prior odds. `BUNDLED_MATCH` are the weights for texts that the user did not give.
    """
    slope, offset = weights
    return _sigmoid(slope * similarity + offset + log_odds)


def word(similarity: np.ndarray, weights: tuple[float, float]) -> np.ndarray:
    """Probability that each verb or thing describes a span, (N, Q), from the words' similarities with it.

    `VERB` and `THING` are the weights.
    """
    slope, offset = weights
    logits = (similarity - similarity.max(1, keepdims=True)) / WORD_TEMPERATURE
    return _sigmoid(slope * (logits - np.log(np.exp(logits).sum(1, keepdims=True))) + offset)


def label(similarity: np.ndarray) -> np.ndarray:
    """Probability that a label is right for a step, from their similarity without pictures."""
    slope, offset = LABEL
    return _sigmoid(slope * similarity + offset)


def same_step(score: np.ndarray, weights: tuple[float, float] = SAME_STEP) -> np.ndarray:
    """Probability that two steps are the same, from a score of `correspondence`.

    `SAME_JOINED_STEP` are the weights for scores of joined vectors.
    """
    slope, offset = weights
    return _sigmoid(slope * score + offset)


def spoken(cosine: np.ndarray) -> np.ndarray:
    """Probability that a text is spoken, from the cosine with the most similar window of a transcript."""
    slope, offset = SPOKEN
    return _sigmoid(slope * cosine + offset)


def _sigmoid(log_odds: np.ndarray) -> np.ndarray:
    """The probability of log-odds. Importing scipy's function takes long."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))
