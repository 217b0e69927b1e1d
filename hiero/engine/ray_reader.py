"""Processing of videos on a Ray cluster.

Workers write features into the shared cache, from which they are then opened. If a worker
is lost, another one takes over its video. A video is in the cache completely or not at all.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any

from hiero.errors import InputError
from hiero.extraction.ray_cluster import connect
from hiero.sources.source import VideoSource
from hiero.types import ProgressCallback, ProgressEvent

POLL_S = 0.5  # time between two progress updates
MAX_LOST_WORKERS = 3  # lost workers per video before it fails


class ReadWorker:
    """A Ray actor that processes videos with its own engine."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.engine: Any = None
        self.progress: dict[str, tuple[float, float | None]] = {}

    def read(self, id: str, paths: list[str]) -> str:
        """Process a video into the cache. Returns an error message, or an empty string."""
        from hiero.engine.engine import engine_for, load

        def report(event: ProgressEvent) -> None:
            if event.stage == "read":
                self.progress[id] = (event.done, event.total)

        try:
            self.engine = self.engine or load(**self.settings)
            source = VideoSource.of(paths)
            engine_for(self.engine, source).read(source, edits=False, progress=report)
        except InputError as error:
            return str(error)
        finally:
            self.progress.pop(id, None)
        return ""

    def position(self, id: str) -> tuple[float, float | None]:
        return self.progress.get(id, (0.0, None))


class RayReader:
    """Processes videos on a cluster with a few workers."""

    def __init__(self, settings: dict[str, Any], num_workers: int = 1, address: str | None = None) -> None:
        self.ray = connect(address)
        has_gpus = self.ray.cluster_resources().get("GPU", 0) > 0
        # Ray restarts lost workers and repeats their tasks.
        actor = self.ray.remote(ReadWorker).options(
            max_concurrency=8,
            max_restarts=-1,
            max_task_retries=MAX_LOST_WORKERS,
            **({"num_gpus": min(1.0, 1 / num_workers)} if has_gpus else {"num_cpus": 1}),
        )
        self.workers = [actor.remote(settings) for _ in range(num_workers)]
        self._turns = itertools.cycle(self.workers)

    def __call__(self, source: VideoSource, progress: ProgressCallback) -> None:
        """Process a video."""
        worker, id = next(self._turns), source.identity
        result = worker.read.remote(id, [file.location for file in source.files])
        try:
            while not self.ray.wait([result], timeout=POLL_S)[0]:
                progress(ProgressEvent("read", source.name, *self._position(worker, id)))
            message = self.ray.get(result)
        except self.ray.exceptions.RayError as error:
            logging.getLogger(__name__).debug("worker lost", exc_info=error)
            raise InputError(f"{source.name}: its worker was lost {MAX_LOST_WORKERS + 1} times") from error
        except BaseException:
            self.ray.cancel(result)
            raise
        if message:
            raise InputError(message)

    def _position(self, worker: Any, id: str) -> tuple[float, float | None]:
        """Processed and total seconds of a video, unknown while its worker starts or does not answer."""
        try:
            position: tuple[float, float | None] = self.ray.get(worker.position.remote(id), timeout=POLL_S)
        except (self.ray.exceptions.RayError, TimeoutError):
            return 0.0, None
        return position
