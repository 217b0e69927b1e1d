"""Which step of another video is the same step, by its appearance, its context and the similarity of
the videos.

Two recordings of one activity have similar steps in a similar order. Their steps are matched in
order by all monotone alignments at once (Needleman-Wunsch with sums instead of maxima). A path
through the lattice of n × m steps skips a step of one video, skips a step of the other, or matches
two steps. With cᵢⱼ the cosine of the centred steps,

    w(path) = Π over its matches exp((cᵢⱼ − c₀) / τ),   Z = Σ w(path),   Pᵢⱼ = Σ of the paths that match i with j / Z

P is the probability of a match given all other steps. Whether a video shows the same activity
follows from Z, compared with its value without matches, C(n + m, n):

    score = log Pᵢⱼ + α log(Z / C(n + m, n)) / √(n m) + β cᵢⱼ

The last term decides if the videos have nothing else in common. τ, c₀, α and β were chosen on the
development recordings of CaptainCook4D (`benchmarks.same_step` at commit 87c8e28), for annotated and for
predicted steps together.

A model keeps what its training texts talk about, and loses some of what its backbone saw. Vectors of
steps that join both (`join_features`) recognise activities better that no text ever described. Their
weight and β were chosen in docs/experiments/unseen.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from hiero.steps.segmentation import MIN_NORM
from hiero.vectors import unit_vectors

TEMPERATURE = 0.1  # τ
MIN_COSINE = 0.1  # c₀: less similar steps are skipped
VIDEO_WEIGHT = 2.0  # α
STEP_WEIGHT = 4.0  # β
JOINED_STEP_WEIGHT = 8.0  # β for joined vectors
FEATURE_WEIGHT = 0.6  # share of the backbone's features in the cosine of joined vectors
MIN_LOG_POSTERIOR = -10.0  # a step out of order is unlikely, not impossible


def correspondence(
    steps: np.ndarray, others: Sequence[np.ndarray], *, step_weight: float = STEP_WEIGHT
) -> list[np.ndarray]:
    """Scores of the steps of this video against the steps of each other video, (n, m) each."""
    if not others:
        return []
    own = centre_steps(steps)
    cosines = [own @ centre_steps(other).T for other in others]
    num = len(own)
    lengths = np.array([len(other) for other in others])
    gain = np.full((len(others), num, lengths.max()), -np.inf)
    for padded, cosine in zip(gain, cosines, strict=True):
        padded[:, : cosine.shape[1]] = (cosine - MIN_COSINE) / TEMPERATURE
    posterior, log_sum = match_posterior(gain, lengths)
    log_paths = gammaln(num + lengths + 1) - gammaln(num + 1) - gammaln(lengths + 1)
    video_score = (log_sum - log_paths) / np.sqrt(num * lengths)
    return [
        np.maximum(posterior[i, :, : lengths[i]], MIN_LOG_POSTERIOR)
        + VIDEO_WEIGHT * video_score[i]
        + step_weight * cosine
        for i, cosine in enumerate(cosines)
    ]


def join_features(vectors: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Unit vectors (n, D + F) of the steps of a video, from the model's vectors (n, D) and the backbone's features."""
    own, seen = np.sqrt(1 - FEATURE_WEIGHT), np.sqrt(FEATURE_WEIGHT)
    return np.concatenate([own * centre_steps(vectors), seen * centre_steps(features)], axis=1)


def centre_steps(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors (n, D) without the mean of the video; a single step is not centred."""
    num = len(vectors)
    return unit_vectors(vectors - vectors.mean(0) * (num - 1) / num, MIN_NORM)


def match_posterior(gain: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability that step i is matched with step j over all monotone alignments, for V videos at once."""
    num, size = gain.shape[1:]
    # Sums over later steps are sums over earlier steps with both videos reversed.
    reverse = np.broadcast_to(((lengths[:, None] - 1 - np.arange(size)) % size)[:, None], gain.shape)
    before = _path_sums(gain)
    after = _path_sums(np.take_along_axis(gain[:, ::-1], reverse, axis=2))
    log_sum = before[np.arange(len(gain)), num, lengths]
    after = np.take_along_axis(after[:, :-1, :-1][:, ::-1], reverse, axis=2)
    return before[:, :-1, :-1] + gain + after - log_sum[:, None, None], log_sum


def _path_sums(gain: np.ndarray) -> np.ndarray:
    """Log-sum of the weights of all paths to each corner of the lattice, (V, n + 1, m + 1)."""
    out = np.zeros((gain.shape[0], gain.shape[1] + 1, gain.shape[2] + 1))
    for i in range(gain.shape[1]):
        row = out[:, i].copy()  # step i is skipped
        row[:, 1:] = np.logaddexp(row[:, 1:], out[:, i, :-1] + gain[:, i])
        out[:, i + 1] = np.logaddexp.accumulate(row, axis=1)  # then skip any number of steps of the other video
    return out
