"""Background jobs with progress: processing of videos, also new ones in watched folders, and learning.

Jobs in a persistent state are resumed after a restart.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import statistics
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from hiero.corpus.adaptation import learn_from_videos, named_steps, renamed_steps
from hiero.corpus.indexing import ArrivalWatcher
from hiero.engine import NO_TEXT
from hiero.errors import BusyError, InputError
from hiero.media.addresses import display_addresses
from hiero.serve.entries import NotFoundError
from hiero.serve.library import Library
from hiero.serve.state import ENDED, Job, State
from hiero.serve.telemetry import EventLog
from hiero.types import ProgressCallback, ProgressEvent

MAX_WAITING = 10_000  # unfinished jobs
MAX_ATTEMPTS = 3  # a job fails if the server ends this often while it runs
STOP_S = 6.0  # time for jobs to stop; they check at each progress report
MAX_ENDED = 200  # finished jobs that are listed
MAX_LISTED = 300  # waiting jobs that are listed
NUM_RATES = 20  # last jobs that estimates are based on
SCAN_EVERY_S = 10.0  # time between two scans of watched folders
LEARNING = "learning"  # stands for the video in the job that learns
MAX_CHANGES = 200  # listed steps per video that learning has renamed
WATCH_USER = "watch"  # starts the jobs for videos that arrive in watched folders
UPDATE_INTERVAL_S = 0.2  # shortest time between two progress updates
HEARTBEAT_S = 10.0  # proxies may close silent connections

INTERNAL_ERROR = "internal error; see the log of the server"
LOGGER = logging.getLogger(__name__)


class Cancelled(Exception):  # noqa: N818
    """Raised inside a job that was cancelled."""


class JobQueue:
    """Runs jobs in its own threads. Users take turns, and the oldest job of each comes first."""

    def __init__(
        self, work: Callable[[str, ProgressCallback], None], state: State | None = None, num_workers: int = 1
    ) -> None:
        self.work, self.state = work, state or State()
        self.closing = threading.Event()
        self.num_ended = Counter[str]()  # since the start, by state
        self._changed = threading.Condition(threading.RLock())
        self._order: dict[str, int] | None = None  # positions of waiting jobs, None if they have changed
        self._numbers = itertools.count(1)
        self._turns: dict[str, int] = {}  # number of the last turn of each user
        self.jobs = {job.id: job for job in self.state.jobs(ENDED, MAX_ENDED)}
        self._unfinished: dict[str, Job] = {}  # by video
        for job in self.state.jobs(("waiting", "running"), MAX_WAITING):
            self.jobs[job.id] = job
            if job.state == "running" and job.num_attempts >= MAX_ATTEMPTS:
                self._change(job, state="failed", message=f"the server stopped {job.num_attempts} times in this job")
            else:
                self._unfinished[job.video] = job
                self._change(job, state="waiting", place=next(self._numbers))
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(num_workers)]
        for thread in self._threads:
            thread.start()

    def start(self, video: str, user: str = "", duration_s: float | None = None, *, again: bool = False) -> Job:
        """Start a job for a video, or return its unfinished job, which is cancelled if the video has changed."""
        with self._changed:
            unfinished = self._unfinished.get(video)
            if unfinished is not None and again:
                self.cancel(unfinished.id)
            elif unfinished is not None:
                return unfinished
            if len(self._unfinished) >= MAX_WAITING:
                raise InputError("too many jobs are waiting; please try again later")
            if len(self.jobs) - len(self._unfinished) > 2 * MAX_ENDED:
                for job in [job for job in self.jobs.values() if job.ended][:-MAX_ENDED]:
                    del self.jobs[job.id]
            job = self.state.add_job(video, user, duration_s)
            job.place = next(self._numbers)
            self.jobs[job.id] = self._unfinished[video] = job
            self._order = None
            self._changed.notify()
        return job

    def find(self, id: str) -> Job:
        """Find a job by its id. Raises NotFoundError if there is none."""
        if (job := self.jobs.get(id)) is None:
            raise NotFoundError(f"there is no job {id}")
        return job

    def cancel(self, id: str) -> Job:
        """Cancel a job: at once if it is waiting, otherwise at its next progress report."""
        job = self.find(id)
        with self._changed:
            job.cancel_requested = True
            if job.state == "waiting":
                self._change(job, state="cancelled")
        return job

    def retry(self, id: str, user: str = "") -> Job:
        """Start a new job for one that failed or was cancelled."""
        job = self.find(id)
        if job.state not in ("failed", "cancelled"):
            raise InputError(f"job {id} is {job.state}; only failed and cancelled jobs can be retried")
        return self.start(job.video, user, job.duration_s)

    def count(self, state: str) -> int:
        """Number of listed jobs in a state."""
        return sum(job.state == state for job in list(self.jobs.values()))

    @property
    def oldest_s(self) -> float:
        """Age of the oldest unfinished job."""
        with self._changed:
            return max((time.time() - job.created_at for job in self._unfinished.values()), default=0.0)

    def listed(self) -> list[Job]:
        """Ended jobs, running ones, and the waiting ones in their order, of which only the first are listed."""
        with self._changed:
            positions = self._positions()
            others = [job for job in self.jobs.values() if job.state != "waiting"]
            return others + [self.jobs[id] for id in itertools.islice(positions, MAX_LISTED)]

    def describe(self, job: Job) -> dict[str, Any]:
        """What clients see of a job, with its position in the queue, from 1, and the estimated time left."""
        with self._changed:
            position = self._positions().get(job.id)
            left_s = job.left_s if position is None else self._wait_s(job, position)
        return {**job.to_dict(), "position": position, "left_s": None if left_s is None else round(left_s, 1)}

    def _positions(self) -> dict[str, int]:
        """The positions of the waiting jobs by their ids, in order: the next job of each user, then the second ones."""
        if self._order is None:
            waiting = sorted((job for job in self._unfinished.values() if job.state == "waiting"), key=_place)
            ranks, turns = Counter[str](), []
            for job in waiting:
                turns.append((ranks[job.user], self._turns.get(job.user, 0), job.place, job.id))
                ranks[job.user] += 1
            self._order = {id: position for position, (*_, id) in enumerate(sorted(turns), 1)}
        return self._order

    def _wait_s(self, job: Job, position: int) -> float | None:
        """Estimated time until a waiting job is done, from the time that the last jobs took per second of video."""
        known = [other for other in self.jobs.values() if other.video != LEARNING and other.duration_s]
        rates = [other.spent_s / other.duration_s for other in known if other.spent_s and other.duration_s]
        running = [other for other in self.jobs.values() if other.state == "running" and other.left_s is not None]
        rates += [r.left_s / (r.duration_s - r.done_s) for r in running if r.left_s and r.duration_s]
        if not rates:
            return None
        rate = statistics.median(rates[-NUM_RATES:])
        length_s = statistics.fmean(other.duration_s or 0.0 for other in known)
        before = [self.jobs[id] for id in itertools.islice(self._positions(), position - 1)]
        ahead_s = sum(other.left_s or 0.0 for other in running) + rate * sum(b.duration_s or length_s for b in before)
        return ahead_s / len(self._threads) + rate * (job.duration_s or length_s)

    def close(self) -> None:
        """Stop all jobs and threads. In a persistent state, unfinished jobs wait for the next server."""
        with self._changed:
            self.closing.set()
            for job in list(self._unfinished.values()):
                job.cancel_requested = True
                if not self.state.is_persistent:
                    job.update(state="cancelled", message="the server stopped")
                elif job.state == "running":
                    self._change(job, state="waiting", num_attempts=job.num_attempts - 1)  # this was no failure
            self._changed.notify_all()
        deadline_s = time.monotonic() + STOP_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _change(self, job: Job, **changes: Any) -> None:
        """Set attributes of a job, also in the state."""
        with self._changed:
            job.update(**changes)
            self._order = None
            if job.ended:
                self.num_ended[job.state] += 1
                if self._unfinished.get(job.video) is job:
                    del self._unfinished[job.video]
            try:
                self.state.save_job(job)
            except InputError as error:  # for example a full disk; the job can continue
                LOGGER.warning("hiero: job %s: %s", job.id, error)

    def _next(self) -> Job | None:
        """Wait for the next job, and mark it as running. None if the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.closing.is_set() or self._positions())
            if self.closing.is_set():
                return None
            job = self.jobs[next(iter(self._positions()))]
            self._turns[job.user] = next(self._numbers)
            self._change(job, state="running", num_attempts=job.num_attempts + 1, left_s=None)
            return job

    def _run(self) -> None:
        while (job := self._next()) is not None:
            begin_s = time.monotonic()
            changes: dict[str, Any]
            try:
                self.work(job.video, _progress_callback(job))
                spent_s = time.monotonic() - begin_s
                done_s = job.duration_s or job.done_s
                changes = {"state": "done", "done_s": done_s, "spent_s": spent_s, "message": "", "left_s": None}
            except Cancelled:
                changes = {"state": "cancelled"}
            except BusyError as error:  # this was no failure: its turn comes again
                message, attempts = hide_folders(str(error)), job.num_attempts - 1
                place = next(self._numbers)
                changes = {"state": "waiting", "message": message, "num_attempts": attempts, "place": place}
            except (InputError, NotFoundError) as error:
                changes = {"state": "failed", "message": hide_folders(str(error))}
            except Exception:  # clients must not see the traceback
                LOGGER.exception("hiero: job %s:", job.id)
                changes = {"state": "failed", "message": INTERNAL_ERROR}
            with self._changed:
                if self.closing.is_set() and changes["state"] != "done":  # it was put back
                    continue
                if changes["state"] == "waiting" and job.cancel_requested:
                    changes = {"state": "cancelled"}
                self._change(job, **changes)


def _place(job: Job) -> int:
    return job.place


def _progress_callback(job: Job) -> ProgressCallback:
    """Reports progress to a job at a limited rate, and stops the job if it was cancelled."""
    last_update_s = 0.0
    first_read: tuple[float, float] | None = None  # when reading began, and where

    def report(event: ProgressEvent) -> None:
        nonlocal last_update_s, first_read
        if job.cancel_requested:
            raise Cancelled
        if event.stage == "download":
            total = "" if event.total is None else f" of {event.total / 1e6:.0f}"
            changes: dict[str, Any] = {"message": f"downloading {event.done / 1e6:.0f}{total} MB"}
        elif event.stage == "read":
            begin_s, begin = first_read = first_read or (time.monotonic(), event.done)
            duration_s = event.total or job.duration_s
            num_done, num_left = event.done - begin, max(0.0, (duration_s or 0.0) - event.done)
            left_s = (time.monotonic() - begin_s) * num_left / num_done if num_done > 0 else None
            changes = {"message": "", "done_s": event.done, "duration_s": duration_s, "left_s": left_s}
        else:
            changes = {"message": hide_folders(event.message), "left_s": None}
        is_new_stage = event.stage == "message" or not event.done or changes.get("duration_s") != job.duration_s
        if is_new_stage or time.monotonic() - last_update_s > UPDATE_INTERVAL_S:
            last_update_s = time.monotonic()
            job.update(**changes)

    return report


def hide_folders(text: str) -> str:
    """A message without the folders of absolute paths and without secrets in addresses."""
    return re.sub(r"(?:(?<=^)|(?<=[\s'\"(]))/(?:[^/:\n]+/)+", "", display_addresses(text))


async def job_events(
    jobs: JobQueue, job: Job, heartbeat_s: float = HEARTBEAT_S
) -> AsyncIterator[dict[str, Any] | None]:
    """The job now and after every change until it ends, and None as a heartbeat."""
    shown: dict[str, Any] = {}
    last_event_s = 0.0
    while True:
        has_ended = job.ended or (job.cancel_requested and job.state == "waiting")
        now_s = time.monotonic()
        if (described := jobs.describe(job)) != shown:
            shown, last_event_s = described, now_s
            yield shown
        elif now_s - last_event_s >= heartbeat_s:
            last_event_s = now_s
            yield None
        if has_ended:
            return
        await asyncio.sleep(UPDATE_INTERVAL_S)  # and no thread that waits: any number of clients can watch


def watch_folders(library: Library, jobs: JobQueue, watcher: ArrivalWatcher, log: EventLog) -> None:
    """Add new videos to the library and process them by jobs, until the queue is closed."""
    while not jobs.closing.wait(SCAN_EVERY_S):
        try:
            arrived = watcher.look()
            for name, source in arrived.items():
                entry = library.add(source, name)
                library.forget_changed(entry)
                if not entry.is_read:
                    job = jobs.start(entry.id, WATCH_USER)
                    log.record_change(WATCH_USER, "found video", entry.id, f"{entry.name}, job {job.id}")
            watcher.finish(arrived)
        except (InputError, OSError) as error:  # for example a network share that is offline
            LOGGER.warning("hiero: %s; retrying", display_addresses(str(error)))


def run_job(library: Library, video: str, progress: ProgressCallback) -> None:
    """The work of a job: process one video, or learn from all."""
    if video == LEARNING:
        learn_names(library, progress)
    else:
        library.index(library.find(video), progress)


def learn_names(library: Library, progress: ProgressCallback) -> None:
    """Learn from all named steps that users saved, and name the steps of the other videos with them."""
    if not library.engine.has_text:
        raise InputError(NO_TEXT)
    entries = [entry for entry in list(library.entries.values()) if entry.is_read]
    corrected, others = [], []
    for i, entry in enumerate(entries):
        progress(ProgressEvent("read", entry.name, float(i), 2.0 * len(entries)))
        edits = library.edits.read(entry)
        steps = () if edits is None else named_steps(edits.hierarchy)
        if steps:
            corrected.append((library.read(entry), steps))
        elif edits is None:
            others.append((entry, library.steps(library.read(entry), None)))
    if not corrected:
        raise InputError("no step has been renamed yet: open a video, select a step and rename it")
    prototypes = learn_from_videos(corrected)
    library.set_prototypes(prototypes)
    changes = []
    for i, (entry, before) in enumerate(others):
        progress(ProgressEvent("read", entry.name, float(len(entries) + i), 2.0 * len(entries)))
        new = renamed_steps(before, library.steps(library.read(entry), None))
        changes.append({"id": entry.id, "video": entry.name, "num_steps": len(new), "steps": new[:MAX_CHANGES]})
    library.learned = {
        "num_names": len(prototypes.labels),
        "num_steps": int(prototypes.num_steps.sum()),
        "num_videos": len(corrected),
        "num_named_anew": sum(change["num_steps"] for change in changes),
        "videos": [change for change in changes if change["num_steps"]],
    }
