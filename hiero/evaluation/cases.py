"""Cases are videos together with their annotated steps. Every task scores cases, in threads or in
several processes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import current_process, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from hiero.devices import single_threaded_math
from hiero.engine import Embedder, Engine, Video, load
from hiero.errors import InputError
from hiero.evaluation.protocols import Protocol
from hiero.evaluation.results import Table
from hiero.features.files import read_feature_array
from hiero.formats.annotations import AnnotatedVideo
from hiero.model.model_folder import SHIPPED, open_model_folder
from hiero.networks.registry import find_backbone
from hiero.steps.clustering import cluster, finch, natural_partitions
from hiero.steps.similarity import Evidence, NodeEvidence
from hiero.storage.weights import RELEASED
from hiero.types import AnnotatedStep, Clock

MAX_WORKERS = 8
LENGTH_TOLERANCE = 1.1  # ratio between the durations according to features and annotations
MAX_WARNINGS = 3  # videos that an error message names
MIN_CASES = 4  # cases per process: with fewer, starting a process costs more than it saves

Result = TypeVar("Result")
Method = TypeVar("Method")


@dataclass
class Case:
    """A video, its backbone features and its annotated steps."""

    video: Video
    features: np.ndarray
    truth: list[AnnotatedStep]
    task: str = ""
    shift_s: float = 0.0
    candidates: dict[str, np.ndarray] = field(default_factory=dict)
    finch_rounds: dict[str, list[np.ndarray]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        return [step.text for step in self.truth]

    @property
    def spans_s(self) -> np.ndarray:
        """Annotated spans in seconds, (S, 2)."""
        return np.array([[step.start_s, step.end_s] for step in self.truth], dtype=float).reshape(-1, 2)

    def to_nodes(self, span_s: Sequence[float]) -> tuple[int, int]:
        """Node indices [start, end) of a span in seconds; at least one node."""
        return self.video.clock.span(span_s[0], span_s[1], len(self.video.nodes))

    def to_seconds(self, spans: np.ndarray) -> np.ndarray:
        return self.video.clock.start_s - self.shift_s + np.asarray(spans, dtype=float) * self.video.clock.spacing_s

    @cached_property
    def class_evidence(self) -> list[Evidence]:
        """Evidence from named classes of the backbone, without the graph."""
        return [part for part in self.video.sight.parts if not isinstance(part, NodeEvidence)]

    @cached_property
    def node_evidence(self) -> list[Evidence]:
        """Evidence from the nodes of the model."""
        return [part for part in self.video.sight.parts if isinstance(part, NodeEvidence)]

    @cached_property
    def projected(self) -> np.ndarray:
        """Unnormalised level-0 nodes in the space shared with text, (T, E)."""
        return self._outputs["projected0"]

    @property
    def deep_projected(self) -> np.ndarray:
        """Unnormalised nodes of that level in the space shared with text, (T / 2^level, E)."""
        return self._outputs[f"projected{self.video.engine.deep_level}"]

    @cached_property
    def deep_nodes(self) -> np.ndarray:
        """Features of the level on which the paper finds procedures, repeated for each segment, (T, D)."""
        level = self.video.engine.deep_level
        deep = self._outputs[f"level{level}"]
        return deep[np.minimum(np.arange(len(self.features)) // 2**level, len(deep) - 1)]

    @cached_property
    def _outputs(self) -> dict[str, np.ndarray]:
        """All outputs of the network that tasks need, computed in one pass."""
        engine = self.video.engine
        if engine.model is None:
            return {"projected0": self.features.astype(np.float32), f"level{engine.deep_level}": self.features}
        import torch

        from hiero.model.ensemble import embed_features

        features = torch.from_numpy(self.features.astype(np.float32))
        outputs = embed_features(engine.model, features, self.video.clock, {0, engine.deep_level})
        names = {"projected0", f"level{engine.deep_level}", f"projected{engine.deep_level}"}
        return {name: outputs[name].float().numpy() for name in names}

    def cluster(self, source: str, num: int, algorithm: str, kappa: float, random_state: int) -> np.ndarray:
        """Cluster the vectors of all nodes. The rounds of TW-FINCH do not depend on `num` and are computed once."""
        x = self.vectors(source)
        if algorithm != "tw-finch":
            return cluster(x, num, algorithm, kappa=kappa, random_state=random_state)
        if source not in self.finch_rounds:
            self.finch_rounds[source] = natural_partitions(x)
        return finch(x, num, rounds=self.finch_rounds[source])

    def vectors(self, source: str) -> np.ndarray:
        """One vector for each node, (T, D), from a source that methods name."""
        match source:
            case "nodes":
                return self.video.nodes
            case "features":
                return self.features
            case "projected":
                return self.projected
            case "deep level":
                return self.deep_nodes
            case "segmentation features":
                return self.video.sight.segmentation_features
        return self.video.engine.enrich(self.features, self.video.clock, 0)

    def labels(self) -> np.ndarray:
        """Key-step of each node, 0 for none. Steps with the same text are one key-step; where steps
        overlap, the later one wins.
        """
        numbers = {text: i for i, text in enumerate(dict.fromkeys(self.texts), start=1)}
        out = np.zeros(len(self.video.nodes), dtype=int)
        for step in self.truth:
            start, end = self.to_nodes((step.start_s, step.end_s))
            out[start:end] = numbers[step.text]
        return out


def read_input_features(engine: Embedder, path: Path) -> np.ndarray:
    """Features of a file, (T, D). Raises InputError if their width does not fit the model."""
    features = read_feature_array(path)
    if engine.folder is not None and features.shape[1] != (expected := engine.folder.config.input_size):
        width = features.shape[1]
        fitting = [name for name in SHIPPED if open_model_folder(name).config.input_size == width]
        fitting += [name for name, entry in RELEASED.items() if find_backbone(entry.backbone).width == width]
        choice = " or ".join([*fitting, "raw", f"a model that was trained on {width}-d features"])
        raise InputError(f"{path}: features are {width} wide, but {engine.name} takes {expected}; use --model {choice}")
    return features


def find_members(
    files: Mapping[str, Path], groups: Mapping[str, Sequence[str]], video: str
) -> tuple[list[Path], list[str]]:
    """The feature files of a video, or of the videos of a group, and the names of those without one."""
    # An unlisted group is looked up as a file of its name, which does not exist.
    names = [video] if video in files else groups.get(video, [video])
    return [files[name] for name in names if name in files], [name for name in names if name not in files]


def part_segments(num_segments: int, clock: Clock, start_s: float, end_s: float | None) -> slice:
    """The segments of a part of a video, at least one. Without an end, the part ends with the video."""
    start = min(num_segments - 1, max(0, clock.index(start_s)))
    end = num_segments if end_s is None else min(num_segments, clock.index(end_s) + 1)
    return slice(start, max(start + 1, end))


def length_warning(annotation: AnnotatedVideo, covered_s: float, options: str = "--hz") -> str | None:
    """A warning if features and annotations disagree about the duration of a video."""
    if not annotation.duration_s or 1 / LENGTH_TOLERANCE < covered_s / annotation.duration_s < LENGTH_TOLERANCE:
        return None
    lengths = f"features cover {covered_s:.0f} s, the annotations say {annotation.duration_s:.0f} s"
    return f"{annotation.video}: {lengths}; check {options}"


def check_warnings(warnings: Sequence[str], num_videos: int, options: str) -> Sequence[str]:
    """The warnings. Raises InputError if most videos have one: then the options are wrong, not the files."""
    if 2 * len(warnings) > num_videos:
        shown = "; ".join(warnings[:MAX_WARNINGS])
        raise InputError(f"{len(warnings)} of {num_videos} videos do not fit their features. Check {options}: {shown}")
    return warnings


def by_method(
    methods: Sequence[Method], results: Sequence[Sequence[Result | None]]
) -> Iterator[tuple[Method, list[Result]]]:
    """Each method with its results of all cases, except methods without evidence, which have none."""
    for method, column in zip(methods, zip(*results, strict=True), strict=True):
        found = [result for result in column if result is not None]
        if len(found) == len(results):
            yield method, found


def case_owners(cases: Sequence[Case]) -> np.ndarray:
    """Index of the case that each annotated step belongs to, (S,)."""
    return np.repeat(np.arange(len(cases)), [len(case.truth) for case in cases])


@dataclass(frozen=True)
class EvalOptions:
    """Settings of the tasks."""

    num_threads: int = 16
    min_nodes: int = 3
    baselines: bool = True
    random_state: int = 0
    num_draws: int = 1000
    protocol: Protocol | None = None


class TextEmbeddings:
    """The texts of a benchmark, each encoded once."""

    def __init__(self, engine: Embedder, texts: Sequence[str], to_text: Callable[[str], str] = str) -> None:
        self.index = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        self.vectors, self.projected = engine.encode([to_text(text) for text in self.index])

    def __call__(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the sentence encoder (n, S) and their projections by h_t (n, E)."""
        index = [self.index[text] for text in texts]
        return self.vectors[index], self.projected[index]


@dataclass(frozen=True)
class CaseTask(Generic[Result]):
    """A task in two parts: score each case, then build tables from all scores."""

    score: Callable[[Case], Result]
    tabulate: Callable[[list[Result]], list[Table]]

    def evaluate(self, cases: Sequence[Case]) -> list[Table]:
        return self.tabulate(map_cases(self.score, cases))


def map_cases(
    function: Callable[[Case], Result],
    cases: Sequence[Case],
    progress: Callable[[str], None] = lambda _: None,
    processes: CaseProcesses | None = None,
) -> list[Result]:
    """Apply a function to each case in parallel, each on one core."""
    if processes is not None:
        return _wait_for({processes.score(function, case): case for case in cases}, progress)
    model = cases[0].video.engine.model
    on_gpu = model is not None and next(model.parameters()).is_cuda
    num_workers = 1 if on_gpu else min(len(cases), os.cpu_count() or 1, MAX_WORKERS)
    with single_threaded_math() if num_workers > 1 else nullcontext(), ThreadPoolExecutor(num_workers) as pool:
        return _wait_for({pool.submit(function, case): case for case in cases}, progress)


def _wait_for(futures: dict[Future[Result], Case], progress: Callable[[str], None]) -> list[Result]:
    """All results in order. The first error, or Ctrl-C, cancels the cases that have not started."""
    try:
        for future in as_completed(futures):
            future.result()
            progress(futures[future].video.path.stem)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


class CaseProcesses(ProcessPoolExecutor):
    """Processes that score cases. Scoring is many small operations, in which threads would wait for each other."""

    def __init__(self, model: str, num: int) -> None:
        # A forked copy of a process with threads could deadlock on a lock that one of them held.
        super().__init__(num, get_context("spawn"), _start_worker, (model,))
        for _ in range(num):  # each submission starts a process
            self.submit(int)

    def __exit__(self, *exception: Any) -> None:
        if exception[0] is not None:  # an error or Ctrl-C: do not wait for cases that have started
            for process in list((self._processes or {}).values()):
                process.terminate()
        self.shutdown(cancel_futures=True)

    def score(self, function: Callable[[Case], Result], case: Case) -> Future[Result]:
        """Start to compute a function of a case. The process reads the nodes of the video from the cache."""
        fields = (case.features, case.truth, case.task, case.shift_s)
        return self.submit(_compute, function, case.video.path, case.video.clock, fields)


def start_processes(model: str, num: int) -> CaseProcesses | None:
    """Processes that score cases; None for fewer than two, or where processes cannot be started."""
    if num < 2 or current_process().daemon:  # a daemon may not have children
        return None
    try:
        return CaseProcesses(model, num)
    except (OSError, ImportError, BrokenExecutor):  # a limit on processes, or no shared memory
        return None


_engine: Engine  # of a worker process


def _start_worker(model: str) -> None:
    """Open the model. The first case that needs its network loads it."""
    global _engine
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends this one
    threading.Thread(target=_exit_with, args=(parent_process(),), daemon=True).start()
    _engine = load(model, device="cpu")


def _exit_with(parent: BaseProcess | None) -> None:
    """Exit when the parent process is killed."""
    if parent is not None:
        parent.join()
        os._exit(1)


def _compute(function: Callable[[Case], Result], path: Path, clock: Clock, fields: tuple[Any, ...]) -> Result:
    with single_threaded_math():
        return function(Case(_engine.read(path, clock=clock, edits=False), *fields))
