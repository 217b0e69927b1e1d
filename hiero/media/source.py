"""VideoSource: where a video comes from, which is a local file, a remote one, or the chapters of a recording.

Inputs are resolved once, by `VideoSource.of`. All other code works on the local `paths` after `fetch`.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from hiero.media.addresses import is_address, scheme_of
from hiero.media.remote import RemoteFile
from hiero.storage.cache import KEY_LENGTH, content_key, file_state, quick_content_key
from hiero.storage.files import real_path
from hiero.types import ProgressCallback, no_progress


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine. `RemoteFile` has the same methods."""

    path: Path
    is_remote = False
    was_downloaded = False

    @property
    def name(self) -> str:
        """The path as results show it."""
        return str(self.path)

    @property
    def location(self) -> str:
        """The path that another machine, or a corpus (`stored_name`), resolves to the same file."""
        return str(real_path(self.path))

    stored_name = location

    def exists(self) -> bool:
        return os.path.isfile(self.path)  # noqa: PTH113 - pathlib raises an error for names that are too long

    def fetch(self, _: ProgressCallback = no_progress) -> Path:
        """The local path: there is nothing to download."""
        return self.path

    def fetch_companions(self) -> None:
        """Do nothing: transcripts and sidecars are already beside the file."""

    def key(self) -> str:
        """Hash of the content."""
        return content_key(self.path)

    known_key = key

    def quick_key(self) -> str | None:
        """`key` if it is known without reading a large file."""
        return quick_content_key(self.path)

    def state(self) -> object:
        """Changes when the file is written to."""
        return file_state(self.path)

    def growth(self, _: float) -> object:
        """`state`, which also changes while the file is being written."""
        return self.state()

    def reader(self) -> Any:
        """What a decoder opens to probe the file."""
        return str(self.path)


SourceFile: TypeAlias = LocalFile | RemoteFile


@dataclass(frozen=True)
class VideoSource:
    """One video: a file, or several that follow each other in time."""

    files: tuple[SourceFile, ...]

    @classmethod
    def of(cls, given: VideoInput) -> VideoSource:
        """Resolve a path, an address, or a list of them, without reading anything."""
        if isinstance(given, VideoSource):
            return given
        parts = [given] if isinstance(given, str | Path) else list(given)
        return cls(tuple(_resolve(part) for part in parts))

    @classmethod
    def join(cls, sources: Sequence[VideoSource]) -> VideoSource:
        """Join videos that follow each other."""
        return cls(tuple(file for source in sources for file in source.files))

    @property
    def paths(self) -> tuple[Path, ...]:
        """Local files; copies of remote files may not exist yet."""
        return tuple(file.path for file in self.files)

    @property
    def path(self) -> Path:
        """The first local file."""
        return self.files[0].path

    @property
    def name(self) -> str:
        """Path of the first file, or its address without passwords."""
        return self.files[0].name

    @property
    def identity(self) -> str:
        """Equal for two names of the same video."""
        return "\n".join(str(file.path) if file.is_remote else str(real_path(file.path)) for file in self.files)

    @property
    def is_remote(self) -> bool:
        """Whether any file is remote."""
        return any(file.is_remote for file in self.files)

    @property
    def missing_paths(self) -> list[Path]:
        """Local files that do not exist."""
        return [file.path for file in self.files if not file.exists()]

    def resolve(self) -> VideoSource:
        """The same video with absolute paths, without symbolic links."""
        return VideoSource(tuple(replace(file, path=real_path(file.path)) for file in self.files))

    def fetch(self, progress: ProgressCallback = no_progress) -> tuple[Path, ...]:
        """Download the remote files that are not up to date."""
        return tuple(file.fetch(progress) for file in self.files)

    def key(self) -> str:
        """Hash of the content of all files in order; downloads remote files whose content is not known."""
        return join_keys([file.key() for file in self.files])

    def state(self) -> tuple[object, ...]:
        """Changes when any file is written to or replaced."""
        return tuple(file.state() for file in self.files)

    def known_key(self) -> str | None:
        """`key` if it is known without a download, else None."""
        return _join_known([file.known_key() for file in self.files])

    def quick_key(self) -> str | None:
        """`key` if it is known without a download and without reading a large file, else None."""
        return _join_known([file.quick_key() for file in self.files])


VideoInput: TypeAlias = VideoSource | Path | str | Sequence[Path | str]


def join_keys(keys: Sequence[str]) -> str:
    """One key for files in order, from the key of each. A single file keeps its own."""
    return keys[0] if len(keys) == 1 else hashlib.sha256("\n".join(keys).encode()).hexdigest()[:KEY_LENGTH]


def _join_known(keys: Sequence[str | None]) -> str | None:
    known = [key for key in keys if key is not None]
    return join_keys(known) if len(known) == len(keys) else None


def _resolve(part: Path | str) -> SourceFile:
    if not isinstance(part, str) or not is_address(part):
        return LocalFile(Path(part))
    if scheme_of(part) == "file":
        return LocalFile(Path(urllib.parse.unquote(urllib.parse.urlsplit(part).path)))
    return RemoteFile.from_address(part)
