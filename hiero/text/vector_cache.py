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


class TextCache:
    """The vectors of one encoder."""

    def __init__(self, key: str, folder: Path | None = None) -> None:
        self.folder = (folder or home() / "text") / key
        self._index: dict[bytes, int] = {}
        self._vectors: list[np.ndarray] = []
        for file in sorted(self.folder.glob("*.safetensors")):
            try:
                part = load_arrays(file)
                self._add(part["digests"], part["vectors"])
            except (InputError, KeyError):
                file.unlink(missing_ok=True)  # damaged: encode those texts again

    def __len__(self) -> int:
        return len(self._index)

    def encode(
        self, texts: Sequence[str], encode: Callable[[list[str]], np.ndarray], progress: Callable[[int], None] = lambda _: None
    ) -> np.ndarray:
        """Vectors of the texts (n, D), float16. Only those not seen before go through `encode`; long work is kept as it goes."""
        digests = [_digest(text) for text in texts]
        missing = list({digest: text for digest, text in zip(digests, texts, strict=True) if digest not in self._index}.values())
        progress(len(texts) - len(missing))
        for start in range(0, len(missing), CHUNK):
            part = missing[start : start + CHUNK]
            vectors = encode(part).astype(np.float16)
            keys = b"".join(map(_digest, part))
            named = np.frombuffer(keys, dtype=np.uint8).reshape(-1, 16)
            with suppress(OSError):  # a full disk or a read-only home: they are encoded again the next time
                file = self.folder / f"{hashlib.sha256(keys).hexdigest()[:16]}.safetensors"
                save_arrays(file, {"digests": named, "vectors": vectors})
            self._add(named, vectors)
            progress(len(part))
        if not texts:
            return np.zeros((0, 0), dtype=np.float16)
        return np.concatenate(self._vectors)[[self._index[digest] for digest in digests]]

    def _add(self, digests: np.ndarray, vectors: np.ndarray) -> None:
        first = len(self._index)
        new = [i for i, row in enumerate(digests) if row.tobytes() not in self._index]
        self._index.update((digests[i].tobytes(), first + j) for j, i in enumerate(new))
        self._vectors.append(vectors[new])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]
