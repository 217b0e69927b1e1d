"""A video that was read: its steps, answers to questions, labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hiero.errors import InputError
from hiero.model.folder import ASSETS
from hiero.records import Answer, Clock, Hierarchy, Match, Step
from hiero.steps.hierarchy import Method, build_hierarchy
from hiero.steps.order import align_in_order
from hiero.steps.pieces import STILL, similarity_matrix, unit
from hiero.steps.spans import rank_spans, sum_over
from hiero.steps.words import ClassEvidence, Evidence, OwnEvidence, fit, name_spans, presence, softmax, steady
from hiero.text.minilm import SIZE, encode_minilm
from hiero.video.extracted import Extract

if TYPE_CHECKING:
    from hiero.engine.reader import Engine

RAW = "clip-vit-b32"
CLASS_NAMES = {"i3d-k400": "kinetics400", "lite2-imagenet": "imagenet"}
WEIGHTS = {"i3d-k400": (0.03, 0.15), "lite2-imagenet": (0.15, 0.07)}  # of class names beside cosines, and how near a name must be
OBJECTS = 0.7  # weight of what objects a video shows, beside the model's nodes, where steps are cut
STEADY_S = 5.0  # objects are looked for in stretches of this length
TRUSTED_S = 120.0  # the model learned from recordings of minutes; in a shorter video its word counts less, in proportion
TOLD = 1.0  # weight of class names beside the model's own space, where steps of many videos are compared
NO_WORDS = (
    "raw features know no words; use a trained model (--model), or a backbone with words: --backbone clip, egovlp or lavila-l"
)


@dataclass
class Video:
    """One video that was read: ask it."""

    engine: Engine
    path: Path
    clock: Clock
    duration_s: float
    nodes: np.ndarray
    """(T, E), unit vectors."""
    extract: Extract
    spans: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=int))
    """(N, 2) stretches of nodes that could be steps."""
    _kept: tuple[tuple[str, ...], np.ndarray] | None = None

    def steps(
        self, numbers: Sequence[int] | None = None, *, method: Method = "pieces", labels: Sequence[str] | None = None
    ) -> Hierarchy:
        """The hierarchy of steps, coarse to fine, each with the best of the labels (by default: everyday phrases)."""
        levels = build_hierarchy(self.looks, self.clock, list(numbers) if numbers else None, method=method)
        levels = [[*level[:-1], replace(level[-1], end_s=self.duration_s)] for level in levels]  # with the video, not the clock
        words = list(labels) if labels is not None else everyday_phrases()
        if labels and not self.engine.knows_words:
            raise InputError(NO_WORDS)
        if words and self.engine.knows_words:
            named = [self.likely_labels(level, words, num=1) for level in levels]
            levels = [
                [replace(step, label=best[0][0], score=best[0][1]) for step, best in zip(level, found, strict=True)]
                for level, found in zip(levels, named, strict=True)
            ]
        return Hierarchy(str(self.path), self.engine.name, self.duration_s, tuple(tuple(level) for level in levels))

    def ask(self, queries: str | Sequence[str], *, num: int = 5, in_order: bool = False) -> list[Answer]:
        """Where each query happens, best first. in_order: the queries are steps that follow each other; one stretch for each."""
        queries = [queries] if isinstance(queries, str) else list(queries)
        if not queries or not all(query.strip() for query in queries):
            raise InputError("ask for something: a query is empty")
        if num < 1:
            raise InputError(f"at least one match must be wanted, got {num}")
        similarity = fit(self.evidence, *self.engine.encode(queries))
        ranked = rank_spans(similarity, self.spans, self.clock.spacing_s, num=num)
        sure = presence(similarity, self.spans, [places[0] for places, _ in ranked])
        if in_order:
            if len(queries) > len(self.nodes):
                raise InputError(f"{len(queries)} steps in order do not fit into {len(self.nodes)} segments of {self.path}")
            stretches = align_in_order(similarity)
            return [Answer(query, p, (self._match((a, b), p),)) for query, (a, b), p in zip(queries, stretches, sure, strict=True)]
        return [
            Answer(query, p, tuple(self._match(self.spans[at], p * s / scores[0]) for at, s in zip(places, scores, strict=True)))
            for query, (places, scores), p in zip(queries, ranked, sure, strict=True)
        ]

    def label(self, labels: Sequence[str], *, numbers: Sequence[int] | None = None) -> list[Step]:
        """Step localization: the finest steps, each with the label of a taxonomy that fits best; equal neighbours are one."""
        labels = list(dict.fromkeys(label.strip() for label in labels if label.strip()))
        if not labels:
            raise InputError("no labels were given")
        finest = self.steps(numbers, labels=labels).levels[-1]
        out: list[Step] = []
        for step in finest:
            if out and out[-1].label == step.label:
                longer = out[-1].end_s - out[-1].start_s, step.end_s - step.start_s
                score = np.average([out[-1].score or 0.0, step.score or 0.0], weights=longer)
                out[-1] = replace(out[-1], end_s=step.end_s, score=float(score))
            else:
                out.append(replace(step, parent=None, children=()))
        return [replace(step, id=f"{i}") for i, step in enumerate(out)]

    def similarity_matrix(self, size: int = 256) -> np.ndarray:
        """Cosines of the centred nodes with each other, (n, n) with n ≤ size: the picture in which steps are squares."""
        return similarity_matrix(self.looks, size)

    @cached_property
    def looks(self) -> np.ndarray:
        """What steps are cut by: the nodes, beside them the objects in view where a video was read. (T, E), centred."""
        parts = [self._trust * unit(self.nodes, STILL)]
        if self.engine.folder is not None and "lite2-imagenet" in self.extract.features:
            parts.append(OBJECTS * unit(self.extract.features["lite2-imagenet"].astype(np.float32), STILL))
        return np.concatenate(parts, axis=1)

    @cached_property
    def evidence(self) -> list[Evidence]:
        """All that words can be compared with: the model's nodes, and the names of classes that classifiers see."""
        own = self.nodes - self.nodes.mean(0) if self.engine.folder is None else self.nodes
        out: list[Evidence] = [OwnEvidence(own, self._trust)]
        for name, scores in self.extract.features.items():
            if name in CLASS_NAMES and self.engine.uses_minilm:
                seen = softmax(scores.astype(np.float32))
                if name == "lite2-imagenet":
                    seen = steady(seen, round(STEADY_S / self.clock.spacing_s))
                out.append(ClassEvidence(seen, encode_minilm(class_names(CLASS_NAMES[name])), *WEIGHTS[name]))
        return out

    @property
    def _trust(self) -> float:
        """How much the model's word counts: all of it where nothing else is known."""
        alone = self.engine.folder is None or not self.extract.features
        return 1.0 if alone else min(1.0, self.duration_s / TRUSTED_S)

    def embed_spans(self, spans: np.ndarray) -> np.ndarray:
        """Vectors (N, D) of stretches of nodes [a, b), that `Engine.embed_queries` and each other can be compared with by cosine.

        The model's nodes, and beside them, where texts come from the sentence encoder, what the names of the classes say that
        classifiers see: Σ p_c (name_c − mean of names).
        """
        own = self.nodes - self.nodes.mean(0) if self.engine.folder is None and self.engine.backbones == (RAW,) else self.nodes
        parts = [self._trust * _unit_means(own, spans)]
        if self.engine.uses_minilm:
            told = np.zeros((len(spans), SIZE))
            for name, scores in self.extract.features.items():
                if name in CLASS_NAMES:
                    names = encode_minilm(class_names(CLASS_NAMES[name])).astype(np.float32)
                    told += _means(softmax(scores.astype(np.float32)) @ (names - names.mean(0)), spans)
            parts.append(TOLD * told)
        return np.concatenate(parts, axis=1).astype(np.float32)

    def likely_labels(
        self, level: Sequence[Step], labels: Sequence[str] | None = None, num: int = 5
    ) -> list[list[tuple[str, float]]]:
        """For each step of a level the labels (by default: everyday phrases) that fit it best, with their shares of belief."""
        labels = list(labels) if labels is not None else everyday_phrases()
        if not labels or not self.engine.knows_words:
            return [[(step.label, step.score or 0.0)] if step.label else [] for step in level]
        share = name_spans(self._fit(labels), self.level_spans(level))
        order = np.argsort(-share, axis=1, kind="stable")[:, :num]
        return [[(labels[i], float(share[row, i])) for i in best] for row, best in enumerate(order)]

    def level_spans(self, level: Sequence[Step]) -> np.ndarray:
        """The nodes [a, b) of each step of a level, (N, 2)."""
        index = [max(0, round((step.start_s - self.clock.start_s) / self.clock.spacing_s)) for step in level]
        return np.array(list(zip(index, [*index[1:], len(self.nodes)], strict=True)))

    def _fit(self, texts: Sequence[str]) -> np.ndarray:
        """How each node fits each text; of a vocabulary it is kept, since every level asks for it."""
        key = tuple(texts)
        if self._kept is None or self._kept[0] != key:
            self._kept = key, fit(self.evidence, *self.engine.encode(texts))
        return self._kept[1]

    def _match(self, span: Sequence[int] | np.ndarray, score: float) -> Match:
        start, end = (int(at) for at in span)
        begin_s = self.clock.start_s + start * self.clock.spacing_s
        end_s = self.duration_s if end == len(self.nodes) else self.clock.start_s + end * self.clock.spacing_s
        return Match(begin_s, max(end_s, begin_s), float(score))


def _means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    """Mean of (T, D) over each span [a, b)."""
    return sum_over(rows.T, spans).T / (spans[:, 1] - spans[:, 0])[:, None]


def _unit_means(rows: np.ndarray, spans: np.ndarray) -> np.ndarray:
    found = _means(rows, spans)
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def everyday_phrases() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return [line for line in (ASSETS / "steps.txt").read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def class_names(name: str) -> list[str]:
    return (ASSETS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
