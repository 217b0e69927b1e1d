"""Probabilities that answers are right: every fitted number, and the functions that use them.

`python -m benchmarks.calibration` fits the numbers on the development half of its data and reports
on the other half how often answers were right that were given a probability. Unless a comment says
otherwise, the numbers of a function are slopes and an offset of the log-odds.
"""

from __future__ import annotations

import numpy as np

PRESENCE = (10.9, -6.8, -3.0)  # of the two statistics of `presence`
PICTURE_PRESENCE = (7.2, -1.5, -0.3)  # the same for videos with pictures
MATCH = (15.0, -5.5)
SEARCH = (8.9, -8.1)
LABEL = (7.2, -3.7)
SAME_STEP = (0.64, -6.66)
# Fitted on equally many spoken and unspoken texts (13.5 and −6.8), then shifted to odds of 3 to 7: most
# queries about a video are not spoken in it.
SPOKEN = (13.5, -7.6)
SEARCH_THRESHOLD = 0.1  # if all hits of a search are less probable, it is "probably not in these videos"


def presence(statistics: np.ndarray, weights: tuple[float, ...] = PRESENCE) -> np.ndarray:
    """Probability (Q,) that a video shows a text, from `similarity.presence_statistics`, (Q, 2)."""
    *slopes, offset = weights
    return _sigmoid(statistics @ np.array(slopes) + offset)


def match(similarity: np.ndarray, log_odds: np.ndarray | float = 0.0) -> np.ndarray:
    """Probability that a span shows a text, from its similarity with pictures; `log_odds` are prior odds."""
    slope, offset = MATCH
    return _sigmoid(slope * similarity + offset + log_odds)


def label(similarity: np.ndarray) -> np.ndarray:
    """Probability that a label is right for a step, from their similarity without pictures."""
    slope, offset = LABEL
    return np.asarray(expit(slope * similarity + offset))


def search(similarity: np.ndarray) -> np.ndarray:
    """Probability that a step shows a text, in a corpus without pictures.

    The similarity is the cosine of their vectors times the length of the text's vector, which is
    larger with pictures and class names, whose parts of a step's vector may be empty.
    """
    slope, offset = SEARCH
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
