"""A line for every change, and who is at work where."""

from __future__ import annotations

import threading
import time

from hiero.serve.state import State
from hiero.serve.telemetry import LogFormat, write_log
from hiero.serve.users import User

PRESENCE_S = 45.0  # after the last sign of a page someone is taken to have left; pages send one every 15 s


class AuditLog:
    """Writes down who changed what: into the state, and into the log."""

    def __init__(self, state: State, log_format: LogFormat = "none") -> None:
        self.state, self.log_format = state, log_format

    def record(self, user: User, action: str, subject: str, detail: str = "") -> None:
        """One line."""
        self.state.add_audit(user.name, action, subject, detail)
        write_log("change", self.log_format, user=user.name, action=action, subject=subject, detail=detail)


class Presence:
    """Who has which video open for editing: as their pages say, for a while."""

    def __init__(self) -> None:
        self._last_seen_s: dict[str, dict[str, float]] = {}
        self._lock = threading.Lock()

    def touch(self, video: str, user: str) -> None:
        """Someone is there."""
        with self._lock:
            self._last_seen_s.setdefault(video, {})[user] = time.monotonic()

    def editors(self, video: str) -> list[str]:
        """Names of those who are there, in order."""
        with self._lock:
            users = self._last_seen_s.get(video)
            if users is None:
                return []
            since_s = time.monotonic() - PRESENCE_S
            for name in [name for name, last_s in users.items() if last_s < since_s]:
                del users[name]
            if not users:
                del self._last_seen_s[video]
            return sorted(users)
