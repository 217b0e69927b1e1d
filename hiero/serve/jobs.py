"""Long work with progress: one at a time, in order, in a thread; watched by any number of clients."""

from __future__ import annotations

import itertools
import queue
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from hiero.errors import InputError
from hiero.serve.library import NotFoundError
from hiero.types import ProgressCallback, ProgressEvent

MAX_WAITING = 64
MAX_ENDED = 200  # jobs that ended and are still listed
UPDATE_EVERY_S = 0.2


class Cancelled(Exception):  # noqa: N818
    pass


@dataclass
class Job:
    id: str
    video: str
    state: Literal["waiting", "running", "done", "failed", "cancelled"] = "waiting"
    done_s: float = 0.0
    duration_s: float | None = None
    message: str = ""
    version: int = 0
    cancel: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def update(self, **changes: Any) -> None:
        with self.changed:
            for name, value in changes.items():
                setattr(self, name, value)
            self.version += 1
            self.changed.notify_all()

    def wait(self, version: int, timeout_s: float) -> int:
        """Until something is newer than `version`, or time is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.version > version, timeout_s)
            return self.version

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id, "video": self.video, "state": self.state, "done_s": round(self.done_s, 1),
            "duration_s": self.duration_s, "message": self.message,
        }  # fmt: skip


class Jobs:
    """Runs `work(video, progress)` for each job."""

    def __init__(self, work: Callable[[str, ProgressCallback], None]) -> None:
        self.work = work
        self.jobs: dict[str, Job] = {}
        self.waiting: queue.Queue[Job | None] = queue.Queue()
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def start(self, video: str) -> Job:
        """A job for a video; the one that is under way for it already, if there is one."""
        with self.lock:
            for job in self.jobs.values():
                if job.video == video and not job.ended:
                    return job
            if sum(not job.ended for job in self.jobs.values()) >= MAX_WAITING:
                raise InputError("too many jobs are waiting; try again later")
            ended = [job.id for job in self.jobs.values() if job.ended]
            for id in ended[:-MAX_ENDED]:
                del self.jobs[id]
            job = Job(str(next(self.numbers)), video)
            self.jobs[job.id] = job
        self.waiting.put(job)
        return job

    def find(self, id: str) -> Job:
        try:
            return self.jobs[id]
        except KeyError:
            raise NotFoundError(f"no job {id}") from None

    def cancel(self, id: str) -> Job:
        job = self.find(id)
        job.cancel = True
        if job.state == "waiting":
            job.update(state="cancelled")
        return job

    def close(self) -> None:
        """End all: what runs stops at its next step, and whoever watches is told."""
        for job in list(self.jobs.values()):
            job.cancel = True
            if not job.ended:
                job.update(state="cancelled", message="the server stops")
        self.waiting.put(None)

    def _run(self) -> None:
        while (job := self.waiting.get()) is not None:
            if job.cancel:
                continue
            job.update(state="running")
            last_update = [0.0]

            def follow(event: ProgressEvent, job: Job = job, last_update: list[float] = last_update) -> None:
                if job.cancel:
                    raise Cancelled
                if event.stage != "read":
                    return
                if not event.done:
                    job.update(duration_s=event.total)
                elif time.monotonic() - last_update[0] > UPDATE_EVERY_S:
                    last_update[0] = time.monotonic()
                    job.update(done_s=event.done)

            try:
                self.work(job.video, follow)
                job.update(state="done", done_s=job.duration_s or job.done_s)
            except Cancelled:
                job.update(state="cancelled")
            except InputError as error:
                job.update(state="failed", message=without_paths(str(error)))
            except Exception:  # the client gets no trace, the server's terminal does
                traceback.print_exc()
                job.update(state="failed", message="an internal error; the server's log has it")


def without_paths(text: str) -> str:
    """Folders of the server are not the client's business; names of files are."""
    return re.sub(r"(?:(?<=^)|(?<=[\s'\"(]))/(?:[^/:\n]+/)+", "", text)


def events(job: Job, beat_s: float = 10.0) -> Iterator[dict[str, Any] | None]:
    """The job now and after every change, until it has ended; None as a sign of life when nothing happens."""
    version = -1
    while True:
        before, version = version, job.version
        yield job.to_dict() if version > before else None
        if job.ended and job.version == version:
            return
        job.wait(version, beat_s)
