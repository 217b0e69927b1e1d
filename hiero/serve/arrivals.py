"""Videos that arrive while the server runs: shown, and read by a job."""

from __future__ import annotations

import sys
import threading

from hiero.corpus.watching import ArrivalWatcher
from hiero.errors import InputError
from hiero.serve.audit import AuditLog
from hiero.serve.jobs import JobQueue
from hiero.serve.library import Library
from hiero.serve.users import User
from hiero.sources.source import display_addresses

LOOK_S = 10.0  # between two looks at the folders
WATCH_USER = User("watch", "edit")


class Arrivals:
    """Looks at folders in a thread of its own."""

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
                print(f"hiero: {display_addresses(str(error))}; looked at again", file=sys.stderr)
