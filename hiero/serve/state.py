"""The state of a server in one SQLite file: jobs, edits with their history, tokens and the audit log.

    FOLDER/state.sqlite      with its write-ahead log next to it
    FOLDER/.lock             held by the server that uses the folder

Every method is one transaction that is on disk when it returns. Without a folder the same tables are
kept in memory.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hiero.errors import InputError
from hiero.serve.settings import Role

FILE_NAME, LOCK_NAME = "state.sqlite", ".lock"
WAIT_S = 10.0  # time to wait for another writer, such as `hiero serve token`
SCHEMA_VERSION = 1
ENDED = ("done", "failed", "cancelled")  # states of jobs
STATES = ("waiting", "running", *ENDED)
SCHEMA = """
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest BLOB UNIQUE NOT NULL, role TEXT NOT NULL, created_at REAL NOT NULL, revoked_at REAL
) WITHOUT ROWID;
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, video TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL,
    message TEXT NOT NULL, num_attempts INTEGER NOT NULL, created_at REAL NOT NULL, changed_at REAL NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state);
CREATE TABLE edits (
    id INTEGER PRIMARY KEY AUTOINCREMENT, video TEXT NOT NULL, version TEXT, content BLOB, num_steps INTEGER NOT NULL,
    user TEXT NOT NULL, saved_at REAL NOT NULL
);
CREATE INDEX edits_by_video ON edits (video, id);
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, user TEXT NOT NULL, action TEXT NOT NULL,
    subject TEXT NOT NULL, detail TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class StoredToken:
    """The owner of a token. Of the token itself only a digest is stored."""

    name: str
    role: Role
    created_at: float
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
    done_s: float = 0.0
    duration_s: float | None = None
    version: int = 0  # number of changes
    cancel_requested: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def update(self, **changes: Any) -> None:
        """Set attributes. Clients that watch the job are notified."""
        with self._lock:
            for name, value in changes.items():
                setattr(self, name, value)
            self.version += 1

    def to_dict(self) -> dict[str, Any]:
        names = ("id", "video", "user", "state", "done_s", "duration_s", "message", "created_at", "num_attempts")
        rounded = {"done_s": round(self.done_s, 1), "created_at": round(self.created_at, 1)}
        return {name: getattr(self, name) for name in names} | rounded


@dataclass(frozen=True)
class SavedEdit:
    """One save of edits, or their deletion (without a version)."""

    id: int
    version: str | None
    num_steps: int
    user: str
    saved_at: float


class State:
    """The database, shared by all threads of a server."""

    def __init__(self, folder: Path | None = None, *, lock: bool = False) -> None:
        self.folder = folder
        self._threads = threading.RLock()
        self._lock: FileLock | None = None
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if lock:
                    self._lock = FileLock(folder / LOCK_NAME)
                    self._lock.acquire(blocking=False)
            path = ":memory:" if folder is None else str(folder / FILE_NAME)
            self._database = sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False, isolation_level=None)
            _prepare(self._database, folder)
        except Timeout:
            message = "is used by another server; stop that server or choose another folder"
            raise InputError(f"--state {folder}: {message}") from None
        except OSError as error:
            raise InputError(f"--state {folder}: cannot be used ({error.strerror})") from error
        except sqlite3.DatabaseError as error:
            advice = "check it with `hiero doctor --state` or restore a backup"
            raise InputError(f"{folder}/{FILE_NAME}: cannot be used ({error}); {advice}") from error

    @property
    def is_persistent(self) -> bool:
        """Whether the state outlives the process."""
        return self.folder is not None

    def close(self) -> None:
        """Close the database and release the folder."""
        with self._threads:
            self._database.close()
            if self._lock is not None:
                self._lock.release()

    def check_writable(self) -> None:
        """Raise InputError if nothing can be saved, for example on a full disk."""
        self._write("UPDATE audit SET at = at WHERE id = -1")

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._threads:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise InputError(f"cannot read the state of the server ({error})") from error

    def _write(self, statement: str, *values: Any) -> sqlite3.Cursor:
        with self._threads:
            try:
                return self._database.execute(statement, values)  # one transaction
            except sqlite3.Error as error:
                raise InputError(f"not saved: cannot write the state of the server ({error})") from error

    def _insert(self, table: str, **values: Any) -> int | None:
        marks = ", ".join("?" * len(values))
        statement = f"INSERT OR REPLACE INTO {table} ({', '.join(values)}) VALUES ({marks})"
        return self._write(statement, *values.values()).lastrowid

    # Tokens

    def add_token(self, name: str, role: str, digest: bytes) -> None:
        """Store a token for a user, replacing their previous one."""
        self._insert("tokens", name=name, digest=digest, role=role, created_at=time.time())

    def revoke_token(self, name: str) -> bool:
        """Revoke the token of a user. Returns whether there was a valid one."""
        statement = "UPDATE tokens SET revoked_at = ? WHERE name = ? AND revoked_at IS NULL"
        return self._write(statement, time.time(), name).rowcount > 0

    def find_token(self, digest: bytes) -> StoredToken | None:
        """The valid token with this digest."""
        query = "SELECT name, role, created_at, revoked_at FROM tokens WHERE digest = ? AND revoked_at IS NULL"
        rows = self._read(query, digest)
        return StoredToken(*rows[0]) if rows else None

    def tokens(self) -> list[StoredToken]:
        """All tokens sorted by name, including revoked ones."""
        rows = self._read("SELECT name, role, created_at, revoked_at FROM tokens ORDER BY name")
        return [StoredToken(*row) for row in rows]

    # Jobs

    def add_job(self, video: str, user: str) -> Job:
        """Add a waiting job."""
        now = time.time()
        values = {"video": video, "user": user, "state": "waiting", "message": "", "num_attempts": 0}
        id = self._insert("jobs", **values, created_at=now, changed_at=now)
        return Job(str(id), video, user, created_at=now)

    def save_job(self, job: Job) -> None:
        """Store the current state of a job."""
        statement = "UPDATE jobs SET state = ?, message = ?, num_attempts = ?, changed_at = ? WHERE id = ?"
        self._write(statement, job.state, job.message, job.num_attempts, time.time(), int(job.id))

    def jobs(self, states: Sequence[str], limit: int) -> list[Job]:
        """The newest jobs in these states, oldest first."""
        places = ", ".join("?" * len(states))
        columns = "id, video, user, state, message, num_attempts, created_at"
        query = f"SELECT {columns} FROM jobs WHERE state IN ({places}) ORDER BY id DESC LIMIT ?"
        rows = self._read(query, *states, limit)
        return [Job(str(id), *row) for id, *row in reversed(rows)]

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
        query = "SELECT id, version, num_steps, user, saved_at FROM edits WHERE video = ? ORDER BY id DESC LIMIT ?"
        return [SavedEdit(*row) for row in self._read(query, video, limit)]

    def edit_content(self, video: str, id: int) -> bytes | None:
        """The content of a save, or None if it is a deletion or does not exist."""
        rows = self._read("SELECT content FROM edits WHERE video = ? AND id = ?", video, id)
        return zlib.decompress(rows[0][0]) if rows and rows[0][0] is not None else None

    # Audit

    def add_audit(self, user: str, action: str, subject: str, detail: str = "") -> None:
        """Add a line to the audit log."""
        self._insert("audit", at=time.time(), user=user, action=action, subject=subject, detail=detail)

    def audit(self, limit: int) -> list[dict[str, Any]]:
        """The last lines of the audit log, newest first."""
        rows = self._read("SELECT id, at, user, action, subject, detail FROM audit ORDER BY id DESC LIMIT ?", limit)
        return [dict(zip(("id", "at", "user", "action", "subject", "detail"), row, strict=True)) for row in rows]


def _prepare(database: sqlite3.Connection, folder: Path | None) -> None:
    """Configure the database, and create the tables if they do not exist."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise InputError(f"--state {folder}: was written by a newer version of hiero; upgrade hiero")
    if version == 0:
        # If two processes start at the same time, the second finds the version of the first.
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute("COMMIT")
