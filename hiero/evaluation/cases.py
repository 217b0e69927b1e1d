"""Cases: videos that were read, beside their annotations; what every task scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from hiero.devices import one_thread_each
from hiero.engine import Embedder, Video
from hiero.evaluation.protocols import Protocol
from hiero.steps.similarity import Evidence, NodeEvidence
from hiero.types import AnnotatedStep

MAX_WORKERS = 8  # cases that are scored at a time

Result = TypeVar("Result")


@dataclass
class Case:
    """A video, its features as they came, and its true steps.

    Attributes:
        video: As the engine read it.
        features: Of the backbone, (T, F).
        truth: The annotated steps.
        task: What is done in it.
        shift_s: Is taken off predictions, as the release's script for Goal-Step does.
        candidates: Spans that could be answers, by the name of the method that found them.
    """

    video: Video
    features: np.ndarray
    truth: list[AnnotatedStep]
    task: str = ""
    shift_s: float = 0.0
    candidates: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [step.text for step in self.truth]

    @property
    def spans_s(self) -> np.ndarray:
        """True spans in seconds, (S, 2)."""
        return np.array([[step.start_s, step.end_s] for step in self.truth], dtype=float).reshape(-1, 2)

    def to_nodes(self, span_s: Sequence[float]) -> tuple[int, int]:
        """Nodes [start, end) of a span in seconds, at least one."""
        clock, num = self.video.clock, len(self.video.nodes)
        start = min(num - 1, max(0, int((span_s[0] - clock.start_s) / clock.spacing_s + 1e-9)))
        end = int(np.ceil((span_s[1] - clock.start_s) / clock.spacing_s - 1e-9))
        return start, min(num, max(start + 1, end))

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
        """The network's own features of the level that the paper finds procedures on, each repeated for its segments, (T, D)."""
        level = self.video.engine.deep_level
        deep = self._outputs[f"level{level}"]
        return deep[np.minimum(np.arange(len(self.features)) // 2**level, len(deep) - 1)]

    @cached_property
    def _outputs(self) -> dict[str, np.ndarray]:
        """What the network makes of the features: all that tasks need, in one pass."""
        engine = self.video.engine
        if engine.model is None:
            return {"projected0": self.features.astype(np.float32), f"level{engine.deep_level}": self.features}
        import torch

        from hiero.model.embed import embed_features

        features = torch.from_numpy(self.features.astype(np.float32))
        outputs = embed_features(engine.model, features, self.video.clock, {0, engine.deep_level})
        return {name: outputs[name].float().numpy() for name in ("projected0", f"level{engine.deep_level}")}

    def labels(self) -> np.ndarray:
        """Key-step of each node, 0 for none; steps with the same text are one key-step, of two at once the later one counts."""
        numbers = {text: i for i, text in enumerate(dict.fromkeys(self.texts), start=1)}
        out = np.zeros(len(self.video.nodes), dtype=int)
        for step in self.truth:
            start, end = self.to_nodes((step.start_s, step.end_s))
            out[start:end] = numbers[step.text]
        return out


def case_owners(cases: Sequence[Case]) -> np.ndarray:
    """The case that each annotated step belongs to, (S,)."""
    return np.repeat(np.arange(len(cases)), [len(case.truth) for case in cases])


@dataclass(frozen=True)
class EvalOptions:
    """Settings of the tasks.

    Attributes:
        num_threads: That the paper's grounding cuts a video into.
        kappa: Temperature of that cut.
        min_nodes: Shorter runs are background.
        baselines: Whether baselines are scored too.
        random_state: Seed of clusterings and random baselines.
        num_draws: Of the bootstrap.
        protocol: Of a benchmark of the paper: runs of threads are ranked by the cosine of their mean features, as the paper says.
            None ranks them by the mean of the cosines of their nodes.
    """

    num_threads: int = 16
    kappa: float = 0.05
    min_nodes: int = 3
    baselines: bool = True
    random_state: int = 0
    num_draws: int = 1000
    protocol: Protocol | None = None


class TextEmbeddings:
    """Texts of a benchmark, encoded once.

    Args:
        engine: Encodes them.
        texts: All that will be asked for.
        to_text: Puts a label into words.
    """

    def __init__(self, engine: Embedder, texts: Sequence[str], to_text: Callable[[str], str] = str) -> None:
        self.index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        self.vectors, self.projected = engine.encode([to_text(text) for text in self.index])

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the sentence encoder (n, S), and after h_t (n, E)."""
        index = [self.index[text] for text in texts]
        return self.vectors[index], self.projected[index]


def map_cases(
    function: Callable[[Case], Result], cases: Sequence[Case], progress: Callable[[str], None] = lambda _: None
) -> list[Result]:
    """A function of each case, several at a time, each on one core.

    Args:
        function: Takes no lock, and changes nothing but its case.
        cases: The videos.
        progress: Called with the name of each video when it is done.

    Returns:
        The results, in the order of the cases.
    """
    num_workers = min(len(cases), os.cpu_count() or 1, MAX_WORKERS)
    on_device = cases[0].video.engine.model is not None and next(cases[0].video.engine.model.parameters()).is_cuda
    if num_workers < 2 or on_device:
        out = []
        for case in cases:
            out.append(function(case))
            progress(case.video.path.stem)
        return out
    with one_thread_each(), ThreadPoolExecutor(num_workers) as pool:
        futures = {pool.submit(function, case): case for case in cases}
        try:
            for future in as_completed(futures):
                future.result()
                progress(futures[future].video.path.stem)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # an error, or Ctrl-C: nobody waits for the others
            raise
        return [future.result() for future in futures]
