"""Long work with progress: a few jobs at a time, in order, in threads.

Any number of clients can watch. Jobs of a persistent state are taken up again after a restart or a kill.
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
from hiero.serve.telemetry import AuditLog
from hiero.serve.users import User
from hiero.sources.addresses import display_addresses
from hiero.types import ProgressCallback, ProgressEvent

MAX_WAITING = 10_000  # jobs that have not ended
MAX_ATTEMPTS = 3  # a job that the server did not survive so often is not begun again
STOP_S = 10.0  # for jobs to stop when the server does; they look at each report of progress
MAX_ENDED = 200  # jobs that ended and are still listed
LOOK_S = 10.0  # between two looks at folders where videos arrive
WATCH_USER = User("watch", "edit")
UPDATE_INTERVAL_S = 0.2  # of progress, at least
HEARTBEAT_S = 10.0  # a proxy may close a connection on which nothing happens

LOGGER = logging.getLogger(__name__)


class Cancelled(Exception):  # noqa: N818
    """Raised inside the work of a job that was cancelled."""


class JobQueue:
    """Runs jobs in threads of its own, a few at a time, oldest first. Jobs of a persistent state
    survive the server.
    """

    def __init__(
        self, work: Callable[[str, ProgressCallback], None], state: State | None = None, num_workers: int = 1
    ) -> None:
        self.work, self.state = work, state or State()
        self.jobs: dict[str, Job] = {}
        self._waiting: queue.Queue[Job | None] = queue.Queue()  # None ends a thread
        self._lock = threading.Lock()
        self._change_lock = threading.RLock()
        self.is_closing = False
        self.jobs |= {job.id: job for job in self.state.jobs(ENDED, MAX_ENDED)}
        for job in self.state.jobs(("waiting", "running"), MAX_WAITING):
            self._take_up(job)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(num_workers)]
        for thread in self._threads:
            thread.start()

    def _take_up(self, job: Job) -> None:
        """Go on with a job of a server that ended before the job did."""
        self.jobs[job.id] = job
        if job.state == "running" and job.num_attempts >= MAX_ATTEMPTS:
            self._change(
                job, state="failed", message=f"the server ended {job.num_attempts} times while it worked on this"
            )
            return
        self._change(job, state="waiting")
        self._waiting.put(job)

    def start(self, video: str, user: str = "") -> Job:
        """A new job for a video, or the one that is under way for it already."""
        with self._lock:
            for job in self.jobs.values():
                if job.video == video and not job.ended:
                    return job
            if sum(not job.ended for job in self.jobs.values()) >= MAX_WAITING:
                raise InputError("too many jobs are waiting; try again later")
            ended = [job.id for job in self.jobs.values() if job.ended]
            for id in ended[:-MAX_ENDED]:
                del self.jobs[id]
            job = self.state.add_job(video, user)
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
        with self._change_lock:
            job.cancel_requested = True
            if job.state == "waiting":
                self._change(job, state="cancelled")
        return job

    def retry(self, id: str, user: str = "") -> Job:
        """A new job in place of one that failed or was cancelled."""
        job = self.find(id)
        if job.state not in ("failed", "cancelled"):
            raise InputError(f"job {id} is {job.state}; only one that failed or was cancelled is tried again")
        return self.start(job.video, user)

    def count(self, state: str) -> int:
        """How many jobs are in a state, of those that are listed."""
        return sum(job.state == state for job in list(self.jobs.values()))

    def close(self) -> None:
        """Stop all jobs, tell those who watch them, and end the threads. A persistent state has them
        wait for the next server.
        """
        with self._change_lock:
            self.is_closing = True
            for job in list(self.jobs.values()):
                if not job.ended:
                    self._put_back(job)
        for _ in self._threads:
            self._waiting.put(None)
        deadline_s = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _put_back(self, job: Job) -> None:
        job.cancel_requested = True
        if self.state.is_persistent:
            if job.state == "running":
                self._change(job, state="waiting", num_attempts=job.num_attempts - 1)  # it did not fail
        else:
            job.update(state="cancelled", message="the server stops")

    def _change(self, job: Job, **changes: Any) -> None:
        """Set attributes, here and in the state, both before the next change."""
        with self._change_lock:
            job.update(**changes)
            try:
                self.state.save_job(job)
            except InputError as error:  # a full disk: the job itself may go on
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
            except Exception:  # the client gets no trace, the server's terminal does
                LOGGER.exception("hiero: job %s:", job.id)
                changes = {"state": "failed", "message": "an internal error; the server's log has it"}
            with self._change_lock:
                if not (self.is_closing and changes["state"] != "done"):  # then it was put back
                    self._change(job, **changes)


def _progress_callback(job: Job) -> ProgressCallback:
    """Passes progress on to a job, not too often, and stops one that was cancelled."""
    last_update_s = 0.0

    def report(event: ProgressEvent) -> None:
        nonlocal last_update_s
        if job.cancel_requested:
            raise Cancelled
        if event.stage == "download" and time.monotonic() - last_update_s > UPDATE_INTERVAL_S:
            last_update_s = time.monotonic()
            total = "" if event.total is None else f" of {event.total / 1e6:.0f}"
            job.update(message=f"fetching {event.done / 1e6:.0f}{total} MB")
        if event.stage != "read":
            return
        if job.message:
            job.update(message="")
        if not event.done or (event.total is not None and event.total != job.duration_s):
            job.update(duration_s=event.total, done_s=event.done)
        elif time.monotonic() - last_update_s > UPDATE_INTERVAL_S:
            last_update_s = time.monotonic()
            job.update(done_s=event.done)

    return report


def hide_folders(text: str) -> str:
    """A message without the folders of absolute paths and secrets of addresses: they are not the client's
    business; names of files are.
    """
    return re.sub(r"(?:(?<=^)|(?<=[\s'\"(]))/(?:[^/:\n]+/)+", "", display_addresses(text))


async def job_events(job: Job, heartbeat_s: float = HEARTBEAT_S) -> AsyncIterator[dict[str, Any] | None]:
    """The job now and after every change, until it has ended; None as a sign of life when nothing happens.

    It looks now and then instead of waiting in a thread, so that any number can watch.
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
    """Videos that arrive while the server runs are shown, and read by a job. Folders are looked at in a thread."""

    def __init__(self, library: Library, jobs: JobQueue, watcher: ArrivalWatcher, audit: AuditLog) -> None:
        self.library, self.jobs, self.watcher, self.audit = library, jobs, watcher, audit
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def look(self) -> None:
        """Take what is new."""
        arrived = self.watcher.look()
        for name, source in arrived.items():
            entry = self.library.add(source, name)
            if not self.library.is_read(entry):
                job = self.jobs.start(entry.id, WATCH_USER.name)
                self.audit.record(WATCH_USER, "read video", entry.id, f"{entry.name}, job {job.id}")
        self.watcher.finish(arrived)

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(LOOK_S):
            try:
                self.look()
            except (InputError, OSError) as error:  # a share that is away for a while
                LOGGER.warning("hiero: %s; looked at again", display_addresses(str(error)))
