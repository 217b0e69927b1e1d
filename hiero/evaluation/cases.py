"""Cases: videos that were read, beside their annotations; what every task scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from hiero.devices import one_thread_each
from hiero.engine import Embedder, Video
from hiero.evaluation.protocols import Protocol
from hiero.evaluation.results import Table
from hiero.steps.clustering import cluster
from hiero.steps.similarity import Evidence, NodeEvidence
from hiero.types import AnnotatedStep

if TYPE_CHECKING:
    from hiero.model.unet import Level

MAX_WORKERS = 8  # cases that are scored at a time

Result = TypeVar("Result")


@dataclass(frozen=True)
class AnnotatedVideo:
    """A video, or a part of it, and its true steps."""

    video: str
    steps: tuple[AnnotatedStep, ...]
    start_s: float = 0.0
    end_s: float | None = None
    task: str = ""
    duration_s: float | None = None


@dataclass
class Case:
    """A video, its features as they came, and its true steps."""

    video: Video
    features: np.ndarray
    truth: list[AnnotatedStep]
    task: str = ""
    shift_s: float = 0.0
    candidates: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: dict[str, np.ndarray] = field(default_factory=dict)
    finch_rounds: dict[str, list[np.ndarray]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [step.text for step in self.truth]

    @property
    def spans_s(self) -> np.ndarray:
        """True spans in seconds, (S, 2)."""
        return np.array([[step.start_s, step.end_s] for step in self.truth], dtype=float).reshape(-1, 2)

    def to_nodes(self, span_s: Sequence[float]) -> tuple[int, int]:
        """Nodes [start, end) of a span in seconds, at least one."""
        return self.video.clock.span(span_s[0], span_s[1], len(self.video.nodes))

    def to_seconds(self, spans: np.ndarray) -> np.ndarray:
        """Spans in nodes as seconds."""
        return self.video.clock.start_s - self.shift_s + np.asarray(spans, dtype=float) * self.video.clock.spacing_s

    @cached_property
    def class_evidence(self) -> list[Evidence]:
        """What classifiers see, by name: words without the graph."""
        return [part for part in self.video.evidence if not isinstance(part, NodeEvidence)]

    @cached_property
    def node_evidence(self) -> list[Evidence]:
        """The model's own nodes."""
        return [part for part in self.video.evidence if isinstance(part, NodeEvidence)]

    @cached_property
    def projected(self) -> np.ndarray:
        """Level-0 nodes in the space shared with text, not normalised and in full precision, (T, E)."""
        return self._outputs["projected0"]

    @cached_property
    def deep_nodes(self) -> np.ndarray:
        """The network's own features of the level that the paper finds procedures on, each repeated
        for its segments, (T, D).
        """
        level = self.video.engine.deep_level
        deep = self._outputs[f"level{level}"]
        return deep[np.minimum(np.arange(len(self.features)) // 2**level, len(deep) - 1)]

    @cached_property
    def _outputs(self) -> dict[str, np.ndarray]:
        """What the network makes of the features: all that tasks need, in one pass."""
        engine = self.video.engine
        if self.outputs:
            return self.outputs
        if engine.model is None:
            return {"projected0": self.features.astype(np.float32), f"level{engine.deep_level}": self.features}
        import torch

        from hiero.model.embed import embed_features

        features = torch.from_numpy(self.features.astype(np.float32))
        outputs = embed_features(engine.model, features, self.video.clock, {0, engine.deep_level})
        return {name: outputs[name].float().numpy() for name in ("projected0", f"level{engine.deep_level}")}

    def cluster(
        self, x: np.ndarray, source: str, num: int, algorithm: str, kappa: float, random_state: int
    ) -> np.ndarray:
        """`hiero.steps.clustering.cluster` of all nodes; what does not depend on the number of
        clusters is computed once.
        """
        if algorithm != "tw-finch":
            return cluster(x, num, algorithm, kappa=kappa, random_state=random_state)
        from hiero.steps.twfinch import natural_partitions, tw_finch  # scipy takes long to import

        if source not in self.finch_rounds:
            self.finch_rounds[source] = natural_partitions(x)
        return tw_finch(x, num, self.finch_rounds[source])

    def labels(self) -> np.ndarray:
        """Key-step of each node, 0 for none; steps with the same text are one key-step, of two at once
        the later one counts.
        """
        numbers = {text: i for i, text in enumerate(dict.fromkeys(self.texts), start=1)}
        out = np.zeros(len(self.video.nodes), dtype=int)
        for step in self.truth:
            start, end = self.to_nodes((step.start_s, step.end_s))
            out[start:end] = numbers[step.text]
        return out


@contextmanager
def recorded_outputs(engine: Embedder) -> Iterator[dict[str, np.ndarray]]:
    """Outputs of the network's latest pass while this lasts, which `Case.outputs` takes; the
    dictionary is empty before one.

    A video that is read for the first time goes through the network: what tasks need beside its
    nodes comes from the same pass.
    """
    outputs: dict[str, np.ndarray] = {}
    model, deep_level = engine.model, engine.deep_level
    if model is None:
        yield outputs
        return

    def record(module: object, arguments: object, levels: list[Level]) -> None:
        tensors = {
            "projected0": model.video_head(levels[0].features[0]),
            f"level{deep_level}": levels[deep_level].features[0],
        }
        outputs.update({name: tensor.float().cpu().numpy() for name, tensor in tensors.items()})

    hook = model.register_forward_hook(record)
    try:
        yield outputs
    finally:
        hook.remove()


def case_owners(cases: Sequence[Case]) -> np.ndarray:
    """The case that each annotated step belongs to, (S,)."""
    return np.repeat(np.arange(len(cases)), [len(case.truth) for case in cases])


@dataclass(frozen=True)
class EvalOptions:
    """Settings of the tasks."""

    num_threads: int = 16
    kappa: float = 0.05
    min_nodes: int = 3
    baselines: bool = True
    random_state: int = 0
    num_draws: int = 1000
    protocol: Protocol | None = None


class TextEmbeddings:
    """Texts of a benchmark, encoded once."""

    def __init__(self, engine: Embedder, texts: Sequence[str], to_text: Callable[[str], str] = str) -> None:
        self.index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        self.vectors, self.projected = engine.encode([to_text(text) for text in self.index])

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the sentence encoder (n, S), and after h_t (n, E)."""
        index = [self.index[text] for text in texts]
        return self.vectors[index], self.projected[index]


@dataclass(frozen=True)
class CaseTask(Generic[Result]):
    """A task in two parts, so that cases can be scored one by one, wherever."""

    score: Callable[[Case], Result]
    tabulate: Callable[[list[Result]], list[Table]]

    def evaluate(self, cases: Sequence[Case]) -> list[Table]:
        return self.tabulate(map_cases(self.score, cases))


def map_cases(
    function: Callable[[Case], Result],
    cases: Sequence[Case],
    progress: Callable[[str], None] = lambda _: None,
    submit: Callable[[Callable[[Case], Result], Case], Future[Result]] | None = None,
) -> list[Result]:
    """A function of each case, several at a time, each on one core."""
    if submit is not None:
        return _wait_for({submit(function, case): case for case in cases}, progress)
    num_workers = min(len(cases), os.cpu_count() or 1, MAX_WORKERS)
    if num_workers < 2 or is_on_device(cases[0].video.engine):
        out = []
        for case in cases:
            out.append(function(case))
            progress(case.video.path.stem)
        return out
    with one_thread_each(), ThreadPoolExecutor(num_workers) as pool:
        return _wait_for({pool.submit(function, case): case for case in cases}, progress)


def _wait_for(futures: dict[Future[Result], Case], progress: Callable[[str], None]) -> list[Result]:
    """The results of all, in order; at the first error, or Ctrl-C, those that have not begun are cancelled."""
    try:
        for future in as_completed(futures):
            future.result()
            progress(futures[future].video.path.stem)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


def is_on_device(engine: Embedder) -> bool:
    """Whether its network is on a GPU, which cases then share."""
    return engine.model is not None and next(engine.model.parameters()).is_cuda
