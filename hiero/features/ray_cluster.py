"""Extraction on a Ray cluster: `hiero extract --ray`.

A worker is an actor that holds the networks and reads one video at a time. Ray replaces a worker that
dies, and the new one resumes from what the old one wrote. Feature files appear complete, and existing
ones are kept. The videos and the output folder must have the same paths on all machines.
"""

from __future__ import annotations

import logging
import math
import queue
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hiero.errors import InputError
from hiero.features.collection import ExtractionPlan, ExtractionProgress, ExtractionResult, extract_all, extract_video
from hiero.media.source import SourceFile, VideoInput, VideoSource
from hiero.networks.registry import fetch_weights
from hiero.types import ProgressCallback

MAX_ATTEMPTS = 3  # workers that may die with a video before it counts as failed
POLL_S = 0.5  # between requests for progress
CONNECT_TIMEOUT_S = 10.0


class Worker:
    """An actor in a process of the cluster, with the networks of a plan."""

    def __init__(self, plan: ExtractionPlan) -> None:
        self.plan, self.position_s = plan, 0.0
        if plan.threads:
            import torch

            torch.set_num_threads(plan.threads)

    def extract(self, name: str, path: str) -> ExtractionResult:
        self.position_s = 0.0
        return extract_video(self.plan, name, VideoSource.of(path).files[0], self.advance)

    def advance(self, done_s: float) -> None:
        self.position_s = done_s

    def position(self) -> float:
        return self.position_s


def connect(address: str) -> Any:
    """Connect this process to a cluster, or start one on this machine (`local`). Returns the module ray."""
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray; run: pip install 'hiero-video[ray]'") from None
    if address == "local" and ray.is_initialized():
        return ray
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if host and port.isdigit():  # Ray itself would retry for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise InputError(f"no Ray cluster at {address}: {reason}") from error
    return ray


def extract_on_cluster(
    videos: Mapping[str, VideoInput],
    plan: ExtractionPlan,
    *,
    address: str = "local",
    workers: int | None = None,
    progress: ExtractionProgress | None = None,
    worker: type[Worker] = Worker,
) -> list[ExtractionResult]:
    """Extract the features of videos with several workers: by default one per GPU, or per two CPUs."""
    ray = connect(address)
    plan.prepare()
    cluster = ray.cluster_resources()
    num_gpus = int(cluster.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
    num_workers = min(workers or num_gpus or max(1, int(cluster.get("CPU", 1)) // 2), len(videos))
    resources = {"num_gpus": 1 / math.ceil(num_workers / num_gpus)} if num_gpus else {"num_cpus": 1}
    weights = fetch_weights(plan.backbone_info) if plan.weights is None and plan.is_tower else plan.weights
    plan = replace(
        plan, out=plan.out.resolve(), weights=weights and weights.resolve(), device="cuda" if num_gpus else "cpu"
    )
    # A second call at a time answers `position`.
    actor = ray.remote(worker).options(
        max_concurrency=2, max_restarts=-1, max_task_retries=MAX_ATTEMPTS - 1, **resources
    )
    idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
    actors = [actor.remote(plan) for _ in range(num_workers)]
    for each in actors:
        idle.put(each)

    def extract(name: str, file: SourceFile, advance: Callable[[float], None], _: ProgressCallback) -> ExtractionResult:
        chosen = idle.get()
        try:
            result = chosen.extract.remote(name, file.location)
            while not ray.wait([result], timeout=POLL_S)[0]:
                advance(0.0)  # ends this thread after an interruption
                with suppress(ray.exceptions.RayError):  # asked again the next time
                    advance(ray.get(chosen.position.remote(), timeout=POLL_S))
            extracted: ExtractionResult = ray.get(result)
            return extracted
        except ray.exceptions.RayTaskError as error:  # of the plan or a disk: the same for all videos
            raise error.as_instanceof_cause() from None
        except ray.exceptions.RayError:
            return ExtractionResult(name, "failed", f"{file.location}: its workers were lost (out of memory?)")
        finally:
            idle.put(chosen)

    try:
        return extract_all(videos, plan, num_workers, progress, extract)
    finally:
        for each in actors:
            ray.kill(each)
