"""Text vectors on disk, by content: a text is encoded once for each encoder, whoever asks.

    FOLDER/KEY/vectors.sqlite      a row for each text: digest, vector (D,) float16, and a checksum of both

KEY names the encoder's weights. Only the vectors that are asked for are read, so a question costs
the same however many there were before. SQLite keeps processes from disturbing each other, and a
file whole when one is killed; its journal is not the write-ahead log, which needs memory that all
processes share and so does not work in a home on a network file system.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import home, load_arrays

CHUNK = 2**15  # texts encoded between two writes
DIGEST_SIZE = 16  # bytes of a text's SHA-256 that identify it
MAX_VARIABLES = 500  # of a query; SQLite has a limit
WAIT_S = 10.0  # for another process that writes
FILE_NAME = "vectors.sqlite"
TABLE = "vectors (digest BLOB PRIMARY KEY, checksum INTEGER, vector BLOB) WITHOUT ROWID"

Result = TypeVar("Result")


class TextCache:
    """The vectors of one encoder."""

    _default_folder: ClassVar[Path | None] = None
    counts: ClassVar[Counter[str]] = Counter()

    @classmethod
    @contextmanager
    def stored_in(cls, folder: Path | None) -> Iterator[None]:
        """Within this block caches that name no folder are stored in this one; None changes nothing."""
        before = cls._default_folder
        cls._default_folder = folder or before
        try:
            yield
        finally:
            cls._default_folder = before

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.folder = (folder or self._default_folder or home() / "text") / key
        self.file = self.folder / FILE_NAME

    def __len__(self) -> int:
        return self._use(lambda database: int(database.execute("SELECT count(*) FROM vectors").fetchone()[0]), 0)

    def encode(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], np.ndarray],
        progress: Callable[[int], None] = lambda _: None,
    ) -> np.ndarray:
        """Vectors of the texts (n, D), float16. Those that are not in the cache are encoded, and saved
        as that goes on.
        """
        if not texts:
            return np.zeros((0, 0), dtype=np.float16)
        digests = [text_digest(text) for text in texts]
        by_digest = dict(zip(digests, texts, strict=True))
        self._import_files()
        vectors = self._load(list(by_digest))
        missing = [digest for digest in by_digest if digest not in vectors]
        self.counts.update(hits=len(vectors), misses=len(missing))
        progress(len(texts) - len(missing))
        while missing:
            chunk, missing = missing[:CHUNK], missing[CHUNK:]
            rows = encode([by_digest[digest] for digest in chunk]).astype(np.float16)
            if other := [digest for digest, vector in vectors.items() if len(vector) != rows.shape[1]]:
                missing += other  # of an encoder whose vectors had another size
                vectors = {digest: vector for digest, vector in vectors.items() if digest not in set(other)}
            new = dict(zip(chunk, rows, strict=True))
            self._save(new)
            vectors |= new
            progress(len(chunk))
        return np.stack([vectors[digest] for digest in digests])

    def _load(self, digests: list[bytes]) -> dict[bytes, np.ndarray]:
        """Those of the vectors that are there, as they were written; all of one size."""

        def select(database: sqlite3.Connection) -> dict[bytes, np.ndarray]:
            out: dict[bytes, np.ndarray] = {}
            for start in range(0, len(digests), MAX_VARIABLES):
                part = digests[start : start + MAX_VARIABLES]
                query = f"SELECT digest, checksum, vector FROM vectors WHERE digest IN ({', '.join('?' * len(part))})"
                for digest, checksum, data in database.execute(query, part):
                    if isinstance(data, bytes) and checksum == zlib.crc32(digest + data):
                        out[digest] = np.frombuffer(data, np.float16)
            return out

        nothing: dict[bytes, np.ndarray] = {}
        vectors = self._use(select, nothing)
        # Of several sizes it is not known which is right.
        return vectors if len({len(vector) for vector in vectors.values()}) == 1 else {}

    def _save(self, vectors: dict[bytes, np.ndarray]) -> bool:
        """Keep vectors, if that can be; whether it could."""
        rows = [(digest, zlib.crc32(digest + (data := vector.tobytes())), data) for digest, vector in vectors.items()]

        def insert(database: sqlite3.Connection) -> bool:
            database.executemany("INSERT OR REPLACE INTO vectors (digest, checksum, vector) VALUES (?, ?, ?)", rows)
            return True

        return self._use(insert, False, create=True)

    def _use(self, action: Callable[[sqlite3.Connection], Result], default: Result, create: bool = False) -> Result:
        """What an action does with the database, in one transaction."""
        try:
            if create:
                self.folder.mkdir(parents=True, exist_ok=True)
            elif not self.file.is_file():
                return default
            with closing(sqlite3.connect(self.file, timeout=WAIT_S)) as database, database:
                if create:
                    database.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
                return action(database)
        except sqlite3.OperationalError as error:
            # A table of other columns is not ours. One without a table may be ours, which another
            # process is just making.
            if "column" in str(error):
                self._remove()
        except sqlite3.DatabaseError:
            self._remove()
        except OSError:
            pass
        return default

    def _remove(self) -> None:
        for file in (self.file.with_name(f"{FILE_NAME}-journal"), self.file):  # the journal of one is wrong for another
            with suppress(OSError):
                file.unlink()

    def _import_files(self) -> None:
        """Take over what earlier versions kept: a file for texts that were encoded together."""
        for file in self.folder.glob("*.safetensors"):
            try:
                arrays = load_arrays(file)
                digests, rows = arrays["digests"], arrays["vectors"]
                is_valid = digests.shape == (len(rows), DIGEST_SIZE) and rows.ndim == 2 and rows.dtype == np.float16
                is_valid = is_valid and digests.dtype == np.uint8 and bool(np.isfinite(rows).all())
            except (InputError, KeyError, TypeError):
                is_valid = False
            if is_valid and not self._save({digest.tobytes(): row for digest, row in zip(digests, rows, strict=True)}):
                return  # read-only or full: perhaps another time
            with suppress(OSError):
                file.unlink()


def text_digest(text: str) -> bytes:
    """What a text is known by in the cache."""
    return hashlib.sha256(text.encode()).digest()[:DIGEST_SIZE]
