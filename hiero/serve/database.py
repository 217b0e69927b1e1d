"""The SQLite file of a server: opening it, bringing it up to date, transactions and snapshots."""

from __future__ import annotations

import re
import shutil
import sqlite3
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from hiero.errors import BusyError, InputError
from hiero.storage.files import atomic_path
from hiero.storage.locks import hold_lock

FILE_NAME, LOCK_NAME = "state.sqlite", ".lock"
WAIT_S = 10.0  # time to wait for another writer, such as `hiero serve token`
MIN_FREE_BYTES = 16 * 2**20  # with less, the server is not ready
SCHEMA_VERSION = 2
BUSY = "the state of the server: busy, another process is writing to it; try again"
SCHEMA = Path(__file__).with_name("schema.sql").read_text()


def _file_ids(folder: Path | None) -> list[int | None]:
    """Identities of the database and its write-ahead log on the disk."""
    files = [] if folder is None else [folder / FILE_NAME, folder / f"{FILE_NAME}-wal"]
    return [file.stat().st_ino if file.exists() else None for file in files]


class Database:
    """The database, shared by all threads of a server. Reads never wait for a writer.

    Every method is one transaction that is on disk when it returns.
    """

    def __init__(self, folder: Path | None = None, *, lock: bool = False) -> None:
        self.folder = folder
        self._write_lock = threading.RLock()
        self._read_lock = self._write_lock if folder is None else threading.RLock()
        self._folder_lock = ExitStack()
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if lock:
                    self._folder_lock.enter_context(hold_lock(folder / LOCK_NAME, str(folder), wait_s=0))
            path = ":memory:" if folder is None else str(folder / FILE_NAME)
            self._database = _connect(path)
            self.upgraded_from = _prepare(self._database, folder)  # an earlier version, 0 if there was no database
            self._reader = self._database if folder is None else _connect(path)
            self._file_ids = _file_ids(self.folder)
        except OSError as error:
            raise InputError(f"{folder}: cannot be used ({error.strerror})") from error
        except sqlite3.DatabaseError as error:
            advice = "restore a backup, or move the file away to begin with an empty state"
            raise InputError(f"{folder}/{FILE_NAME}: cannot be used ({error}); {advice}") from error

    @property
    def is_persistent(self) -> bool:
        """Whether the state outlives the process."""
        return self.folder is not None

    def count(self, table: str) -> int:
        """Number of rows of a table."""
        return int(self._execute(f"SELECT COUNT(*) FROM {table}")[0][0])

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


def _prepare(database: sqlite3.Connection, folder: Path | None) -> int:
    """Create the tables if they do not exist, or bring an earlier version up to date. Returns the version before."""
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise InputError(f"{folder}/{FILE_NAME}: was written by a newer version of hiero; upgrade hiero")
    if version != 0 and (damage := find_damage(database)):
        raise sqlite3.DatabaseError(damage)
    if version == SCHEMA_VERSION:
        return SCHEMA_VERSION
    if version != 0 and folder is not None:
        copy_database(database, folder / f"state-{version}.sqlite")
    # If two processes start at the same time, the second finds the version of the first.
    database.execute("BEGIN IMMEDIATE")
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version == 1:
        database.execute("ALTER TABLE jobs ADD COLUMN duration_s REAL")
        database.execute("ALTER TABLE jobs ADD COLUMN spent_s REAL")
    if version != SCHEMA_VERSION:
        for statement in SCHEMA.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    database.execute("COMMIT")
    return version


def copy_database(database: sqlite3.Connection, target: Path) -> None:
    """Copy a database to a file as it is at one moment, also while others write to it."""
    with atomic_path(target) as temporary, closing(sqlite3.connect(temporary)) as copy:
        database.backup(copy)


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=WAIT_S, check_same_thread=False, isolation_level=None)


def find_damage(database: sqlite3.Connection) -> str:
    """What is wrong with the version or the tables of a database; empty if nothing is."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version < 0:
        return f"impossible version {version}"
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    needed = set(re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", SCHEMA)) - ({"videos"} if version < 2 else set())
    missing = sorted(needed - tables)
    return f"missing tables: {', '.join(missing)}" if missing else ""
