"""Probabilities that answers are right: every fitted number, and the functions that use them.

The numbers are slopes and an offset of the log-odds. Each was fitted on development data by the
benchmark beside it. `python -m benchmarks.calibration` reports how often answers were right that were
given a probability, on data that it did not fit.
"""

from __future__ import annotations

import numpy as np

PRESENCE = (10.9, -6.8, -3.0)  # benchmarks.captaincook4d words
PICTURE_PRESENCE = (7.2, -1.5, -0.3)  # benchmarks.words score, on all of its few clips
MATCH = (15.0, -5.5)  # chosen on the same clips, not fitted
SEARCH = (8.7, -7.8)  # benchmarks.calibration features
PICTURE_SEARCH = (5.8, -2.7)  # benchmarks.calibration clips
LABEL = (7.2, -3.7)  # benchmarks.calibration features
SAME_STEP = (0.64, -6.66)  # benchmarks.same_step --choose, on the first 20 hits of each step
# benchmarks.speech, on equally many spoken and unspoken texts (13.5 and −6.8), then shifted to odds of
# 3 to 7: most queries about a video are not spoken in it.
SPOKEN = (13.5, -7.6)
# If all hits of a search are less probable, it is "probably not in these videos". Chosen on the clips of
# benchmarks.calibration: 15 % of such hits were right.
SEARCH_THRESHOLD = 0.2


def presence(statistics: np.ndarray, weights: tuple[float, ...] = PRESENCE) -> np.ndarray:
    """Probability (Q,) that a video shows a text, from `similarity.presence_statistics`, (Q, 2)."""
    *slopes, offset = weights
    return _sigmoid(statistics @ np.array(slopes) + offset)


def match(similarity: np.ndarray, log_odds: np.ndarray | float = 0.0) -> np.ndarray:
    """Probability that the best of many texts names a step, from its similarity with pictures.

    `log_odds` are prior odds.
    """
    slope, offset = MATCH
    return _sigmoid(slope * similarity + offset + log_odds)


def label(similarity: np.ndarray) -> np.ndarray:
    """Probability that a label is right for a step, from their similarity without pictures."""
    slope, offset = LABEL
    return _sigmoid(slope * similarity + offset)


def search(similarity: np.ndarray, weights: tuple[float, float] = SEARCH) -> np.ndarray:
    """Probability that a step of a corpus shows a text.

    With `PICTURE_SEARCH`, the similarity is that with pictures. Otherwise it is the cosine of their
    vectors times the length of the text's vector, which is larger with pictures and class names, whose
    parts of a step's vector may be empty.
    """
    slope, offset = weights
    return _sigmoid(slope * similarity + offset)


def same_step(score: np.ndarray) -> np.ndarray:
    """Probability that two steps are the same, from a score of `correspondence`."""
    slope, offset = SAME_STEP
    return _sigmoid(slope * score + offset)


def spoken(cosine: np.ndarray) -> np.ndarray:
    """Probability that a text is spoken, from the cosine with the most similar window of a transcript."""
    slope, offset = SPOKEN
    return _sigmoid(slope * cosine + offset)


def _sigmoid(log_odds: np.ndarray) -> np.ndarray:
    """The probability of log-odds. Importing scipy's function takes long."""
    return np.asarray(1 / (1 + np.exp(-log_odds)))
