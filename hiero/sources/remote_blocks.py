"""A file that is brought here block by block, in any order: an interrupted transfer goes on where it stopped.

    .NAME.part      the bytes, with holes
    .NAME.blocks    which blocks are there, of which version: a line of JSON, then a byte for each block

A block counts only when its bytes are on the disk, so a process may be killed at any moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hiero.sources.remote_origins import RemoteStat
from hiero.storage.files import parse_json

BLOCK_BYTES = 2**20
SAVE_BYTES = 2**23  # that are written between two saves of the index: what a killed process has to bring again
PRESENT = 1


def part_path(path: Path) -> Path:
    """Where the bytes of a file are until all of them are there."""
    return path.with_name(f".{path.name}.part")


def index_path(path: Path) -> Path:
    """Which blocks of `part_path` are there."""
    return path.with_name(f".{path.name}.blocks")


@dataclass
class PartialFile:
    """Blocks of a file whose size is known."""

    path: Path
    stat: RemoteStat
    blocks: bytearray

    @classmethod
    def open(cls, path: Path, stat: RemoteStat) -> PartialFile:
        """What an earlier transfer left of this version; otherwise an empty file."""
        num_blocks = -(-cls.size_of(stat) // BLOCK_BYTES)
        header = _header(stat)
        with suppress(OSError, ValueError):
            line, _, blocks = index_path(path).read_bytes().partition(b"\n")
            if parse_json(line) == header and len(blocks) == num_blocks and part_path(path).is_file():
                return cls(path, stat, bytearray(blocks))
        index_path(path).unlink(missing_ok=True)  # before the bytes: it must never speak of others
        with part_path(path).open("wb"):
            pass
        return cls(path, stat, bytearray(num_blocks))

    @staticmethod
    def size_of(stat: RemoteStat) -> int:
        """In bytes. A file whose size is not known is never partial."""
        assert stat.size is not None
        return stat.size

    @property
    def size(self) -> int:
        """In bytes, when it is whole."""
        return self.size_of(self.stat)

    @property
    def num_present(self) -> int:
        """Bytes that are there."""
        num_blocks = self.blocks.count(PRESENT)
        is_last = bool(self.blocks) and self.blocks[-1] == PRESENT
        return num_blocks * BLOCK_BYTES - (-self.size % BLOCK_BYTES if is_last else 0)

    def next_missing(self, start: int = 0, stop: int | None = None) -> tuple[int, int] | None:
        """The first range of missing blocks, in bytes; None where all are there."""
        last = len(self.blocks) if stop is None else min(len(self.blocks), -(-stop // BLOCK_BYTES))
        first = self.blocks.find(0, start // BLOCK_BYTES, last)
        if first < 0:
            return None
        end = self.blocks.find(PRESENT, first, last)
        return first * BLOCK_BYTES, min(self.size, (last if end < 0 else end) * BLOCK_BYTES)

    def write(self, start: int, written: int, chunks: Iterable[bytes], progress: Callable[[int], None]) -> None:
        """Write bytes from `written` on; the blocks that they complete count when they are on the disk."""
        saved = written
        with part_path(self.path).open("r+b") as file:
            file.seek(written)
            try:
                for chunk in chunks:
                    file.write(chunk)
                    written += len(chunk)
                    if written - saved >= SAVE_BYTES:
                        self._save(file.fileno(), file.flush, start, written)
                        saved = written
                    progress(written)
            finally:
                self._save(file.fileno(), file.flush, start, written)

    def _save(self, descriptor: int, flush: Callable[[], None], start: int, written: int) -> None:
        """Count the blocks between two places as there."""
        flush()
        os.fsync(descriptor)
        last = len(self.blocks) if written >= self.size else written // BLOCK_BYTES
        for block in range(start // BLOCK_BYTES, last):
            self.blocks[block] = PRESENT
        temporary = index_path(self.path).with_suffix(".blocks-new")
        temporary.write_bytes(json.dumps(_header(self.stat)).encode() + b"\n" + self.blocks)
        temporary.replace(index_path(self.path))

    def finish(self) -> None:
        """Give the file its name, when all blocks are there."""
        assert self.next_missing() is None
        part_path(self.path).replace(self.path)
        index_path(self.path).unlink(missing_ok=True)


def _header(stat: RemoteStat) -> dict[str, object]:
    return {"size": stat.size, "version": stat.version, "block_bytes": BLOCK_BYTES}


def remove_partial(path: Path) -> None:
    """Remove what was brought of a file that is not whole."""
    index_path(path).unlink(missing_ok=True)
    part_path(path).unlink(missing_ok=True)
