"""The LanceDB tables of a corpus: steps, and what is said. No other module knows LanceDB or its SQL.

Both are written by one process at a time, a commit is retried after a conflict, and a full disk is
reported in one line. Speech is written before the steps and removed after them, so a process that
is killed in between leaves speech of a video that is not in, or not complete: a search ignores it,
and the next `hiero index` replaces it.
"""

from __future__ import annotations

import errno
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from filelock import FileLock

from hiero.errors import InputError
from hiero.storage.files import is_disk_full

if TYPE_CHECKING:
    import pyarrow as pa

STEPS: Literal["steps"] = "steps"
SPEECH: Literal["speech"] = "speech"
VIDEO_LEVEL = -1  # of the row that is a whole video
ALL_ROWS = 100_000_000  # LanceDB returns 10 rows where no limit is given
LOCK_FILE = ".lock"  # in the folder of a corpus; it stays there, empty
MAX_ATTEMPTS = 20  # of a commit, while other processes write
MAX_BACKOFF_S = 0.1  # of the first attempt; it grows with each
MAX_READS = 3  # of a version that writers may prune meanwhile
DISK_FULL = "no space left on the disk; free some, then run the same command again: it goes on with what is not in yet"
NUM_PROBES = 40  # parts of the index that a search visits
REFINE_FACTOR = 10  # candidates of the index that are compared exactly, for each result
# Each candidate is read from another place of the table, which is most of a search's time. Whoever wants
# more results than a person looks at orders them by something else.
MAX_REFINED = 500
MIN_INDEXED_ROWS = 100_000  # fewer are compared one by one, which is exact
# Each commit leaves a small file. They are put together, which rewrites all rows, when there are so many of
# them and they hold such a share of the rows: a row is then written a few times, however many follow. Or
# when there are far too many.
MIN_FILES, MIN_NEW_SHARE, MAX_FILES = 32, 0.25, 256
OLD_VERSION = timedelta(minutes=1)  # older ones are pruned; a reader of one reads the latest instead

Result = TypeVar("Result")
TableName = Literal["steps", "speech"]


@dataclass(frozen=True)
class RowFilter:
    """Which rows are meant; what is empty allows all."""

    videos: Sequence[str] = ()
    exclude: str | None = None  # a video
    levels: Sequence[int] = ()
    uids: Sequence[str] = ()
    only_steps: bool = False  # not the rows of whole videos

    def to_sql(self) -> str | None:
        conditions = []
        if self.only_steps:
            conditions.append(f"level > {VIDEO_LEVEL}")
        if self.levels:
            conditions.append(f"level IN ({', '.join(str(int(level)) for level in self.levels)})")
        if self.videos:
            conditions.append(f"video IN {_sql_strings(self.videos)}")
        if self.exclude is not None:
            conditions.append(f"video != {_sql_string(self.exclude)}")
        if self.uids:
            conditions.append(f"uid IN {_sql_strings(self.uids)}")
        return " AND ".join(conditions) or None


ANY_ROW = RowFilter()
WHOLE_VIDEOS = RowFilter(levels=(VIDEO_LEVEL,))


def _sql_string(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _sql_strings(texts: Sequence[str]) -> str:
    return f"({', '.join(map(_sql_string, texts))})"


def is_local(uri: str) -> bool:
    """Whether a corpus is a folder of this machine, not an address such as s3://…."""
    return "://" not in uri


def is_corpus_folder(path: Path) -> bool:
    """Whether a folder holds a corpus."""
    return (path / f"{STEPS}.lance").is_dir()


class CorpusTables:
    """The tables of a corpus, always as the last writer left them."""

    def __init__(self, uri: str, create: bool) -> None:
        try:
            import lancedb
        except ImportError:
            raise InputError("a corpus needs LanceDB; run: pip install 'hiero-video[serve]'") from None
        if is_local(uri) and not create and not Path(uri).is_dir():
            raise InputError(f"{uri}: no such corpus; make one: hiero index VIDEO… --to {uri}")
        if is_local(uri) and Path(uri).is_file():
            raise InputError(f"{uri}: is a file; a corpus is a folder")
        self.uri = uri
        self._tables: dict[TableName, Any] = {}
        self._silent_version: int | None = None  # version of the steps when there was no table of speech
        try:
            self._db = lancedb.connect(uri)
            is_empty = self.find(STEPS) is None
        except (ValueError, OSError, RuntimeError) as error:
            raise InputError(f"{uri}: not a corpus that can be opened ({_reason(error)})") from error
        if is_empty and not create:
            raise InputError(f"{uri}: not a corpus; make one: hiero index VIDEO… --to {uri}")

    # Reading

    def find(self, name: TableName) -> Any:
        """The latest version of a LanceDB table; None where there is none yet."""
        if name in self._tables:
            self._tables[name].checkout_latest()
        elif name == STEPS:
            self._open(name)
        elif self._silent_version != (version := getattr(self.find(STEPS), "version", None)):
            # Speech is written before steps: while these have the same version, no table of speech was made.
            self._open(name)
            self._silent_version = version
        return self._tables.get(name)

    def _open(self, name: TableName) -> None:
        if name not in self._db.list_tables().tables:
            return
        try:
            self._tables[name] = self._db.open_table(name)
        except ValueError as error:
            if "not found" not in str(error):
                raise
            # Another process is creating it, or was killed then: there is a folder, and no version in it yet.

    def get(self, name: TableName) -> Any:
        """The latest version of a LanceDB table. Raises InputError where there is none."""
        table = self.find(name)
        if table is None:
            raise InputError(f"{self.uri}: is empty; add videos: hiero index VIDEO… --to {self.uri}")
        return table

    def count(self, rows: RowFilter, name: TableName = STEPS) -> int:
        """Number of rows; 0 where there is no table."""
        return 0 if self.find(name) is None else read_latest(lambda: int(self.get(name).count_rows(rows.to_sql())))

    def read(self, rows: RowFilter, columns: list[str], num: int = ALL_ROWS, name: TableName = STEPS) -> pa.Table:
        """Columns of rows, in the order of the table."""
        return read_latest(lambda: query_rows(self.get(name), rows, columns, num).to_arrow())

    def nearest(
        self,
        vector: np.ndarray,
        rows: RowFilter,
        columns: list[str],
        num: int,
        exact: bool = False,
        name: TableName = STEPS,
    ) -> list[dict[str, Any]]:
        """The rows whose vectors have the largest cosine with one, nearest first, with their `_distance`."""

        def search() -> list[dict[str, Any]]:
            query = self.get(name).search(vector.astype(np.float32), vector_column_name="vector")
            query = query.distance_type("cosine")
            if (where := rows.to_sql()) is not None:
                query = query.where(where, prefilter=True)
            query = query.select([*columns, "_distance"]).limit(num)
            refine_factor = max(1, min(REFINE_FACTOR, MAX_REFINED // num))
            query = query.bypass_vector_index() if exact else query.nprobes(NUM_PROBES).refine_factor(refine_factor)
            return list(query.to_list())

        return read_latest(search)

    def width(self) -> int | None:
        """Numbers of a vector of a step; None where there is no table yet."""
        return None if self.find(STEPS) is None else vector_width(self.get(STEPS).schema)

    # Writing

    def change(self, change: Callable[[bool], Result], schema: pa.Schema | None = None) -> Result:
        """Change the latest versions in one commit, and put small files together where that is due.

        `change` is called with whether other writers are locked out.
        """
        with write_lock(self.uri) as is_locked:
            if schema is not None and self.find(STEPS) is None:
                commit(self.uri, lambda: self.create(STEPS, schema))
            result = commit(self.uri, lambda: change(is_locked))
            self._tidy(is_locked)
        return result

    def create(self, name: TableName, schema: pa.Schema) -> None:
        """Make an empty table, unless another process was first."""
        try:
            self._tables[name] = self._db.create_table(name, schema=schema, exist_ok=True)
        except (ValueError, OSError, RuntimeError) as error:
            if is_disk_full(error):
                raise
            try:
                self._tables[name] = self._db.open_table(name)
            except ValueError:
                raise error from None

    def replace(self, name: TableName, videos: Sequence[str], rows: pa.Table | None) -> None:
        """Put rows in place of all rows of some videos, in one commit."""
        if self.find(name) is None:
            if rows is None:
                return
            self.create(name, rows.schema)
        table, old = self.get(name), RowFilter(videos=videos)
        is_in = bool(videos) and table.count_rows(old.to_sql()) > 0
        if rows is None:
            if is_in:
                table.delete(old.to_sql())
        elif is_in:
            drop_repeated(table, old)  # the merge would update both
            merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
            merge.when_not_matched_by_source_delete(old.to_sql()).execute(rows)
        else:
            table.add(rows)  # takes no longer where many are in

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all steps."""
        self._tables[STEPS] = commit(self.uri, lambda: self._db.create_table(STEPS, rows, mode="overwrite"))

    def delete(self, videos: Sequence[str], names: Sequence[TableName] = (STEPS, SPEECH)) -> None:
        """Remove all rows of some videos."""
        for name in names:
            if (table := self.find(name)) is not None:
                table.delete(RowFilter(videos=videos).to_sql())

    def optimize(self) -> None:
        """Put small files together, prune old versions, and index the vectors where there are many."""
        if self.find(STEPS) is not None:
            with write_lock(self.uri) as is_locked:
                commit(self.uri, lambda: self._optimize(is_locked))

    def _optimize(self, is_locked: bool) -> None:
        for table in filter(None, (self.find(STEPS), self.find(SPEECH))):
            # Files that no version refers to are of writers that were killed, if no other can be at work now.
            table.optimize(cleanup_older_than=OLD_VERSION, delete_unverified=is_locked)
            if table.count_rows() >= MIN_INDEXED_ROWS and not table.list_indices():
                from lancedb.index import IvfSq

                table.create_index("vector", config=IvfSq(distance_type="cosine"))

    def _tidy(self, is_locked: bool) -> None:
        """`optimize` where it is due. It needs as much space as the table; without it the commit stays valid."""
        stats = self.get(STEPS).stats()
        files, num_rows = stats["fragment_stats"], stats["num_rows"]
        num_new = num_rows - files["lengths"]["max"]  # all but those of the largest file
        num_files = files["num_small_fragments"]
        if num_files < MIN_FILES or (num_new < MIN_NEW_SHARE * num_rows and num_files < MAX_FILES):
            return
        try:
            commit(self.uri, lambda: self._optimize(is_locked))
        except InputError:
            return  # too many others write: one of them will
        except OSError as error:
            if not is_disk_full(error):
                raise
            warnings.warn(f"{self.uri}: no space to put its files together; searches will take longer", stacklevel=2)


def vector_width(schema: pa.Schema) -> int:
    """Numbers of a vector of a table."""
    return int(schema.field("vector").type.list_size)


def query_rows(table: Any, rows: RowFilter, columns: list[str], num: int = ALL_ROWS) -> Any:
    """A query for columns of rows, in the order of the table."""
    where = rows.to_sql()
    query = table.search() if where is None else table.search().where(where)
    return query.select(columns).limit(num)


def drop_repeated(table: Any, rows: RowFilter = ANY_ROW) -> None:
    """Of rows that are in twice keep the one that was written last."""
    # Again until none is left: where another process puts files together just then, LanceDB retries the
    # deletion on the new version, in which the rows have other ids, and deletes nothing.
    while True:
        found = query_rows(table, rows, ["uid"]).with_row_id(True).to_arrow()
        ids, uids = found["_rowid"].to_pylist(), found["uid"].to_pylist()
        last = {uid: id for id, uid in sorted(zip(ids, uids, strict=True))}
        if not (repeated := sorted(set(ids) - set(last.values()))):
            return
        table.delete(f"_rowid IN ({', '.join(map(str, repeated))})")
        table.checkout_latest()


@contextmanager
def write_lock(uri: str) -> Iterator[bool]:
    """Wait until no other process writes to a corpus; yields whether others are locked out.

    LanceDB notices two commits that change the same rows, but not two that insert the same new
    ones. The lock belongs to the system, so that of a killed process is free.
    """
    if not is_local(uri):
        yield False
        return
    Path(uri).mkdir(parents=True, exist_ok=True)
    lock = FileLock(Path(uri) / LOCK_FILE)
    try:
        lock.acquire()
    except (OSError, NotImplementedError):  # a network file system without locks
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def commit(uri: str, change: Callable[[], Result]) -> Result:
    """Make a change, and retry where another process has written in between."""
    for attempt in range(MAX_ATTEMPTS):
        try:
            return change()
        except (RuntimeError, OSError) as error:
            if is_disk_full(error):
                raise OSError(errno.ENOSPC, DISK_FULL, uri) from error
            # LanceDB has no class for this error; its message is such as "Retryable commit conflict for version 7".
            if "onflict" not in str(error) and "retr" not in str(error).lower():
                if "LanceError(IO)" in str(error):  # such as a disk that fails; what follows is a place in its source
                    message = str(error).rpartition("LanceError(IO):")[2].split(", /")[0].strip()
                    raise OSError(errno.EIO, message, uri) from error
                raise
            if attempt == MAX_ATTEMPTS - 1:
                raise InputError(f"{uri}: too many writers at a time ({error})") from error
            time.sleep(random.uniform(0, MAX_BACKOFF_S * (attempt + 1)))
    raise AssertionError("not reached")


def read_latest(query: Callable[[], Result]) -> Result:
    """The answer of a query to the latest version; retried where a writer has pruned that version meanwhile."""
    for _ in range(MAX_READS - 1):
        try:
            return query()
        except (RuntimeError, OSError) as error:
            if "not found" not in str(error).lower():
                raise
    return query()


def _reason(error: Exception) -> str:
    """What LanceDB says, in a line: of an object store it passes on all that it has, in braces."""
    text = str(error)
    message = re.search(r"<Message>(.*?)</Message>", text) or re.search(r'message: \\?"([^"\\]+)', text)
    return f"{text.split('{')[0].strip(' :')}: {message[1]}" if message else text.split("{")[0].strip(" :")
