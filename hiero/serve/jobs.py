"""Long work with progress: one job at a time, in order, in a thread; watched by any number of clients."""

from __future__ import annotations

import asyncio
import itertools
import queue
import re
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hiero.errors import InputError
from hiero.serve.library import NotFoundError
from hiero.types import ProgressCallback, ProgressEvent

MAX_WAITING = 64  # jobs that have not ended
MAX_ENDED = 200  # jobs that ended and are still listed
UPDATE_INTERVAL_S = 0.2  # of progress, at least
HEARTBEAT_S = 10.0  # a proxy may close a connection on which nothing happens


class Cancelled(Exception):  # noqa: N818
    """Raised inside the work of a job that was cancelled."""


@dataclass
class Job:
    """Work on one video, and how far it is.

    Attributes:
        id: Unique in its queue.
        video: Id of the video.
        state: Where it stands.
        done_s: Seconds of the video that were read.
        duration_s: Length of the video, once it is known.
        message: Why it failed or was cancelled.
        version: Counts changes, so that a watcher sees each.
        cancel_requested: The work stops at its next report of progress.
    """

    id: str
    video: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    done_s: float = 0.0
    duration_s: float | None = None
    message: str = ""
    version: int = 0
    cancel_requested: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def update(self, **changes: Any) -> None:
        """Set attributes; those who watch see it soon."""
        with self._lock:
            for name, value in changes.items():
                setattr(self, name, value)
            self.version += 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id, "video": self.video, "state": self.state, "done_s": round(self.done_s, 1),
            "duration_s": self.duration_s, "message": self.message,
        }  # fmt: skip


class JobQueue:
    """Runs jobs in a thread of its own, one after the other.

    Args:
        work: Called for each job with the id of its video and a progress callback, which raises `Cancelled` to stop it.

    Attributes:
        jobs: By id, oldest first: those that wait or run, and the last that ended.
    """

    def __init__(self, work: Callable[[str, ProgressCallback], None]) -> None:
        self.work = work
        self.jobs: dict[str, Job] = {}
        self._waiting: queue.Queue[Job | None] = queue.Queue()  # None ends the thread
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, video: str) -> Job:
        """A new job for a video, or the one that is under way for it already.

        Raises:
            InputError: Too many are waiting.
        """
        with self._lock:
            for job in self.jobs.values():
                if job.video == video and not job.ended:
                    return job
            if sum(not job.ended for job in self.jobs.values()) >= MAX_WAITING:
                raise InputError("too many jobs are waiting; try again later")
            ended = [job.id for job in self.jobs.values() if job.ended]
            for id in ended[:-MAX_ENDED]:
                del self.jobs[id]
            job = Job(str(next(self._ids)), video)
            self.jobs[job.id] = job
        self._waiting.put(job)
        return job

    def find(self, id: str) -> Job:
        """Raises NotFoundError where there is no such job."""
        try:
            return self.jobs[id]
        except KeyError:
            raise NotFoundError(f"no job {id}") from None

    def cancel(self, id: str) -> Job:
        """Stop a job: at once where it waits, else at its next report of progress."""
        job = self.find(id)
        job.cancel_requested = True
        if job.state == "waiting":
            job.update(state="cancelled")
        return job

    def close(self) -> None:
        """Cancel all jobs, tell those who watch them, and end the thread."""
        for job in list(self.jobs.values()):
            job.cancel_requested = True
            if not job.ended:
                job.update(state="cancelled", message="the server stops")
        self._waiting.put(None)

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            if job.cancel_requested:
                continue
            job.update(state="running")
            try:
                self.work(job.video, _progress_callback(job))
                job.update(state="done", done_s=job.duration_s or job.done_s)
            except Cancelled:
                job.update(state="cancelled")
            except InputError as error:
                job.update(state="failed", message=strip_folders(str(error)))
            except Exception:  # the client gets no trace, the server's terminal does
                traceback.print_exc()
                job.update(state="failed", message="an internal error; the server's log has it")


def _progress_callback(job: Job) -> ProgressCallback:
    """Passes progress on to a job, not too often, and stops one that was cancelled."""
    last_update_s = 0.0

    def report(event: ProgressEvent) -> None:
        nonlocal last_update_s
        if job.cancel_requested:
            raise Cancelled
        if event.stage != "read":
            return
        if not event.done:  # the first event of a video
            job.update(duration_s=event.total)
        elif time.monotonic() - last_update_s > UPDATE_INTERVAL_S:
            last_update_s = time.monotonic()
            job.update(done_s=event.done)

    return report


def strip_folders(text: str) -> str:
    """A message without the folders of absolute paths: they are not the client's business; names of files are."""
    return re.sub(r"(?:(?<=^)|(?<=[\s'\"(]))/(?:[^/:\n]+/)+", "", text)


async def job_events(job: Job, heartbeat_s: float = HEARTBEAT_S) -> AsyncIterator[dict[str, Any] | None]:
    """The job now and after every change, until it has ended; None as a sign of life when nothing happens.

    It looks now and then instead of waiting in a thread, so that any number can watch.

    Args:
        job: Which.
        heartbeat_s: After how many quiet seconds there is a sign of life.
    """
    version, last_event_s = -1, 0.0
    while True:
        now_s = time.monotonic()
        if job.version > version:
            version, last_event_s = job.version, now_s
            yield job.to_dict()
        elif now_s - last_event_s >= heartbeat_s:
            last_event_s = now_s
            yield None
        if job.ended and job.version == version:
            return
        await asyncio.sleep(UPDATE_INTERVAL_S)
