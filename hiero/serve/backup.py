"""The folder of a server, its root: taking over earlier folders, backups, and restoring them.

ROOT/state.sqlite    jobs, edits, tokens, and what is known about videos
ROOT/uploads/        USER/ID/NAME.mp4
ROOT/corpus/         the steps of processed videos, for searches
ROOT/text/           cached texts, which are not part of a backup
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, Any

from hiero.corpus.table import write_lock
from hiero.errors import InputError
from hiero.media.recordings import VIDEO_SUFFIXES
from hiero.serve.database import FILE_NAME, copy_database, find_damage
from hiero.serve.library import path_id
from hiero.storage.files import atomic_path, parse_json, real_path

CORPUS, UPLOADS, MANIFEST = "corpus", "uploads", "manifest.json"
EARLIER = "earlier"  # the owner of uploads that were taken over
CHUNK_BYTES = 2**20


def take_over(
    root: Path, state: Path | None, uploads: Path | None, corpus: str | None, log: Callable[[str], None]
) -> None:
    """Copy what a server kept in separate folders into its root, once. The originals stay as they are."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = root / f".{secrets.token_hex(8)}.part"
    try:
        if corpus is not None and not (root / CORPUS).exists():
            with write_lock(corpus):
                shutil.copytree(corpus, part, ignore=shutil.ignore_patterns(".*"))
            part.rename(root / CORPUS)
            log(f"{root / CORPUS}: copied from {corpus}, which is no longer needed")
        if uploads is not None and uploads.is_dir() and not (root / UPLOADS).exists():
            for file in uploads.iterdir():
                if file.suffix.lower() in VIDEO_SUFFIXES and not file.name.startswith(".") and file.is_file():
                    folder = part / EARLIER / path_id([real_path(file)])  # links to the video stay valid
                    folder.mkdir(parents=True)
                    shutil.copy2(file, folder)
            if part.exists():
                part.rename(root / UPLOADS)
                log(f"{root / UPLOADS}: copied from {uploads}, which is no longer needed")
        if state is not None and (state / FILE_NAME).is_file() and not (root / FILE_NAME).exists():
            with closing(sqlite3.connect(state / FILE_NAME)) as database:
                copy_database(database, root / FILE_NAME)
            log(f"{root / FILE_NAME}: copied from {state}, which is no longer needed")
    except OSError as error:
        raise InputError(f"{root}: earlier folders cannot be copied to it ({error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def back_up(root: Path, target: Path) -> int:
    """Copy a server to a tar file, also while it runs. Returns the number of files.

    The corpus comes first: edits that it lacks are in the state, from which the server adds them again.
    """
    if not (root / FILE_NAME).is_file():
        raise InputError(f"{root}: is not the root of a server; it has no {FILE_NAME}")
    if target.exists():
        raise InputError(f"{target}: already exists; choose another name")
    files: dict[str, dict[str, Any]] = {}
    with (
        atomic_path(target) as temporary,
        tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar,
        tempfile.TemporaryDirectory(dir=target.absolute().parent) as folder,
    ):
        if (root / CORPUS).is_dir():
            with write_lock(str(root / CORPUS)):
                _add_folder(tar, root, CORPUS, files)
        copy = Path(folder) / FILE_NAME
        with closing(sqlite3.connect(root / FILE_NAME)) as database:
            copy_database(database, copy)
        _add(tar, copy, FILE_NAME, files)
        _add_folder(tar, root, UPLOADS, files)
        manifest = {"hiero": version("hiero-video"), "created_at": time.time(), "files": files}
        (Path(folder) / MANIFEST).write_text(json.dumps(manifest))
        _add(tar, Path(folder) / MANIFEST, MANIFEST, {})
    return len(files)


def _add_folder(tar: tarfile.TarFile, root: Path, name: str, files: dict[str, dict[str, Any]]) -> None:
    for path in sorted((root / name).rglob("*")):
        inside = path.relative_to(root)
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in inside.parts):
            _add(tar, path, inside.as_posix(), files)


def _add(tar: tarfile.TarFile, path: Path, name: str, files: dict[str, dict[str, Any]]) -> None:
    """Add a file, and what the manifest says about it."""
    info = tarfile.TarInfo(name)
    stat = path.stat()
    info.size, info.mtime, info.mode = stat.st_size, stat.st_mtime, 0o600
    with path.open("rb") as file:
        hashed = HashedFile(file)
        tar.addfile(info, hashed)
    files[name] = {"bytes": info.size, "sha256": hashed.digest.hexdigest()}


class HashedFile:
    """A file that is hashed while it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.digest, self._file = hashlib.sha256(), file

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def restore(archive: Path, root: Path) -> int:
    """Unpack a backup into a folder that is empty or missing. Returns the number of files.

    The folder appears when all files are complete and equal those that were saved.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise InputError(f"{root}: is not empty; restore into a new folder")
    root = real_path(root)
    part = root.with_name(f".{root.name}.{secrets.token_hex(8)}.part")
    try:
        part.mkdir(parents=True, mode=0o700)
        with tarfile.open(archive) as tar:
            hashes = dict(_extract(tar, part))
        _check(part, hashes)
        os.sync()
        part.replace(root)
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{archive}: is damaged or not a backup ({error})") from error
    except InputError as error:
        raise InputError(f"{archive}: {error}") from error
    except FileNotFoundError as error:
        raise InputError(f"{archive}: no such file") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return len(hashes)


def _extract(tar: tarfile.TarFile, folder: Path) -> Iterator[tuple[str, str]]:
    """Write the files of an archive into a folder and nowhere else. Yields their names and hashes."""
    for member in tar:
        path = PurePosixPath(member.name)
        is_inside = not path.is_absolute() and ".." not in path.parts and path.as_posix() == member.name
        is_ours = path.parts[:1] in ((CORPUS,), (UPLOADS,)) or member.name in (FILE_NAME, MANIFEST)
        content = tar.extractfile(member) if member.isreg() and is_inside and is_ours else None
        if content is None:
            raise InputError(f"has {member.name!a}, which no backup has")
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                hashed = HashedFile(content)
                while chunk := hashed.read(CHUNK_BYTES):
                    out.write(chunk)
        except (FileExistsError, NotADirectoryError):
            raise InputError(f"has {member.name!a} twice") from None
        os.utime(target, (member.mtime, member.mtime))
        yield member.name, hashed.digest.hexdigest()


def _check(folder: Path, hashes: dict[str, str]) -> None:
    """Raise InputError unless the files of a folder are those of its manifest, and the state can be read."""
    files = {}
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        files = parse_json((folder / MANIFEST).read_bytes())["files"].items()
    expected = {name: each.get("sha256") for name, each in files} if files else {}
    found = {name: digest for name, digest in hashes.items() if name != MANIFEST}
    if differing := sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)):
        raise InputError(f"is damaged; {len(differing)} files are missing or changed, such as {differing[0]}")
    (folder / MANIFEST).unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / FILE_NAME)) as database:
        try:
            damage = find_damage(database) or database.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.DatabaseError as error:
            damage = str(error)
    if damage != "ok":
        raise InputError(f"its {FILE_NAME} is damaged ({damage})")
