"""The extraction of `hiero.extraction.collection` on a Ray cluster.

A worker is an actor that holds the networks and reads one or a few videos at a time. If it dies, its
videos go to other workers, which resume from what it has written. Feature files appear complete, and
existing ones are kept.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiero.backbones.registry import fetch_weights
from hiero.decoding.recordings import probe_duration
from hiero.errors import InputError
from hiero.extraction.collection import ExtractionProgress, ExtractionResult, extract_video
from hiero.extraction.plan import ExtractionPlan
from hiero.sources.source import SourceFile, VideoInput, VideoSource

MAX_ATTEMPTS = 3  # workers that may die with a video before it counts as failed
POLL_S = 0.5  # wait for results before progress is requested
PROGRESS_TIMEOUT_S = 0.2
CONNECT_TIMEOUT_S = 10.0
PLACEMENT_TIMEOUT_S = 120.0  # for the cluster to provide a first worker
MAX_WORKERS_PER_GPU = 64


class Worker:
    """An actor in a process of the cluster, with the networks of a plan."""

    def __init__(self, settings: dict[str, Any]) -> None:
        paths = {"out": Path(settings["out"]), "weights": settings["weights"] and Path(settings["weights"])}
        self.plan = ExtractionPlan(**settings | paths)
        self.positions_s: dict[str, float] = {}
        if self.plan.threads:
            import torch

            torch.set_num_threads(self.plan.threads)

    def extract(self, name: str, path: str) -> dict[str, Any]:
        """Extract one video; returns an ExtractionResult as a dictionary."""

        def advance(done_s: float) -> None:
            self.positions_s[name] = done_s

        result = extract_video(self.plan, name, VideoSource.of(path).files[0], advance)
        self.positions_s.pop(name, None)
        return result.to_dict()

    def positions(self) -> dict[str, float]:
        """Seconds that are done of each video in progress."""
        return dict(self.positions_s)

    def pid(self) -> int:
        return os.getpid()


def extract_on_cluster(
    videos: Mapping[str, VideoInput],
    plan: ExtractionPlan,
    *,
    address: str | None = None,
    workers: int | None = None,
    jobs: int = 1,
    progress: ExtractionProgress | None = None,
) -> list[ExtractionResult]:
    """Extract the features of videos on a Ray cluster.

    The videos and the output folder must have the same paths on all its machines.
    """
    is_connected = import_ray().is_initialized()  # a missing package is reported before weights are downloaded
    plan.prepare()
    ray = connect(address)
    files = {name: VideoSource.of(video).files[0] for name, video in videos.items()}
    try:
        run = _start(ray, files, plan, workers, jobs, progress or ExtractionProgress())
        try:
            return run.run()
        finally:
            for worker in list(run.workers):
                run.kill(worker)
    finally:
        if not is_connected:
            ray.shutdown()


def import_ray() -> Any:
    """The module. Raises InputError if it is not installed."""
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray. Run: pip install 'hiero-video[ray]'") from None
    return ray


def connect(address: str | None) -> Any:
    """Connect this process to a cluster."""
    ray = import_ray()
    if address is None and ray.is_initialized():
        return ray
    # Ray itself would retry for minutes.
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"no Ray cluster at {address}: {reason}") from error
    return ray


def _start(
    ray: Any,
    files: dict[str, SourceFile],
    plan: ExtractionPlan,
    workers: int | None,
    jobs: int,
    progress: ExtractionProgress,
) -> _ClusterRun:
    """Start workers, each with its share of the cluster's resources."""
    cluster = ray.cluster_resources()
    num_gpus = int(cluster.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
    num_cpus = max(1, int(cluster.get("CPU", 1)))
    max_workers = MAX_WORKERS_PER_GPU * num_gpus if num_gpus else num_cpus
    num_workers = min(workers or num_gpus or max(1, num_cpus // 2), len(files), max_workers)
    # Workers share GPUs such that all of them fit, GPU by GPU.
    resources: dict[str, float] = {"num_gpus": 1 / math.ceil(num_workers / num_gpus)} if num_gpus else {"num_cpus": 1}
    weights = plan.weights
    if weights is None and plan.is_tower and plan.backbone_info.needs_weights:
        weights = fetch_weights(plan.backbone_info)
    settings = plan.to_dict() | {
        "out": str(plan.out.resolve()),
        "weights": None if weights is None else str(weights.resolve()),
        "device": "cuda" if num_gpus else "cpu",
    }
    # Two more calls at a time than videos, so that a busy worker answers `pid` and `positions`.
    actor_class = ray.remote(Worker).options(max_concurrency=jobs + 2, **resources)
    run = _ClusterRun(ray, files, plan, progress, lambda: actor_class.remote(settings), jobs, " ".join(resources))
    for _ in range(num_workers):
        run.add_worker()
    return run


@dataclass(eq=False)
class _ActiveWorker:
    """An actor and its videos in progress. The ping is answered once the cluster has placed the actor."""

    actor: Any
    ping: Any
    is_ready: bool = False
    in_flight: dict[Any, str] = field(default_factory=dict)


@dataclass
class _ClusterRun:
    """Distributes videos over workers."""

    ray: Any
    videos: dict[str, SourceFile]
    plan: ExtractionPlan
    progress: ExtractionProgress
    create_actor: Callable[[], Any]
    max_in_flight: int
    resources: str
    workers: list[_ActiveWorker] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    isolated: set[str] = field(default_factory=set)
    num_losses: dict[str, int] = field(default_factory=dict)
    results: dict[str, ExtractionResult] = field(default_factory=dict)

    def run(self) -> list[ExtractionResult]:
        self.waiting, self.num_losses = list(self.videos), dict.fromkeys(self.videos, 0)
        last_ready_s = time.monotonic()
        while len(self.results) < len(self.videos):
            self._check_new_workers()
            self._submit_waiting()
            if any(worker.is_ready for worker in self.workers):
                last_ready_s = time.monotonic()
            elif time.monotonic() - last_ready_s > PLACEMENT_TIMEOUT_S:
                waited = f"no worker could be placed within {PLACEMENT_TIMEOUT_S:.0f} s"
                raise InputError(f"{waited}. The cluster is busy, or has no free {self.resources}.")
            if not any(worker.in_flight for worker in self.workers):
                time.sleep(POLL_S)
                continue
            self._collect_results()
            self._report_progress()
        return [self.results[name] for name in self.videos]

    def add_worker(self) -> None:
        actor = self.create_actor()
        self.workers.append(_ActiveWorker(actor, actor.pid.remote()))

    def kill(self, worker: _ActiveWorker) -> None:
        """Remove a worker; the cluster itself goes on."""
        self.workers.remove(worker)
        with suppress(Exception):
            self.ray.kill(worker.actor)

    def _replace(self, worker: _ActiveWorker) -> list[str]:
        """Replace a lost worker; returns its videos."""
        names = list(worker.in_flight.values())
        worker.in_flight = {}
        self.kill(worker)  # it may only have been unreachable, and two must not write the same file
        self.add_worker()
        return names

    def _check_new_workers(self) -> None:
        """See which new workers are ready, and replace those that have failed."""
        for worker in [worker for worker in self.workers if not worker.is_ready]:
            try:
                if self.ray.wait([worker.ping], timeout=0)[0]:
                    self.ray.get(worker.ping)
                    worker.is_ready = True
            except self.ray.exceptions.RayError:
                self._replace(worker)

    def _submit_waiting(self) -> None:
        """Give videos to the least busy workers; the others wait here, so that nothing piles up at a worker."""
        for name in list(self.waiting):
            max_others = 0 if name in self.isolated else self.max_in_flight - 1
            idle = [
                worker
                for worker in self.workers
                if worker.is_ready
                and len(worker.in_flight) <= max_others
                and not self.isolated.intersection(worker.in_flight.values())
            ]
            if not idle:
                continue
            self.waiting.remove(name)
            if name not in self.begun:
                self.begun.add(name)
                self.progress.begin(name, probe_duration(self.videos[name], self.plan.stream))
            worker = min(idle, key=lambda worker: len(worker.in_flight))
            worker.in_flight[worker.actor.extract.remote(name, self.videos[name].location)] = name

    def _collect_results(self) -> None:
        owners = {future: worker for worker in self.workers for future in worker.in_flight}
        finished, _ = self.ray.wait(list(owners), timeout=POLL_S)
        for future in finished:
            worker = owners[future]
            if future not in worker.in_flight:  # the worker was replaced meanwhile
                continue
            try:
                result = ExtractionResult(**self.ray.get(future))
            except self.ray.exceptions.RayTaskError as error:  # a fault of the plan or a disk: the same for all videos
                raise error.as_instanceof_cause() from None
            except self.ray.exceptions.RayError:
                self._handle_loss(worker)
            else:
                del worker.in_flight[future]
                self._finish(result)

    def _finish(self, result: ExtractionResult) -> None:
        self.results[result.name] = result
        self.isolated.discard(result.name)
        self.progress.end(result)

    def _handle_loss(self, worker: _ActiveWorker) -> None:
        """Give the videos of a lost worker to others, one at a time; only a video that was alone gets the blame."""
        names = self._replace(worker)
        for name in names:
            self.num_losses[name] += len(names) == 1
            self.isolated.add(name)
            if self.num_losses[name] < MAX_ATTEMPTS:
                self.progress.log(f"a worker was lost; another one reads {name}")
                self.waiting.insert(0, name)
            else:
                message = f"{self.videos[name].location}: {MAX_ATTEMPTS} workers were lost with it (out of memory?)"
                self._finish(ExtractionResult(name, "failed", message))

    def _report_progress(self) -> None:
        """Ask busy workers for their progress; those that do not answer in time are asked again the next time."""
        calls = [worker.actor.positions.remote() for worker in self.workers if worker.in_flight]
        answered = self.ray.wait(calls, num_returns=len(calls), timeout=PROGRESS_TIMEOUT_S)[0] if calls else []
        for answer in answered:
            with suppress(self.ray.exceptions.RayError):
                for name, done_s in self.ray.get(answer).items():
                    self.progress.advance(name, done_s)
