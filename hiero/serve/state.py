"""The state of a server in one SQLite file: jobs, edits with their history, videos, tokens and the audit log.

    FOLDER/state.sqlite      with its write-ahead log next to it
    FOLDER/.lock             held by the server that uses the folder

Edits and what is known about videos are stored by the key of their content, so that a video that is moved or
renamed keeps them. Without a folder the same tables are kept in memory.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiero.serve.database import Database
from hiero.serve.settings import Role

ENDED = ("done", "failed", "cancelled")  # states of jobs
STATES = ("waiting", "running", *ENDED)
# Text is greater than any number in SQLite. The last possible time is in the year 9999.
SELECT_TOKENS = (
    "SELECT name, role, CASE WHEN created_at BETWEEN 0 AND 253402300799 THEN created_at END, revoked_at FROM tokens"
)
ACTIONS_ON_VIDEOS = ("upload", "read video", "save edits")  # of people; their subject is a video


@dataclass(frozen=True)
class StoredToken:
    """The owner of a token. Of the token itself only a digest is stored."""

    name: str
    role: Role
    created_at: float | None  # None if the database holds no possible time
    revoked_at: float | None


@dataclass
class Job:
    """A job for one video and its progress, which is not stored."""

    id: str
    video: str
    user: str = ""
    state: str = "waiting"
    message: str = ""
    num_attempts: int = 0
    created_at: float = 0.0
    duration_s: float | None = None  # of the video
    spent_s: float | None = None  # time that it took, once it is done
    done_s: float = 0.0
    left_s: float | None = None  # estimated time until it is done
    cancel_requested: bool = False
    place: int = 0  # among the jobs of the user

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def update(self, **changes: Any) -> None:
        """Set attributes, all at once for other threads."""
        vars(self).update(changes)

    def to_dict(self) -> dict[str, Any]:
        shown = {name: value for name, value in vars(self).items() if name not in ("cancel_requested", "place")}
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in shown.items()}


@dataclass(frozen=True)
class KnownVideo:
    """What is known about the content of a video that was processed with some model."""

    key: str
    num_bytes: int
    duration_s: float | None
    num_steps: int | None
    names: tuple[str, ...]


@dataclass(frozen=True)
class SavedEdit:
    """One save of edits, or their deletion (without a version)."""

    id: int
    video: str  # key of its content
    version: str | None
    num_steps: int
    user: str
    saved_at: float


class State(Database):
    """What a server remembers."""

    def __init__(self, folder: Path | None = None, *, lock: bool = False) -> None:
        super().__init__(folder, lock=lock)
        self._people_lock = threading.Lock()  # never held while a writer waits
        self._people: dict[str, tuple[str, ...]] | None = None

    # Tokens

    def add_token(self, name: str, role: str, digest: bytes) -> None:
        """Store a token for a user, replacing their previous one."""
        self._insert("tokens", name=name, digest=digest, role=role, created_at=time.time())

    def revoke_token(self, name: str) -> bool:
        """Revoke the token of a user. Returns whether there was a valid one."""
        statement = "UPDATE tokens SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL RETURNING name"
        return bool(self._execute(statement, time.time(), name))

    def find_token(self, digest: bytes) -> StoredToken | None:
        """The valid token with this digest."""
        rows = self._execute(f"{SELECT_TOKENS} WHERE digest = ? AND revoked_at IS NULL", digest)
        return StoredToken(*rows[0]) if rows else None

    def tokens(self) -> list[StoredToken]:
        """All tokens sorted by name, including revoked ones."""
        return [StoredToken(*row) for row in self._execute(f"{SELECT_TOKENS} ORDER BY name")]

    # Jobs

    def add_job(self, video: str, user: str, duration_s: float | None = None) -> Job:
        """Add a waiting job."""
        now = time.time()
        columns = "video, user, created_at, changed_at, duration_s, state, message, num_attempts"
        statement = f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, 'waiting', '', 0) RETURNING id"
        ((id,),) = self._execute(statement, video, user, now, now, duration_s)
        return Job(str(id), video, user, created_at=now, duration_s=duration_s)

    def save_job(self, job: Job) -> None:
        """Store the current state of a job."""
        columns = "state = ?, message = ?, num_attempts = ?, changed_at = ?, duration_s = ?, spent_s = ?"
        values = (job.state, job.message, job.num_attempts, time.time(), job.duration_s, job.spent_s)
        self._execute(f"UPDATE jobs SET {columns} WHERE id = ?", *values, int(job.id))

    def jobs(self, states: Sequence[str], limit: int) -> list[Job]:
        """The newest jobs in these states, oldest first."""
        places = ", ".join("?" * len(states))
        columns = "id, video, user, state, message, num_attempts, created_at, duration_s, spent_s"
        query = f"SELECT {columns} FROM jobs WHERE state IN ({places}) ORDER BY id DESC LIMIT ?"
        rows = self._execute(query, *states, limit)
        return [Job(str(id), *row) for id, *row in reversed(rows)]

    def videos_with_jobs(self) -> set[str]:
        """The videos that ever had a job."""
        return {video for (video,) in self._execute("SELECT DISTINCT video FROM jobs")}

    # Videos

    def save_video(self, model: str, video: KnownVideo) -> None:
        """Remember what is known about a video that was processed with a model."""
        values = {"key": video.key, "num_bytes": video.num_bytes, "duration_s": video.duration_s}
        self._insert("videos", model=model, **values, num_steps=video.num_steps, names=json.dumps(video.names))

    def known_videos(self, model: str) -> dict[str, KnownVideo]:
        """The videos that were processed with a model, by their keys."""
        columns = "key, num_bytes, duration_s, num_steps, names"
        rows = self._execute(f"SELECT {columns} FROM videos WHERE model = ?", model)
        videos = [
            KnownVideo(key, size, length, num, tuple(json.loads(names))) for key, size, length, num, names in rows
        ]
        return {video.key: video for video in videos}

    # Edits

    def add_edit(self, video: str, version: str | None, content: bytes | None, num_steps: int, user: str) -> None:
        """Append edits of a video to its history."""
        data = None if content is None else zlib.compress(content)
        values = {"video": video, "version": version, "content": data, "num_steps": num_steps, "user": user}
        self._insert("edits", **values, saved_at=time.time())

    def last_edit(self, video: str) -> SavedEdit | None:
        """The last save of a video, if there is one."""
        saves = self.edit_history(video, 1)
        return saves[0] if saves else None

    def edit_history(self, video: str, limit: int) -> list[SavedEdit]:
        """The saves of a video, newest first."""
        query = (
            "SELECT id, video, version, num_steps, user, saved_at FROM edits WHERE video = ? ORDER BY id DESC LIMIT ?"
        )
        return [SavedEdit(*row) for row in self._execute(query, video, limit)]

    def edit_content(self, video: str, id: int) -> bytes | None:
        """The content of a save, or None if it is a deletion or does not exist."""
        rows = self._execute("SELECT content FROM edits WHERE video = ? AND id = ?", video, id)
        return zlib.decompress(rows[0][0]) if rows and rows[0][0] is not None else None

    def edited_videos(self) -> list[str]:
        """The keys of all videos that were ever edited."""
        return [video for (video,) in self._execute("SELECT DISTINCT video FROM edits")]

    def move_edits(self, old: str, new: str) -> None:
        """Store the edits of a video under another key."""
        self._execute("UPDATE edits SET video = ? WHERE video = ?", new, old)

    # Audit

    def add_audit(self, user: str, action: str, subject: str, detail: str = "") -> None:
        """Add a line to the audit log."""
        self._insert("audit", at=time.time(), user=user, action=action, subject=subject, detail=detail)
        if action in ACTIONS_ON_VIDEOS:
            with self._people_lock:
                if self._people is not None and user not in (known := self._people.get(subject, ())):
                    self._people[subject] = *known, user

    def people_of_videos(self) -> Mapping[str, tuple[str, ...]]:
        """The people who have added, read or corrected each video, from the audit log. It is read once."""
        with self._people_lock:
            if self._people is None:
                places = ", ".join("?" * len(ACTIONS_ON_VIDEOS))
                query = f"SELECT DISTINCT subject, user FROM audit WHERE action IN ({places})"
                self._people = {}
                for video, user in self._execute(query, *ACTIONS_ON_VIDEOS):
                    self._people[video] = *self._people.get(video, ()), user
            return self._people

    def audit(self, limit: int) -> list[dict[str, Any]]:
        """The last lines of the audit log, newest first."""
        names = ("id", "at", "user", "action", "subject", "detail")
        rows = self._execute(f"SELECT {', '.join(names)} FROM audit ORDER BY id DESC LIMIT ?", limit)
        return [dict(zip(names, row, strict=True)) for row in rows]
