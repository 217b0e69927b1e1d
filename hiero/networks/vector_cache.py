"""Cached text vectors: each text is encoded once per encoder.

    FOLDER/KEY/vectors.sqlite      a row for each text: digest, vector (D,) float16, and a checksum of both

KEY names the encoder's weights. SQLite lets several processes use a file and keeps it consistent when
one is killed. It does not use a write-ahead log, which needs shared memory and so does not work on a
network file system.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from hiero.storage.files import home, load_arrays

CHUNK = 2**15  # texts encoded between two writes
DIGEST_SIZE = 16  # bytes of a text's SHA-256
MAX_VARIABLES = 500  # number of digests in a query, which SQLite limits
WAIT_S = 10.0  # how long to wait while another process writes
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
        """Within this block, `folder` is the default folder of caches. None changes nothing."""
        before = cls._default_folder
        cls._default_folder = folder or before
        try:
            yield
        finally:
            cls._default_folder = before

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.file = (folder or self._default_folder or home() / "text") / key / FILE_NAME

    def encode(
        self,
        texts: Sequence[str],
        encode: Callable[[list[str]], np.ndarray],
        progress: Callable[[int], None] = lambda _: None,
    ) -> np.ndarray:
        """Vectors of the texts (n, D), float16. Missing ones are encoded, and saved in chunks."""
        if not texts:
            return np.zeros((0, 0), dtype=np.float16)
        digests = [text_digest(text) for text in texts]
        by_digest = dict(zip(digests, texts, strict=True))
        vectors = self._load(list(by_digest))
        missing = [digest for digest in by_digest if digest not in vectors]
        self.counts.update(hits=len(vectors), misses=len(missing))
        progress(len(texts) - len(missing))
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            rows = encode([by_digest[digest] for digest in chunk]).astype(np.float16)
            new = dict(zip(chunk, rows, strict=True))
            self._save(new)
            vectors |= new
            progress(len(chunk))
        return np.stack([vectors[digest] for digest in digests])

    def _load(self, digests: list[bytes]) -> dict[bytes, np.ndarray]:
        """The cached vectors among these."""

        def select(database: sqlite3.Connection) -> dict[bytes, np.ndarray]:
            out: dict[bytes, np.ndarray] = {}
            for start in range(0, len(digests), MAX_VARIABLES):
                part = digests[start : start + MAX_VARIABLES]
                query = f"SELECT digest, checksum, vector FROM vectors WHERE digest IN ({', '.join('?' * len(part))})"
                for digest, checksum, data in database.execute(query, part):
                    if isinstance(data, bytes) and checksum == zlib.crc32(digest + data):
                        out[digest] = np.frombuffer(data, np.float16)
            return out

        return self._use(select, {})

    def _save(self, vectors: dict[bytes, np.ndarray]) -> None:
        """Save vectors. If that fails, they are encoded again the next time."""
        data = [(digest, vector.tobytes()) for digest, vector in vectors.items()]
        rows = [(digest, zlib.crc32(digest + vector), vector) for digest, vector in data]

        def insert(database: sqlite3.Connection) -> None:
            database.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
            database.executemany("INSERT OR REPLACE INTO vectors (digest, checksum, vector) VALUES (?, ?, ?)", rows)

        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.touch()
        self._use(insert, None)

    def _use(self, action: Callable[[sqlite3.Connection], Result], default: Result) -> Result:
        """Run an action on the database in one transaction. If it is missing or damaged, return the default."""
        try:
            if self.file.is_file():
                with closing(sqlite3.connect(self.file, timeout=WAIT_S)) as database, database:
                    return action(database)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # sqlite3 cannot decode some messages about damage
            # A missing table is not damage: another process may be creating it.
            if not isinstance(error, sqlite3.OperationalError) or "column" in str(error):
                # The journal goes first: it would damage another database.
                for file in (self.file.with_name(f"{FILE_NAME}-journal"), self.file):
                    with suppress(OSError):
                        file.unlink()
        except OSError:
            pass
        return default


def text_digest(text: str) -> bytes:
    """The cache's key of a text."""
    return hashlib.sha256(text.encode()).digest()[:DIGEST_SIZE]


def read_vectors(file: Path, prefix: str = "") -> dict[bytes, np.ndarray]:
    """The vectors in a file by the digests of their texts."""
    arrays = load_arrays(file, prefix)
    pairs = zip(arrays[f"{prefix}digests"], arrays[f"{prefix}vectors"], strict=True)
    return {digest.tobytes(): vector for digest, vector in pairs}


def encode_unknown(
    texts: Sequence[str], known: Mapping[bytes, np.ndarray], encode: Callable[[list[str]], np.ndarray]
) -> np.ndarray:
    """Vectors of texts (n, D) in single precision: those of `known` by their digests, the others encoded."""
    others = [text for text in texts if text_digest(text) not in known]
    new = dict(zip(others, encode(others) if others else (), strict=True))
    return np.stack([new[text] if text in new else known[text_digest(text)] for text in texts]).astype(np.float32)
