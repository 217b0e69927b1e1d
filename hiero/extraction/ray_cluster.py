"""The extraction of `hiero.extraction.collection` on a Ray cluster.

A worker is an actor that holds the networks and reads one or a few videos at a time. When it dies
nothing is lost: its videos go to other workers, which resume from what it has written; feature
files appear whole, and one that is there is not made again.
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
from hiero.extraction.plan import ExtractionPlan, LazyBackbones
from hiero.sources.source import SourceFile, VideoInput, VideoSource

MAX_ATTEMPTS = 3  # workers that may be lost over a video before it has failed
POLL_S = 0.5  # how long to wait for results before asking for progress
PROGRESS_TIMEOUT_S = 0.2
CONNECT_TIMEOUT_S = 10.0
PLACEMENT_TIMEOUT_S = 120.0  # how long the cluster may have no worker at all
MAX_WORKERS_PER_GPU = 64


class Worker:
    """An actor: runs in a process of the cluster, with the networks of a plan."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.plan = ExtractionPlan(
            **{**settings, "out": Path(settings["out"]), "weights": settings["weights"] and Path(settings["weights"])}
        )
        self.positions_s: dict[str, float] = {}
        self.backbones = LazyBackbones(self.plan)
        if self.plan.threads:
            import torch

            torch.set_num_threads(self.plan.threads)

    def extract(self, name: str, path: str) -> dict[str, Any]:
        """Extract one video; an ExtractionResult as a dictionary."""

        def advance(done_s: float) -> None:
            self.positions_s[name] = done_s

        result = extract_video(self.plan, self.backbones, name, VideoSource.of(path).files[0], advance)
        self.positions_s.pop(name, None)
        return result.to_dict()

    def positions(self) -> dict[str, float]:
        """How far the videos in flight are, in seconds."""
        return dict(self.positions_s)

    def pid(self) -> int:
        return os.getpid()


@dataclass
class _WorkerPool:
    """Workers, and the videos that each has in flight. A worker gets videos only once the cluster has placed it."""

    ray: Any
    create_actor: Callable[[], Any]
    max_in_flight: int
    workers: list[Any] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    pings: dict[Any, Any] = field(default_factory=dict)
    in_flight: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    isolated: set[str] = field(default_factory=set)

    def add_worker(self) -> None:
        worker = self.create_actor()
        self.workers.append(worker)
        self.pings[worker.pid.remote()] = worker

    def poll(self) -> None:
        """See which new workers are ready, and replace those that have failed."""
        answered, _ = (
            self.ray.wait(list(self.pings), num_returns=len(self.pings), timeout=0) if self.pings else ([], [])
        )
        for ping in answered:
            worker = self.pings.pop(ping)
            try:
                self.ray.get(ping)
                self.ready.add(id(worker))
            except self.ray.exceptions.RayError:
                self.replace(worker)

    def idle_worker(self, name: str) -> Any | None:
        """The least busy worker that has room for a video; None where all are busy."""
        names = {id(worker): self.names_of(worker) for worker in self.workers}
        max_others = 0 if name in self.isolated else self.max_in_flight - 1
        candidates = [
            worker
            for worker in self.workers
            if id(worker) in self.ready
            and len(names[id(worker)]) <= max_others
            and not self.isolated.intersection(names[id(worker)])
        ]
        return min(candidates, key=lambda worker: len(names[id(worker)]), default=None)

    def submit(self, worker: Any, name: str, file: SourceFile) -> None:
        self.in_flight[worker.extract.remote(name, file.location)] = (name, worker)

    def names_of(self, worker: Any) -> list[str]:
        """The videos that a worker has in flight."""
        return [name for name, other in self.in_flight.values() if other is worker]

    def busy_workers(self) -> list[Any]:
        return list({id(worker): worker for _, worker in self.in_flight.values()}.values())

    def end(self) -> None:
        """End all workers: the cluster may live on."""
        for worker in self.workers:
            with suppress(Exception):
                self.ray.kill(worker)

    def replace(self, worker: Any) -> list[str]:
        """Put a new worker in place of a lost one; returns the videos that it had in flight."""
        names = self.names_of(worker)
        self.in_flight = {
            future: (name, other) for future, (name, other) in self.in_flight.items() if other is not worker
        }
        self.workers.remove(worker)
        self.ready.discard(id(worker))
        with suppress(Exception):
            self.ray.kill(worker)  # it may only have been out of reach: two must not write the same file
        self.add_worker()
        return names


def extract_on_cluster(
    videos: Mapping[str, VideoInput],
    plan: ExtractionPlan,
    *,
    address: str | None = None,
    workers: int | None = None,
    jobs: int = 1,
    progress: ExtractionProgress | None = None,
) -> list[ExtractionResult]:
    """Extract the features of videos on a Ray cluster. Videos and the output folder have the same
    paths on all its machines.
    """
    progress = progress or ExtractionProgress()
    is_connected = import_ray().is_initialized()  # a mistake is reported before weights are fetched
    plan.prepare()
    ray = connect(address)
    try:
        files = {name: VideoSource.of(video).files[0] for name, video in videos.items()}
        pool, resources = _start_workers(ray, plan, workers, jobs, len(files))
        try:
            return _ClusterRun(ray, files, plan, pool, resources, progress).run()
        finally:
            pool.end()
    finally:
        if not is_connected:
            ray.shutdown()


def import_ray() -> Any:
    """The module. Raises InputError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray; run: pip install 'hiero-video[ray]'") from None
    return ray


def connect(address: str | None) -> Any:
    """Connect this process with a cluster."""
    ray = import_ray()
    if address is None and ray.is_initialized():
        return ray
    _check_address(address)
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}") from error
    return ray


def _check_address(address: str | None) -> None:
    """Raise at once where nothing answers at an address; Ray itself would try for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            raise InputError(f"no Ray cluster at {address}: {error.strerror or error}") from error


def _start_workers(
    ray: Any, plan: ExtractionPlan, workers: int | None, jobs: int, num_videos: int
) -> tuple[_WorkerPool, dict[str, float]]:
    """The pool, and the resources that each of its workers takes."""
    cluster = ray.cluster_resources()
    num_gpus = int(cluster.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
    num_cpus = max(1, int(cluster.get("CPU", 1)))
    max_workers = MAX_WORKERS_PER_GPU * num_gpus if num_gpus else num_cpus
    num_workers = min(workers or num_gpus or max(1, num_cpus // 2), num_videos, max_workers)
    # A share of a GPU for each, such that all of them fit, GPU by GPU.
    resources: dict[str, float] = {"num_gpus": 1 / math.ceil(num_workers / num_gpus)} if num_gpus else {"num_cpus": 1}
    weights = plan.weights or (
        fetch_weights(plan.backbone_info) if plan.is_tower and plan.backbone_info.needs_weights else None
    )
    settings = plan.to_dict() | {
        "out": str(plan.out.resolve()),
        "weights": None if weights is None else str(weights.resolve()),
        "device": "cuda" if num_gpus else "cpu",
    }
    # Two more calls at a time than videos, so that a busy worker answers `pid` and `positions`.
    actor_class = ray.remote(Worker).options(max_concurrency=jobs + 2, **resources)
    pool = _WorkerPool(ray, lambda: actor_class.remote(settings), jobs)
    for _ in range(num_workers):
        pool.add_worker()
    return pool, resources


@dataclass
class _ClusterRun:
    """Videos on their way through a pool of workers."""

    ray: Any
    videos: dict[str, SourceFile]
    plan: ExtractionPlan
    pool: _WorkerPool
    resources: dict[str, float]
    progress: ExtractionProgress
    waiting: list[str] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    lost_workers: dict[str, int] = field(default_factory=dict)
    results: dict[str, ExtractionResult] = field(default_factory=dict)

    def run(self) -> list[ExtractionResult]:
        self.waiting, self.lost_workers = list(self.videos), dict.fromkeys(self.videos, 0)
        last_ready = time.monotonic()
        while len(self.results) < len(self.videos):
            self.pool.poll()
            self._submit_waiting()
            if self.pool.ready:
                last_ready = time.monotonic()
            elif time.monotonic() - last_ready > PLACEMENT_TIMEOUT_S:
                raise InputError(
                    f"no worker could be placed in {PLACEMENT_TIMEOUT_S:.0f} s; the cluster is busy, or has no "
                    f"{' '.join(self.resources)} free"
                )
            if not self.pool.in_flight:
                time.sleep(POLL_S)
                continue
            self._collect_results()
            _report_progress(self.ray, self.pool, self.progress)
        return [self.results[name] for name in self.videos]

    def _submit_waiting(self) -> None:
        """Give videos to workers that have room; the others wait here, so that nothing piles up at a worker."""
        for name in list(self.waiting):
            if (worker := self.pool.idle_worker(name)) is None:
                continue
            self.waiting.remove(name)
            if name not in self.begun:
                self.begun.add(name)
                self.progress.begin(name, probe_duration(self.videos[name], self.plan.stream))
            self.pool.submit(worker, name, self.videos[name])

    def _collect_results(self) -> None:
        finished, _ = self.ray.wait(list(self.pool.in_flight), timeout=POLL_S)
        for future in finished:
            if future not in self.pool.in_flight:  # of a worker that was replaced meanwhile
                continue
            _, worker = self.pool.in_flight[future]
            try:
                result = ExtractionResult(**self.ray.get(future))
            # of the plan, or of a disk: it would be the same for all videos
            except self.ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except self.ray.exceptions.RayError:
                self._handle_lost_worker(worker)
            else:
                del self.pool.in_flight[future]
                self._finish(result)

    def _finish(self, result: ExtractionResult) -> None:
        self.results[result.name] = result
        self.pool.isolated.discard(result.name)
        self.progress.end(result)

    def _handle_lost_worker(self, worker: Any) -> None:
        """Give the videos of a lost worker to others, alone; only a video that was alone with it
        counts it as its own loss.
        """
        names = self.pool.replace(worker)
        for name in names:
            self.lost_workers[name] += len(names) == 1
            self.pool.isolated.add(name)
            if self.lost_workers[name] < MAX_ATTEMPTS:
                self.progress.log(f"a worker was lost; {name} goes to another")
                self.waiting.insert(0, name)
            else:
                message = f"{self.videos[name].location}: {MAX_ATTEMPTS} workers were lost over it (out of memory?)"
                self._finish(ExtractionResult(name, "failed", message))


def _report_progress(ray: Any, pool: _WorkerPool, progress: ExtractionProgress) -> None:
    """Ask busy workers how far they are; one that does not answer in time is asked again the next time."""
    calls = [worker.positions.remote() for worker in pool.busy_workers()]
    answered, _ = ray.wait(calls, num_returns=len(calls), timeout=PROGRESS_TIMEOUT_S) if calls else ([], [])
    for answer in answered:
        try:
            for name, done_s in ray.get(answer).items():
                progress.advance(name, done_s)
        except ray.exceptions.RayError:
            continue
