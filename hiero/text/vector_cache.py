"""Text vectors on disk, by content: a text is encoded once for each encoder, whoever asks.

    FOLDER/KEY/HASH.safetensors      digests (n, 16) uint8 and vectors (n, D) float16 of texts encoded together

KEY names the encoder's weights. Files are only ever added, whole, so readers and writers do not disturb each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from hiero.errors import InputError
from hiero.storage.files import load_arrays, save_arrays
from hiero.storage.weights import home

CHUNK = 2**15  # texts encoded between two writes
DIGEST_SIZE = 16  # bytes of a text's SHA-256 that identify it


class TextCache:
    """The vectors of one encoder.

    Args:
        key: Names the encoder's weights.
        folder: Of the caches of all encoders; None: in hiero's home.
    """

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.folder = (folder or home() / "text") / key
        self._index: dict[bytes, int] = {}
        self._vectors: list[np.ndarray] = []
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                arrays = load_arrays(file)
                self._add(arrays["digests"], arrays["vectors"])
            except (InputError, KeyError):
                file.unlink(missing_ok=True)  # damaged: encode those texts again

    def __len__(self) -> int:
        return len(self._index)

    def encode(
        self, texts: Sequence[str], encode: Callable[[list[str]], np.ndarray], progress: Callable[[int], None] = lambda _: None
    ) -> np.ndarray:
        """Vectors of the texts (n, D), float16. Those that are not in the cache are encoded, and saved as that goes on.

        Args:
            texts: Any number, some perhaps several times.
            encode: Texts → vectors (m, D).
            progress: Called with the number of texts that were done since the last call.
        """
        digests = [_digest(text) for text in texts]
        missing = list({digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._index}.values())
        progress(len(texts) - len(missing))
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            vectors = encode(chunk).astype(np.float16)
            joined = b"".join(map(_digest, chunk))
            chunk_digests = np.frombuffer(joined, dtype=np.uint8).reshape(-1, DIGEST_SIZE)
            with suppress(OSError):  # a full disk or a read-only home: they are encoded again the next time
                file = self.folder / f"{hashlib.sha256(joined).hexdigest()[:16]}.safetensors"
                save_arrays(file, {"digests": chunk_digests, "vectors": vectors})
            self._add(chunk_digests, vectors)
            progress(len(chunk))
        if not texts:
            return np.zeros((0, 0), dtype=np.float16)
        return np.concatenate(self._vectors)[[self._index[digest] for digest in digests]]

    def _add(self, digests: np.ndarray, vectors: np.ndarray) -> None:
        num_before = len(self._index)
        new = [i for i, row in enumerate(digests) if row.tobytes() not in self._index]
        self._index.update((digests[i].tobytes(), num_before + j) for j, i in enumerate(new))
        self._vectors.append(vectors[new])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:DIGEST_SIZE]
