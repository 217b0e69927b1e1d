"""Background jobs with progress, and watching of folders for new videos.

Jobs in a persistent state are resumed after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from hiero.corpus.indexing import ArrivalWatcher
from hiero.errors import InputError
from hiero.serve.entries import NotFoundError
from hiero.serve.library import Library
from hiero.serve.state import ENDED, Job, State
from hiero.serve.telemetry import EventLog
from hiero.serve.users import User
from hiero.sources.addresses import display_addresses
from hiero.types import ProgressCallback, ProgressEvent

MAX_WAITING = 10_000  # unfinished jobs
MAX_ATTEMPTS = 3  # a job fails if the server ends this often while it runs
STOP_S = 10.0  # time for jobs to stop; they check at each progress report
MAX_ENDED = 200  # finished jobs that are listed
SCAN_EVERY_S = 10.0  # time between two scans of watched folders
WATCH_USER = User("watch", "edit")
UPDATE_INTERVAL_S = 0.2  # shortest time between two progress updates
HEARTBEAT_S = 10.0  # proxies may close silent connections

INTERNAL_ERROR = "internal error; see the log of the server"
LOGGER = logging.getLogger(__name__)


class Cancelled(Exception):  # noqa: N818
    """Raised inside a job that was cancelled."""


class JobQueue:
    """Runs jobs in its own threads, oldest first."""

    def __init__(
        self, work: Callable[[str, ProgressCallback], None], state: State | None = None, num_workers: int = 1
    ) -> None:
        self.work, self.state = work, state or State()
        self.jobs: dict[str, Job] = {}
        self._waiting: queue.Queue[Job | None] = queue.Queue()  # None stops a thread
        self._lock = threading.Lock()
        self._change_lock = threading.RLock()
        self.is_closing = False
        self.jobs |= {job.id: job for job in self.state.jobs(ENDED, MAX_ENDED)}
        for job in self.state.jobs(("waiting", "running"), MAX_WAITING):
            self._resume(job)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(num_workers)]
        for thread in self._threads:
            thread.start()

    def _resume(self, job: Job) -> None:
        """Resume a job that a previous server did not finish."""
        self.jobs[job.id] = job
        if job.state == "running" and job.num_attempts >= MAX_ATTEMPTS:
            message = f"the server stopped {job.num_attempts} times during this job"
            self._change(job, state="failed", message=message)
            return
        self._change(job, state="waiting")
        self._waiting.put(job)

    def start(self, video: str, user: str = "") -> Job:
        """Start a job for a video, or return its unfinished job."""
        with self._lock:
            for job in self.jobs.values():
                if job.video == video and not job.ended:
                    return job
            if sum(not job.ended for job in self.jobs.values()) >= MAX_WAITING:
                raise InputError("too many jobs are waiting; please try again later")
            ended = [job.id for job in self.jobs.values() if job.ended]
            for id in ended[:-MAX_ENDED]:
                del self.jobs[id]
            job = self.state.add_job(video, user)
            self.jobs[job.id] = job
        self._waiting.put(job)
        return job

    def find(self, id: str) -> Job:
        """Find a job by its id. Raises NotFoundError if there is none."""
        if (job := self.jobs.get(id)) is None:
            raise NotFoundError(f"there is no job {id}")
        return job

    def cancel(self, id: str) -> Job:
        """Cancel a job: at once if it is waiting, otherwise at its next progress report."""
        job = self.find(id)
        with self._change_lock:
            job.cancel_requested = True
            if job.state == "waiting":
                self._change(job, state="cancelled")
        return job

    def retry(self, id: str, user: str = "") -> Job:
        """Start a new job for one that failed or was cancelled."""
        job = self.find(id)
        if job.state not in ("failed", "cancelled"):
            raise InputError(f"job {id} is {job.state}; only failed and cancelled jobs can be retried")
        return self.start(job.video, user)

    def count(self, state: str) -> int:
        """Number of listed jobs in a state."""
        return sum(job.state == state for job in list(self.jobs.values()))

    def close(self) -> None:
        """Stop all jobs and threads. In a persistent state, unfinished jobs wait for the next server."""
        with self._change_lock:
            self.is_closing = True
            for job in list(self.jobs.values()):
                if job.ended:
                    continue
                job.cancel_requested = True
                if not self.state.is_persistent:
                    job.update(state="cancelled", message="the server stopped")
                elif job.state == "running":
                    self._change(job, state="waiting", num_attempts=job.num_attempts - 1)  # this was no failure
        for _ in self._threads:
            self._waiting.put(None)
        deadline_s = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _change(self, job: Job, **changes: Any) -> None:
        """Set attributes of a job, also in the state."""
        with self._change_lock:
            job.update(**changes)
            try:
                self.state.save_job(job)
            except InputError as error:  # for example a full disk; the job can continue
                LOGGER.warning("hiero: job %s: %s", job.id, error)

    def _run(self) -> None:
        while (job := self._waiting.get()) is not None:
            with self._change_lock:
                if job.cancel_requested or self.is_closing:
                    continue
                self._change(job, state="running", num_attempts=job.num_attempts + 1)
            changes: dict[str, Any]
            try:
                self.work(job.video, _progress_callback(job))
                changes = {"state": "done", "done_s": job.duration_s or job.done_s, "message": ""}
            except Cancelled:
                changes = {"state": "cancelled"}
            except (InputError, NotFoundError) as error:
                changes = {"state": "failed", "message": hide_folders(str(error))}
            except Exception:  # clients must not see the traceback
                LOGGER.exception("hiero: job %s:", job.id)
                changes = {"state": "failed", "message": INTERNAL_ERROR}
            with self._change_lock:
                if not (self.is_closing and changes["state"] != "done"):  # otherwise it was put back
                    self._change(job, **changes)


def _progress_callback(job: Job) -> ProgressCallback:
    """Reports progress to a job at a limited rate, and stops the job if it was cancelled."""
    last_update_s = 0.0

    def report(event: ProgressEvent) -> None:
        nonlocal last_update_s
        if job.cancel_requested:
            raise Cancelled
        if event.stage == "download":
            total = "" if event.total is None else f" of {event.total / 1e6:.0f}"
            changes: dict[str, Any] = {"message": f"downloading {event.done / 1e6:.0f}{total} MB"}
        elif event.stage == "read":
            changes = {"message": "", "done_s": event.done, "duration_s": event.total or job.duration_s}
        else:
            return
        is_new_stage = event.stage == "read" and (not event.done or changes["duration_s"] != job.duration_s)
        if is_new_stage or time.monotonic() - last_update_s > UPDATE_INTERVAL_S:
            last_update_s = time.monotonic()
            job.update(**changes)

    return report


def hide_folders(text: str) -> str:
    """A message without the folders of absolute paths and without secrets in addresses."""
    return re.sub(r"(?:(?<=^)|(?<=[\s'\"(]))/(?:[^/:\n]+/)+", "", display_addresses(text))


async def job_events(job: Job, heartbeat_s: float = HEARTBEAT_S) -> AsyncIterator[dict[str, Any] | None]:
    """The job now and after every change until it ends, and None as a heartbeat.

    It polls the job instead of waiting in a thread, so that any number of clients can watch.
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
        if (job.ended or (job.cancel_requested and job.state == "waiting")) and job.version == version:
            return
        await asyncio.sleep(UPDATE_INTERVAL_S)


class Arrivals:
    """Watches folders in a thread. New videos are added to the library and processed by jobs."""

    def __init__(self, library: Library, jobs: JobQueue, watcher: ArrivalWatcher, log: EventLog) -> None:
        self.library, self.jobs, self.watcher, self.log = library, jobs, watcher, log
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def look(self) -> None:
        """Add new videos."""
        arrived = self.watcher.look()
        for name, source in arrived.items():
            entry = self.library.add(source, name)
            if not self.library.is_read(entry):
                job = self.jobs.start(entry.id, WATCH_USER.name)
                self.log.record_change(WATCH_USER, "read video", entry.id, f"{entry.name}, job {job.id}")
        self.watcher.finish(arrived)

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(SCAN_EVERY_S):
            try:
                self.look()
            except (InputError, OSError) as error:  # for example a network share that is offline
                LOGGER.warning("hiero: %s; retrying", display_addresses(str(error)))
