"""Prototypes of named steps, learned at once from a few corrected videos, without training.

Each view of a video (nodes of the model, class probabilities, pictures) gives unit vectors x (T, D).
For each named step k of the corrected videos, three things are kept: its prototype, which is the mean
of its nodes; a readout, which is fitted against all other nodes; and its positions in the videos:

    prototype_k = mean of x over the nodes of step k, unit length
    readout_k   = (XᵀX/n + λI)⁻¹ Xᵀ(y_k − ȳ_k)/n / √ȳ_k       y_k is 1 inside the step, X all n nodes: ridge regression
    position_k  = a Gaussian around each relative time at which it was corrected

The similarity of the name of such a step with a node is that of the model plus

    w_p x·prototype + n/(n+1) (w_r x·readout + w_t log position)        n: how often the step was seen

The weights were chosen on development recipes by `python -m benchmarks.adaptation`; see docs/results.md.

The steps of one video compete for names. A name that was seen once in each corrected video is given to
about one step: its price rises until the steps that still prefer it do not exceed that
(`price_names`).

A question for a named step is answered by the span that ranks best. Nodes that fit other named steps as
well count less, and so do spans of an unusual length (`StepPrototypes.length_weights`). Both weights were chosen on
other folds; `python -m benchmarks.cross_validation corrected` measures them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hiero.errors import InputError
from hiero.model.model_folder import PROTOTYPE_FILES
from hiero.steps.grounding import TEMPERATURE
from hiero.steps.similarity import soft_maximum
from hiero.storage.files import load_arrays, read_json, save_arrays, write_text
from hiero.types import AnnotatedStep, Clock
from hiero.vectors import unit_vectors

ARRAYS_FILE, SETTINGS_FILE = PROTOTYPE_FILES
MAX_LABELS = 20_000
RIDGE = 0.003  # λ for unit vectors
PROTOTYPE_WEIGHT, READOUT_WEIGHT, POSITION_WEIGHT = 0.25, 0.2, 0.22  # w_p, w_r and w_t
POSITION_WIDTH = 0.05  # width of the Gaussian as a share of the video, plus half the length of the step
POSITION_FLOOR = 0.05  # density at positions where the step was never seen
POSITION_USUAL = 0.3  # density that does not change the similarity
PRICE_TEMPERATURE = 0.05  # of the choice between names
PRICE_ROUNDS = 60
RIVAL_WEIGHT = 0.7  # of the most similar named step, which is subtracted from the similarity of each
LENGTH_WEIGHT = 2.0  # of the squared difference from the usual logarithm of the length
MIN_LENGTH = 1e-6  # share of a video
MAX_TAKEN = 0.5  # share of a span that better names may take
MIN_TEXT_SIMILARITY = 0.6  # cosine of sentence vectors above which a text may mean a named step


@dataclass(frozen=True)
class CorrectedVideo:
    """Views of a video and its named steps."""

    views: Mapping[str, np.ndarray]
    steps: Sequence[AnnotatedStep]
    clock: Clock

    @property
    def num_nodes(self) -> int:
        return len(next(iter(self.views.values())))

    def span(self, step: AnnotatedStep) -> tuple[int, int]:
        return self.clock.span(step.start_s, step.end_s, self.num_nodes)


@dataclass(frozen=True)
class StepPrototypes:
    """Prototypes, readouts and positions of K named steps."""

    labels: tuple[str, ...]
    num_steps: np.ndarray
    means: dict[str, np.ndarray]
    readouts: dict[str, np.ndarray]
    positions: np.ndarray
    max_repeats: np.ndarray  # how often a video had each step at most

    def share_names(self, similarity: np.ndarray, texts: Sequence[str], lengths: np.ndarray, whole: bool) -> np.ndarray:
        """Similarity (Q, n) of texts with the steps of a video after they have competed for learned names.

        `lengths` are the steps' shares of the video. A part of a step, if they are not `whole`, takes up
        the name by its length.
        """
        if not self.labels:
            return similarity
        numbers = self._find(texts)
        limits = np.where(numbers >= 0, self.max_repeats[numbers], np.inf)
        use = np.ones_like(similarity)
        if not whole:
            sums = np.bincount(self.positions[:, 2].astype(int), self.positions[:, 1], len(self.labels))
            usual = np.maximum(sums / self.num_steps, 1e-9)[numbers]
            use = np.minimum(1.0, lengths[None] / usual[:, None])
        priced = similarity - price_names(similarity, use, limits)[:, None]
        # The name that a step gets keeps its similarity, and no other rises above it.
        best = priced.argmax(0)
        each = np.arange(len(best))
        return np.minimum(similarity, priced + (similarity - priced)[best, each])

    def length_weights(self, numbers: Sequence[int], lengths: np.ndarray) -> np.ndarray:
        """How usual lengths (N,), as shares of the video, are for some named steps, (len(numbers), N); at most 1."""
        weights = []
        for number in numbers:
            known = np.log(np.maximum(self.positions[self.positions[:, 2] == number, 1], MIN_LENGTH))
            trust = LENGTH_WEIGHT * len(known) / (len(known) + 1)
            weights.append(np.exp(-trust / 2 * (np.log(lengths) - known.mean()) ** 2))
        return np.array(weights).reshape(len(numbers), len(lengths))

    def match(
        self, texts: Sequence[str], text_vectors: np.ndarray, label_vectors: np.ndarray
    ) -> list[tuple[int, float] | None]:
        """The named step that each text means, with a certainty, or None.

        A text that is not a name means the step with the most similar name, unless that name is
        among the texts too: "add pepper" is not "add salt" if both are given.
        """
        named = self._find(texts)
        cosines = text_vectors @ label_vectors.T
        cosines[:, named[named >= 0]] = -1.0
        best = np.where(named >= 0, named, cosines.argmax(1))
        certainty = (cosines[np.arange(len(texts)), best] - MIN_TEXT_SIMILARITY) / (1 - MIN_TEXT_SIMILARITY)
        certainty[named >= 0] = 1.0
        return [(int(i), float(p)) if p > 0 else None for i, p in zip(best, certainty, strict=True)]

    def _find(self, texts: Sequence[str]) -> np.ndarray:
        """The number of the step that each text names exactly, or −1."""
        by_name = {normalise_name(label): i for i, label in enumerate(self.labels)}
        return np.array([by_name.get(normalise_name(text), -1) for text in texts], dtype=int)

    def similarity(self, numbers: Sequence[int], views: Mapping[str, np.ndarray]) -> np.ndarray:
        """Addition to the similarity of some named steps with the nodes of a video, (len(numbers), T)."""
        num_nodes = len(next(iter(views.values())))
        out = np.zeros((len(numbers), num_nodes), np.float32)
        trust = self.num_steps / (self.num_steps + 1)  # a single example says little
        for name, rows in views.items():
            if name in self.means and rows.shape[1] == self.means[name].shape[1]:
                directions = PROTOTYPE_WEIGHT * self.means[name] + READOUT_WEIGHT * trust[:, None] * self.readouts[name]
                out += directions[list(numbers)] @ rows.T
        times = (np.arange(num_nodes) + 0.5) / num_nodes
        for row, number in enumerate(numbers):
            middles, lengths = self.positions[self.positions[:, 2] == number, :2].T
            width = POSITION_WIDTH + lengths.mean() / 2
            density = np.exp(-0.5 * ((times[None] - middles[:, None]) / width) ** 2).mean(0)
            log_position = np.log(density + POSITION_FLOOR) - np.log(POSITION_USUAL)
            out[row] += POSITION_WEIGHT * trust[number] * log_position
        return out

    def save(self, folder: Path, metadata: Mapping[str, Any] | None = None) -> None:
        """Write the prototypes into a model folder."""
        arrays = {f"means.{name}": value for name, value in self.means.items()}
        arrays |= {f"readouts.{name}": value for name, value in self.readouts.items()}
        arrays["positions"] = self.positions.astype(np.float32)
        arrays |= {"num_steps": self.num_steps.astype(np.int32), "max_repeats": self.max_repeats.astype(np.int32)}
        save_arrays(folder / ARRAYS_FILE, arrays)
        document = {"version": 1, "labels": list(self.labels), **(metadata or {})}
        write_text(folder / SETTINGS_FILE, json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> StepPrototypes | None:
        """Read the prototypes of a model folder; None if it has none."""
        if not (folder / ARRAYS_FILE).is_file():
            return None
        document = read_json(folder / SETTINGS_FILE)
        arrays = load_arrays(folder / ARRAYS_FILE)
        try:
            labels = tuple(str(label) for label in document["labels"])
            means, readouts = (_select_arrays(arrays, prefix) for prefix in ("means.", "readouts."))
            positions, num_steps, max_repeats = (arrays[name] for name in ("positions", "num_steps", "max_repeats"))
            lengths = {len(value) for value in (labels, num_steps, max_repeats, *means.values(), *readouts.values())}
            numbers = set(positions[:, 2].astype(int).tolist())
            is_whole = len(lengths) == 1 and set(means) == set(readouts) and 0 < len(labels) <= MAX_LABELS
            if not is_whole or positions.shape[1] != 3 or numbers != set(range(len(labels))):
                raise ValueError("the arrays do not fit each other")
            if not all(bool(np.isfinite(value).all()) for value in arrays.values()):
                raise ValueError("numbers must be finite")
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise InputError(f"{folder / ARRAYS_FILE}: not step prototypes ({error}); run hiero adapt again") from error
        return cls(labels, num_steps, means, readouts, positions, max_repeats)


NOTHING_LEARNED = StepPrototypes((), np.zeros(0, int), {}, {}, np.zeros((0, 3)), np.zeros(0, int))


def _select_arrays(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): value.astype(np.float32) for name, value in arrays.items() if name.startswith(prefix)
    }


def normalise_name(text: str) -> str:
    """A name without differences in case, spaces and final punctuation."""
    return " ".join(text.split()).casefold().rstrip(".! ")


def learn_prototypes(videos: Sequence[CorrectedVideo]) -> StepPrototypes:
    """Learn prototypes of all named steps."""
    labels: dict[str, str] = {}  # by normalised name, as it was first written
    for video in videos:
        for step in video.steps:
            labels.setdefault(normalise_name(step.text), step.text.strip())
    if not labels:
        raise InputError("no step has a name; name the steps of some videos first, or import them (hiero import-steps)")
    if len(labels) > MAX_LABELS:
        raise InputError(f"steps must have at most {MAX_LABELS} different names, got {len(labels)}")
    numbers = {name: number for number, name in enumerate(labels)}
    spans = [[(numbers[normalise_name(step.text)], *video.span(step)) for step in video.steps] for video in videos]
    means, readouts = {}, {}
    for view in sorted(set.intersection(*(set(video.views) for video in videos))):
        sums = np.zeros((len(labels), videos[0].views[view].shape[1]))
        inside = np.zeros((len(labels), sums.shape[1]))
        gram = np.zeros((sums.shape[1], sums.shape[1]))
        total = np.zeros(sums.shape[1])
        lengths = np.zeros(len(labels))
        num_nodes = 0
        for video, video_spans in zip(videos, spans, strict=True):
            rows = video.views[view].astype(np.float64)
            gram += rows.T @ rows
            total += rows.sum(0)
            num_nodes += len(rows)
            for number, start, end in video_spans:
                inside[number] += rows[start:end].sum(0)
                lengths[number] += end - start
                sums[number] += unit_vectors(rows[start:end].mean(0))
        shares = lengths / num_nodes
        covariance = (inside - shares[:, None] * total) / num_nodes
        weights = np.linalg.solve(gram / num_nodes + RIDGE * np.eye(len(gram)), covariance.T).T
        means[view] = unit_vectors(sums).astype(np.float32)
        readouts[view] = (weights / np.sqrt(np.maximum(shares, 1e-4))[:, None]).astype(np.float32)
    positions = np.array(
        [
            ((start + end) / 2 / video.num_nodes, (end - start) / video.num_nodes, number)
            for video, video_spans in zip(videos, spans, strict=True)
            for number, start, end in video_spans
        ]
    )
    repeats = [np.bincount([number for number, *_ in found], minlength=len(labels)) for found in spans]
    return StepPrototypes(
        tuple(labels.values()), np.sum(repeats, axis=0), means, readouts, positions, np.max(repeats, axis=0)
    )


def price_names(similarity: np.ndarray, use: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Prices of names (K,) at which steps that choose by similarity (K, n) minus price stay within their limits.

    A step uses up `use` (K, n) of a name. Names are chosen by a softmax, and a price rises with the
    logarithm of the excess, as in Sinkhorn's iterations.
    """
    prices = np.zeros(len(similarity))
    for _ in range(PRICE_ROUNDS):
        logits = (similarity - prices[:, None]) / PRICE_TEMPERATURE
        choice = np.exp(logits - logits.max(0))
        used = (use * choice / choice.sum(0)).sum(1)
        excess = np.log(np.maximum(used, 1e-9)) - np.log(limits)
        prices = np.maximum(0.0, prices + PRICE_TEMPERATURE * excess)
    return prices


def rival_similarity(similarity: np.ndarray) -> np.ndarray:
    """What is subtracted from the similarity of a named step with the nodes (T,), given that of all of them (K, T)."""
    return RIVAL_WEIGHT * soft_maximum(similarity, TEMPERATURE)


def place_names(spans: np.ndarray, probability: np.ndarray, num_nodes: int) -> np.ndarray:
    """The number of the name at each node (T,), or −1, if each name has one span, (K, 2).

    The most probable names come first. One is left out if better ones take most of its span, or if its
    probability (K,) is 0.
    """
    owner = np.full(num_nodes, -1)
    for number in np.argsort(-probability, kind="stable"):
        start, end = spans[number]
        free = owner[start:end] < 0
        if probability[number] > 0 and free.mean() > 1 - MAX_TAKEN:
            owner[start:end][free] = number
    return owner
