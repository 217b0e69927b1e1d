"""Feature files through a model: one file, or a folder whose finished files are skipped when it is run again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import OutOfMemoryError

from hiero.data.features import find_features, read_features
from hiero.errors import InputError
from hiero.model.embed import embed_features
from hiero.model.ensemble import HieroEnsemble
from hiero.model.hiero import HiERO
from hiero.storage.files import save_tensors
from hiero.types import Clock

STAMP = "hiero"  # the metadata entry of an output that says what it was computed from


@dataclass(frozen=True)
class FileEmbedder:
    """Writes what `embed_features` gives for feature files."""

    model: HiERO | HieroEnsemble
    clock: Clock
    levels: list[int] | None = None
    threads: bool | None = None
    version: str = ""

    def embed_file(self, source: Path, target: Path) -> None:
        """Embed a file, whatever is at `target`. Raises InputError where it cannot be read or does
        not fit the model.
        """
        stamp = self._stamp(source)  # before it is read: a file that changes meanwhile is then done again
        features = read_features(source, self.model.config.input_size)
        tensors = embed_features(self.model, features, self.clock, self.levels, self.threads)
        save_tensors(target, tensors, {STAMP: stamp})

    def embed_files(self, targets: Mapping[Path, Path], progress: Callable[[str], None] = lambda _: None) -> list[str]:
        """Embed many files; those that were done by the same model with the same settings are skipped."""
        problems = []
        for source, target in targets.items():
            try:
                if not (target.is_file() and _read_stamp(target) == self._stamp(source)):
                    self.embed_file(source, target)
            except InputError as error:
                problems.append(str(error))
            except (MemoryError, OutOfMemoryError):
                problems.append(f"{source}: does not fit in memory on this device")
            progress(source.name)
        return problems

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """All that an output depends on, but for its source; the fingerprint reads every weight, so
        it is taken once.
        """
        return {
            "hiero": self.version,
            "model": self.model.fingerprint(),
            "fps": self.clock.fps,
            "stride": self.clock.stride,
            "start_s": self.clock.start_s,
            "levels": self.levels,
            "threads": self.threads,
        }

    def _stamp(self, source: Path) -> str:
        stat = source.stat()
        return json.dumps({**self._settings, "source": [source.name, stat.st_size, stat.st_mtime_ns]}, sort_keys=True)


def output_files(source: Path, out: Path) -> dict[Path, Path]:
    """Where the output of each feature file goes: `out` for a file, the same tree below `out` for a folder."""
    is_inside = source.is_dir() and out.resolve().is_relative_to(source.resolve())
    if is_inside or out.resolve() == source.resolve():
        raise InputError(f"-o {out} would mix with the input {source}; choose another place")
    if source.is_dir() and out.is_file():
        raise InputError(f"-o {out} is a file; a folder of features needs a folder to write to")
    if source.is_file() and out.is_dir():
        raise InputError(
            f"-o {out} is a folder; name the file to write, such as {out / source.with_suffix('.safetensors').name}"
        )
    if source.is_file():
        return {source: out}
    return {file: out / file.relative_to(source).with_suffix(".safetensors") for file in find_features(source)}


def tensor_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a safetensors file, by name."""
    with safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in sorted(file.keys())}


def _read_stamp(path: Path) -> str | None:
    """None when the file is damaged or not ours."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get(STAMP)
    except (SafetensorError, OSError):
        return None
