"""The LanceDB tables of a corpus: steps and speech. No other module knows LanceDB or its SQL.

One process writes at a time, and commits are retried after a conflict. Speech is written before steps
and removed after them, so a killed process leaves at most speech of a video whose steps are missing.
Searches ignore it and the next `hiero index` replaces it.
"""

from __future__ import annotations

import errno
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from hiero.errors import BusyError, InputError
from hiero.media.addresses import check_credentials, is_address
from hiero.media.recordings import names_files
from hiero.media.remote import remote_exists
from hiero.storage.files import is_disk_full
from hiero.storage.locks import WAIT_S, hold_lock

if TYPE_CHECKING:
    import pyarrow as pa

STEPS: Literal["steps"] = "steps"
SPEECH: Literal["speech"] = "speech"
VIDEO_LEVEL = -1  # level of the row that describes a whole video
ALL_ROWS = 100_000_000  # LanceDB returns 10 rows unless a limit is given
MAX_ATTEMPTS = 20  # attempts at a commit while other processes write
MAX_BACKOFF_S = 0.1  # longest pause after the first attempt; it grows with each
MAX_READS = 3  # attempts at reading a version that writers may prune
DISK_FULL = "no space left on the disk; free some, then run the same command again to continue"
NUM_PROBES = 40  # partitions of the index that a search visits
# A search compares up to REFINE_FACTOR candidates of the index exactly for each result, and up to
# MAX_REFINED in all: reading them takes most of its time.
REFINE_FACTOR, MAX_REFINED = 10, 500
MIN_INDEXED_ROWS = 100_000  # smaller tables are searched exactly, without an index
# Each commit leaves a small file. Small files are merged, which rewrites all rows, once there are
# MIN_FILES with MIN_NEW_SHARE of the rows, or MAX_FILES.
MIN_FILES, MIN_NEW_SHARE, MAX_FILES = 32, 0.25, 256
OLD_VERSION = timedelta(minutes=1)  # age at which versions are pruned

Result = TypeVar("Result")
TableName = Literal["steps", "speech"]
Rows = list[dict[str, Any]]  # rows that were read: values by column


class DamagedCorpusError(InputError):
    """A table of a corpus cannot be read."""


@dataclass(frozen=True)
class RowFilter:
    """A selection of rows. Empty fields select everything."""

    videos: Sequence[str] = ()
    exclude: str | None = None  # name of a video
    levels: Sequence[int] = ()
    uids: Sequence[str] = ()
    only_steps: bool = False  # leaves out the rows of whole videos
    named: bool = False  # only the steps that a person named or imported

    def to_sql(self) -> str | None:
        conditions = [f"level > {VIDEO_LEVEL}"] if self.only_steps else []
        if self.named:
            conditions.append("named")
        if self.exclude is not None:
            conditions.append(f"video != {_sql_literal(self.exclude)}")
        for column, values in (("level", self.levels), ("video", self.videos), ("uid", self.uids)):
            if values:
                conditions.append(f"{column} IN ({', '.join(map(_sql_literal, values))})")
        return " AND ".join(conditions) or None


ANY_ROW = RowFilter()
WHOLE_VIDEOS = RowFilter(levels=(VIDEO_LEVEL,))
NAMED_STEPS = RowFilter(named=True)


def _sql_literal(value: str | int) -> str:
    return str(int(value)) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


def is_corpus(source: str) -> bool:
    """Whether a source is a corpus: a folder or address with its tables, or an address with nothing yet."""
    table = f"{source.rstrip('/')}/{STEPS}.lance"
    if not is_address(source):
        return Path(table).is_dir()
    return not names_files(source) and (not remote_exists(source) or remote_exists(table))


class CorpusTables:
    """The tables of a corpus in their latest version."""

    def __init__(self, uri: str, create: bool, wait_s: float = WAIT_S) -> None:
        try:
            import lancedb
        except ImportError:
            raise InputError("a corpus needs LanceDB; run: pip install 'hiero-video[serve]'") from None
        check_credentials(uri)
        advice = f"create one with: hiero index VIDEO… --to {uri}"
        if not is_address(uri) and not create and not Path(uri).is_dir():
            raise InputError(f"{uri}: no such corpus; {advice}")
        if not is_address(uri) and Path(uri).is_file():
            raise InputError(f"{uri}: is a file; a corpus is a folder")
        self.uri, self.wait_s = uri, wait_s
        self._tables: dict[TableName, Any] = {}
        self._names: tuple[int, Rows] | None = None
        with report_damage(uri):
            self._db = lancedb.connect(uri)
        if self.find(STEPS) is None and not create:
            raise InputError(f"{uri}: not a corpus; {advice}")

    # Reading

    def find(self, name: TableName) -> Any:
        """The latest version of a LanceDB table, or None if it does not exist yet."""
        with report_damage(self.uri, name):
            if name in self._tables:
                self._tables[name].checkout_latest()
            elif name in self._db.list_tables().tables:
                try:
                    self._tables[name] = self._db.open_table(name)
                except ValueError as error:
                    # Without a version, another process is creating the table or was killed while it did.
                    if "not found" not in str(error):
                        raise
        return self._tables.get(name)

    def get(self, name: TableName) -> Any:
        """The latest version of a LanceDB table. Raises InputError if it does not exist."""
        table = self.find(name)
        if table is None:
            raise InputError(f"{self.uri}: is empty; add videos with: hiero index VIDEO… --to {self.uri}")
        return table

    def count(self, rows: RowFilter, name: TableName = STEPS) -> int:
        """Number of rows, 0 if there is no table."""
        if self.find(name) is None:
            return 0
        return self._query(lambda: int(self.get(name).count_rows(rows.to_sql())), name)

    def read(self, rows: RowFilter, columns: list[str], num: int = ALL_ROWS, name: TableName = STEPS) -> Rows:
        """Columns of rows, in the order of the table. Empty if there is no table."""
        return [] if self.find(name) is None else self.read_arrow(rows, columns, num, name).to_pylist()

    def read_arrow(self, rows: RowFilter, columns: list[str], num: int = ALL_ROWS, name: TableName = STEPS) -> pa.Table:
        """The result of `read` as a table. Raises InputError if there is no table."""
        return self._query(lambda: query_rows(self.get(name), rows, columns, num).to_arrow(), name)

    def nearest(
        self,
        vector: np.ndarray,
        rows: RowFilter,
        columns: list[str],
        num: int,
        exact: bool = False,
        name: TableName = STEPS,
    ) -> Rows:
        """The rows nearest to a vector by cosine distance, nearest first, with their `_distance`."""

        def search() -> Rows:
            table = self.get(name)
            query = table.search(vector.astype(np.float32), vector_column_name="vector").distance_type("cosine")
            if (where := rows.to_sql()) is not None:
                query = query.where(where, prefilter=True)
            query = query.select([*columns, "_distance"]).limit(num)
            refine_factor = max(1, min(REFINE_FACTOR, MAX_REFINED // num))
            query = query.bypass_vector_index() if exact else query.nprobes(NUM_PROBES).refine_factor(refine_factor)
            return list(query.to_list())

        return self._query(search, name)

    def read_names(self) -> Rows:
        """The steps that people named, with `uid`, `video`, `level` and `label`; read once for each version."""
        version = self.get(STEPS).version
        if self._names is None or self._names[0] != version:
            self._names = version, self.read(NAMED_STEPS, ["uid", "video", "level", "label"])
        return self._names[1]

    def _query(self, query: Callable[[], Result], name: TableName) -> Result:
        with report_damage(self.uri, name):
            return read_latest(query)

    def read_all(self, name: TableName) -> None:
        """Read every value of a table, and raise DamagedCorpusError if that fails."""
        if (table := self.find(name)) is not None:
            with report_damage(self.uri, name):
                for _ in table.search().limit(ALL_ROWS).to_batches():
                    pass

    def width(self) -> int | None:
        """Size of the vectors of steps, or None if there is no table yet."""
        return None if self.find(STEPS) is None else vector_width(self.get(STEPS).schema)

    # Writing

    def change(self, change: Callable[[bool], Result]) -> Result:
        """Change the latest versions in one commit, then merge small files if necessary.

        `change` is called with whether other writers are locked out.
        """
        with write_lock(self.uri, self.wait_s) as is_locked:
            result = commit(self.uri, lambda: change(is_locked))
            self._merge_small_files(is_locked)
        return result

    def create(self, name: TableName, schema: pa.Schema) -> None:
        """Create an empty table unless another process has done so."""
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
        """Replace all rows of some videos in one commit, or delete them without `rows`. Creates a missing table."""
        if self.find(name) is None:
            if rows is None:
                return
            self.create(name, rows.schema)
        table, old = self.get(name), RowFilter(videos)
        exists = bool(videos) and table.count_rows(old.to_sql()) > 0
        if rows is None:
            if exists:
                table.delete(old.to_sql())
        elif exists:
            drop_repeated(table, old)  # the merge would update both copies
            merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
            merge.when_not_matched_by_source_delete(old.to_sql()).execute(rows)
        else:
            table.add(rows)  # unlike a merge, as fast in a large table

    def overwrite(self, rows: pa.Table) -> None:
        """Replace all steps."""
        self._tables[STEPS] = commit(self.uri, lambda: self._db.create_table(STEPS, rows, mode="overwrite"))

    def optimize(self) -> None:
        """Merge small files, prune old versions, and index the vectors of large tables."""
        if self.find(STEPS) is not None:
            with write_lock(self.uri, self.wait_s) as is_locked:
                commit(self.uri, lambda: self._optimize(is_locked))

    def _optimize(self, is_locked: bool) -> None:
        for table in filter(None, (self.find(STEPS), self.find(SPEECH))):
            # With the lock, files without a version can only come from killed writers.
            table.optimize(cleanup_older_than=OLD_VERSION, delete_unverified=is_locked)
            if table.count_rows() >= MIN_INDEXED_ROWS and not table.list_indices():
                from lancedb.index import IvfSq

                table.create_index("vector", config=IvfSq(distance_type="cosine"))

    def _merge_small_files(self, is_locked: bool) -> None:
        """Optimize if it is worthwhile. If the disk is too full for that, the commit before remains valid."""
        stats = self.get(STEPS).stats()
        files, num_rows = stats["fragment_stats"], stats["num_rows"]
        num_new = num_rows - files["lengths"]["max"]  # all rows outside the largest file
        num_files = files["num_small_fragments"]
        if num_files < MIN_FILES or (num_new < MIN_NEW_SHARE * num_rows and num_files < MAX_FILES):
            return
        try:
            commit(self.uri, lambda: self._optimize(is_locked))
        except InputError:
            return  # too many writers; one of them will do it
        except OSError as error:
            if not is_disk_full(error):
                raise
            warnings.warn(f"{self.uri}: no space left to merge its files; searches will be slower", stacklevel=2)


def vector_width(schema: pa.Schema) -> int:
    """Size of the vectors of a table."""
    return int(schema.field("vector").type.list_size)


def query_rows(table: Any, rows: RowFilter, columns: list[str], num: int = ALL_ROWS) -> Any:
    """A query for columns of rows, in the order of the table."""
    where = rows.to_sql()
    query = table.search() if where is None else table.search().where(where)
    return query.select(columns).limit(num)


def drop_repeated(table: Any, rows: RowFilter = ANY_ROW) -> None:
    """Keep only the last written of rows with the same uid."""
    # Repeated until none is left: if another process merges files in between, LanceDB retries the
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
def write_lock(uri: str, wait_s: float = WAIT_S) -> Iterator[bool]:
    """Wait until no other process writes to a corpus. Yields whether other writers are locked out.

    LanceDB notices two commits that change the same rows, but not two that insert the same new rows.
    """
    is_locked = False
    with ExitStack() as stack:
        if not is_address(uri):
            Path(uri).mkdir(parents=True, exist_ok=True)
            with suppress(OSError, NotImplementedError):  # a network file system may have no locks
                stack.enter_context(hold_lock(Path(uri) / ".lock", uri, wait_s))
                is_locked = True
        yield is_locked


def commit(uri: str, change: Callable[[], Result]) -> Result:
    """Make a change, and retry it if another process has written in between."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return change()
        except InputError:
            raise
        except (RuntimeError, OSError, ValueError) as error:
            message = str(error)
            if is_disk_full(error):
                raise OSError(errno.ENOSPC, DISK_FULL, uri) from error
            # LanceDB has no class for this error. A typical message: "Retryable commit conflict for version 7".
            if "onflict" not in message and "retr" not in message.lower():
                if "(os error" in message:  # such as a failing disk
                    raise OSError(errno.EIO, _short_message(error), uri) from error
                if message.startswith(("lance error", "Invalid input")):
                    raise damage_error(uri, error) from error
                raise
            conflict = error
            time.sleep(random.uniform(0, MAX_BACKOFF_S * attempt))
    raise BusyError(f"{uri}: busy, too many processes write to this corpus; try again ({conflict})") from conflict


def read_latest(query: Callable[[], Result]) -> Result:
    """Run a query, and repeat it if a writer has pruned the version it reads."""
    for _ in range(MAX_READS - 1):
        try:
            return query()
        except (RuntimeError, OSError) as error:
            if "not found" not in str(error).lower():
                raise
    return query()


@contextmanager
def report_damage(uri: str, name: TableName = STEPS) -> Iterator[None]:
    """Report any error in the block as damage of a table."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # LanceDB raises many kinds
        raise damage_error(uri, error, name) from error


def damage_error(uri: str, error: Exception, name: TableName = STEPS) -> InputError:
    """The error for a table that cannot be read. At an address, the connection is more likely to blame."""
    reason = _short_message(error)
    if is_address(uri):
        return InputError(f"{uri}: cannot open the corpus ({reason})")
    advice = f"delete {uri} and run hiero index again; corrections of steps are stored elsewhere and are kept"
    return DamagedCorpusError(f"{uri}: the table {name}.lance is damaged ({reason}); {advice}")


def _short_message(error: Exception) -> str:
    """LanceDB's message in one line, without lines of its source and whole responses of object stores."""
    text = str(error).rpartition("LanceError(IO):")[2].split(", /")[0].strip()
    message = re.search(r"<Message>(.*?)</Message>", text) or re.search(r'message: \\?"([^"\\]+)', text)
    return f"{text.split('{')[0].strip(' :')}: {message[1]}" if message else text.split("{")[0].strip(" :")
