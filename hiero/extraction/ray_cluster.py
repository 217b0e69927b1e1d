"""The extraction of `hiero.extraction.collection` on a Ray cluster.

A worker is an actor that holds the networks and reads one video at a time. If it dies, another
one takes its place and resumes from what it has written. Feature files appear complete, and existing
ones are kept.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import queue
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hiero.backbones.registry import fetch_weights
from hiero.errors import InputError
from hiero.extraction.collection import (
    ExtractionPlan,
    ExtractionProgress,
    ExtractionResult,
    extract_all,
    extract_video,
)
from hiero.sources.source import SourceFile, VideoInput, VideoSource
from hiero.types import ProgressCallback

MAX_ATTEMPTS = 3  # workers that may die with a video before it counts as failed
POLL_S = 0.5  # between requests for progress
CONNECT_TIMEOUT_S = 10.0
PLACEMENT_TIMEOUT_S = 120.0  # for the cluster to provide a first worker
MAX_WORKERS_PER_GPU = 64


class Worker:
    """An actor in a process of the cluster, with the networks of a plan."""

    def __init__(self, plan: ExtractionPlan) -> None:
        self.plan, self.position_s = plan, 0.0
        if plan.threads:
            import torch

            torch.set_num_threads(plan.threads)

    def extract(self, name: str, path: str) -> ExtractionResult:
        """Extract one video."""
        self.position_s = 0.0
        return extract_video(self.plan, name, VideoSource.of(path).files[0], self.advance)

    def advance(self, done_s: float) -> None:
        self.position_s = done_s

    def position(self) -> float:
        """Seconds that are done of the current video."""
        return self.position_s

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
    """Extract the features of videos on a Ray cluster, with `workers` times `jobs` processes.

    The videos and the output folder must have the same paths on all its machines.
    """
    is_connected = import_ray().is_initialized()  # a missing package is reported before weights are downloaded
    plan.prepare()
    ray = connect(address)
    progress = progress or ExtractionProgress()
    run = _ClusterRun(ray, plan, progress.log)
    try:
        num_workers = run.start(len(videos), workers, jobs)
        return extract_all(videos, plan, num_workers, progress, run.extract)
    finally:
        run.close()
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


class _ClusterRun:
    """The workers of an extraction; several threads may use them."""

    def __init__(self, ray: Any, plan: ExtractionPlan, log: Callable[[str], None]) -> None:
        self.ray, self.plan, self.log = ray, plan, log
        self.actors: list[Any] = []
        self.idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def start(self, num_videos: int, workers: int | None, jobs: int) -> int:
        """Start workers, each with its share of the cluster's resources; returns their number."""
        cluster, plan = self.ray.cluster_resources(), self.plan
        num_gpus = int(cluster.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
        num_cpus = max(1, int(cluster.get("CPU", 1)))
        max_workers = MAX_WORKERS_PER_GPU * num_gpus if num_gpus else num_cpus
        num_workers = min(jobs * (workers or num_gpus or max(1, num_cpus // 2)), num_videos, max_workers)
        # Workers share GPUs such that all of them fit, GPU by GPU.
        resources = {"num_gpus": 1 / math.ceil(num_workers / num_gpus)} if num_gpus else {"num_cpus": 1}
        weights = plan.weights
        if weights is None and plan.is_tower and plan.backbone_info.needs_weights:
            weights = fetch_weights(plan.backbone_info)
        device, weights = "cuda" if num_gpus else "cpu", weights and weights.resolve()
        worker_plan = replace(plan, out=plan.out.resolve(), weights=weights, device=device)
        # A second call at a time answers `position`.
        actor_class = self.ray.remote(Worker).options(max_concurrency=2, **resources)
        self.new_actor = functools.partial(actor_class.remote, worker_plan)
        self.actors = [self.new_actor() for _ in range(num_workers)]
        pings = {actor.pid.remote(): actor for actor in self.actors}
        if not self.ray.wait(list(pings), timeout=PLACEMENT_TIMEOUT_S)[0]:
            waited = f"no worker could be placed within {PLACEMENT_TIMEOUT_S:.0f} s"
            raise InputError(f"{waited}. The cluster is busy, or has no free {' '.join(resources)}.")
        for ping, actor in pings.items():  # others are used once the cluster has placed them
            ping.future().add_done_callback(lambda _, actor=actor: self.idle.put(actor))
        return num_workers

    def extract(
        self, name: str, file: SourceFile, advance: Callable[[float], None], _: ProgressCallback
    ) -> ExtractionResult:
        """Extract a video with the next idle worker; if that is lost, with another one in its place."""
        actor = self._wait_for_worker(advance)
        try:
            for _attempt in range(MAX_ATTEMPTS):
                result = actor.extract.remote(name, file.location)
                try:
                    while not self.ray.wait([result], timeout=POLL_S)[0]:
                        with suppress(self.ray.exceptions.RayError):  # asked again the next time
                            advance(self.ray.get(actor.position.remote(), timeout=POLL_S))
                    extracted: ExtractionResult = self.ray.get(result)
                    return extracted
                except self.ray.exceptions.RayTaskError as error:  # of the plan or a disk: the same for all videos
                    raise error.as_instanceof_cause() from None
                except self.ray.exceptions.RayError:
                    self._kill(actor)  # it may only have been unreachable, and two must not write the same file
                    actor = self.new_actor()
                    self.actors.append(actor)
                    self.log(f"a worker was lost; another one reads {name}")
        finally:
            self.idle.put(actor)
        message = f"{file.location}: {MAX_ATTEMPTS} workers were lost with it (out of memory?)"
        return ExtractionResult(name, "failed", message)

    def _wait_for_worker(self, advance: Callable[[float], None]) -> Any:
        while True:
            with suppress(queue.Empty):
                return self.idle.get(timeout=POLL_S)
            advance(0.0)  # which ends this thread after an interruption

    def close(self) -> None:
        """End the workers; the cluster itself goes on."""
        for actor in self.actors:
            self._kill(actor)

    def _kill(self, actor: Any) -> None:
        with suppress(Exception):
            self.ray.kill(actor)
