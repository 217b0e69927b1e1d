"""The state of a server in one SQLite file: jobs, edits with their history, tokens and the audit log.

    FOLDER/state.sqlite      with its write-ahead log next to it
    FOLDER/.lock             held by the server that uses the folder

Every method is one transaction that is on disk when it returns. Without a folder the same tables are
kept in memory.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hiero.errors import BusyError, InputError
from hiero.serve.settings import Role
from hiero.storage.locks import hold_lock

FILE_NAME, LOCK_NAME = "state.sqlite", ".lock"
WAIT_S = 10.0  # time to wait for another writer, such as `hiero serve token`
MIN_FREE_BYTES = 16 * 2**20  # with less, the server is not ready
SCHEMA_VERSION = 1
BUSY = "the state of the server: busy, another process is writing to it; try again"
ENDED = ("done", "failed", "cancelled")  # states of jobs
STATES = ("waiting", "running", *ENDED)
# Text is greater than any number in SQLite. The last possible time is in the year 9999.
SELECT_TOKENS = (
    "SELECT name, role, CASE WHEN created_at BETWEEN 0 AND 253402300799 THEN created_at END, revoked_at FROM tokens"
)
ACTIONS_ON_VIDEOS = ("upload", "read video", "save edits")  # their subject is a video
SCHEMA = Path(__file__).with_name("schema.sql").read_text()


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
    done_s: float = 0.0
    duration_s: float | None = None
    left_s: float | None = None  # estimated time until it is done
    cancel_requested: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def update(self, **changes: Any) -> None:
        """Set attributes, all at once for other threads."""
        vars(self).update(changes)

    def to_dict(self) -> dict[str, Any]:
        shown = {name: value for name, value in vars(self).items() if name != "cancel_requested"}
        return {name: round(value, 1) if isinstance(value, float) else value for name, value in shown.items()}


@dataclass(frozen=True)
class SavedEdit:
    """One save of edits, or their deletion (without a version)."""

    id: int
    version: str | None
    num_steps: int
    user: str
    saved_at: float


def _file_ids(folder: Path | None) -> list[int | None]:
    """Identities of the database and its write-ahead log on the disk."""
    files = [] if folder is None else [folder / FILE_NAME, folder / f"{FILE_NAME}-wal"]
    return [file.stat().st_ino if file.exists() else None for file in files]


class State:
    """The database, shared by all threads of a server. Reads never wait for a writer."""

    def __init__(self, folder: Path | None = None, *, lock: bool = False) -> None:
        self.folder = folder
        self._write_lock = threading.RLock()
        self._read_lock = self._write_lock if folder is None else threading.RLock()
        self._folder_lock = ExitStack()
        self._people_lock = threading.Lock()  # never held while a writer waits
        self._people: dict[str, tuple[str, ...]] | None = None
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if lock:
                    self._folder_lock.enter_context(hold_lock(folder / LOCK_NAME, f"--state {folder}", wait_s=0))
            path = ":memory:" if folder is None else str(folder / FILE_NAME)
            self._database = _connect(path)
            _prepare(self._database, folder)
            self._reader = self._database if folder is None else _connect(path)
            self._file_ids = _file_ids(self.folder)
        except OSError as error:
            raise InputError(f"--state {folder}: cannot be used ({error.strerror})") from error
        except sqlite3.DatabaseError as error:
            advice = "restore a backup, or move the file away to begin with an empty state"
            raise InputError(f"{folder}/{FILE_NAME}: cannot be used ({error}); {advice}") from error

    @property
    def is_persistent(self) -> bool:
        """Whether the state outlives the process."""
        return self.folder is not None

    def close(self) -> None:
        """Close the database and release the folder."""
        with self._write_lock, self._read_lock:
            self._database.close()
            self._reader.close()
            self._folder_lock.close()

    def check_writable(self) -> None:
        """Raise InputError if nothing can be saved, for example on a full disk."""
        self._execute(f"PRAGMA user_version = {SCHEMA_VERSION}")  # writes to the disk although nothing changes
        if self.folder is not None and shutil.disk_usage(self.folder).free < MIN_FREE_BYTES:
            raise InputError("the disk with the state of the server is full; free some space")

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, which is one transaction. Returns its rows."""
        is_read = statement.startswith("SELECT")
        if not is_read and _file_ids(self.folder) != self._file_ids:  # SQLite would write to the removed file
            raise InputError(f"not saved: {FILE_NAME} was removed or replaced; restore it and restart the server")
        database, lock = (self._reader, self._read_lock) if is_read else (self._database, self._write_lock)
        if not lock.acquire(timeout=WAIT_S):  # its owner waits for another process
            raise BusyError(BUSY)
        try:
            return database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise BusyError(BUSY) from error
            problem = "cannot read" if is_read else "not saved: cannot write"
            raise InputError(f"{problem} the state of the server ({error})") from error
        finally:
            lock.release()

    def _insert(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self._execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({marks})", *values.values())

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

    def add_job(self, video: str, user: str) -> Job:
        """Add a waiting job."""
        now = time.time()
        columns = "video, user, created_at, changed_at, state, message, num_attempts"
        statement = f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, 'waiting', '', 0) RETURNING id"
        ((id,),) = self._execute(statement, video, user, now, now)
        return Job(str(id), video, user, created_at=now)

    def save_job(self, job: Job) -> None:
        """Store the current state of a job."""
        statement = "UPDATE jobs SET state = ?, message = ?, num_attempts = ?, changed_at = ? WHERE id = ?"
        self._execute(statement, job.state, job.message, job.num_attempts, time.time(), int(job.id))

    def jobs(self, states: Sequence[str], limit: int) -> list[Job]:
        """The newest jobs in these states, oldest first."""
        places = ", ".join("?" * len(states))
        columns = "id, video, user, state, message, num_attempts, created_at"
        query = f"SELECT {columns} FROM jobs WHERE state IN ({places}) ORDER BY id DESC LIMIT ?"
        rows = self._execute(query, *states, limit)
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
        return [SavedEdit(*row) for row in self._execute(query, video, limit)]

    def edit_content(self, video: str, id: int) -> bytes | None:
        """The content of a save, or None if it is a deletion or does not exist."""
        rows = self._execute("SELECT content FROM edits WHERE video = ? AND id = ?", video, id)
        return zlib.decompress(rows[0][0]) if rows and rows[0][0] is not None else None

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


def _prepare(database: sqlite3.Connection, folder: Path | None) -> None:
    """Configure the database, and create the tables if they do not exist."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise InputError(f"--state {folder}: was written by a newer version of hiero; upgrade hiero")
    if version != 0 and (damage := find_damage(database)):
        raise sqlite3.DatabaseError(damage)
    if version == 0:
        # If two processes start at the same time, the second finds the version of the first.
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in SCHEMA.split(";"):
                database.execute(statement)
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute("COMMIT")


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False, isolation_level=None)


def find_damage(database: sqlite3.Connection) -> str:
    """What is wrong with the version or the tables of a database; empty if nothing is."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version < 0:
        return f"impossible version {version}"
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    missing = sorted(set(re.findall(r"CREATE TABLE (\w+)", SCHEMA)) - tables)
    return f"missing tables: {', '.join(missing)}" if missing else ""
