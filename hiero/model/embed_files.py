"""Embedding of feature files: one file, or a folder. Files that are up to date are skipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import OutOfMemoryError, Tensor

from hiero.errors import InputError
from hiero.features.files import find_features, read_features
from hiero.model.ensemble import HieroEnsemble, embed_features
from hiero.model.hiero import HiERO
from hiero.storage.cache import content_key
from hiero.storage.files import path_beside, real_path, save_tensors
from hiero.types import Clock

STAMP = "hiero"  # metadata entry that identifies the source and the settings of an output


@dataclass(frozen=True)
class FileEmbedder:
    """Applies `embed_features` to feature files."""

    model: HiERO | HieroEnsemble
    clock: Clock
    levels: list[int] | None = None
    threads: bool | None = None
    version: str = ""

    def embed_file(self, source: Path, target: Path) -> dict[str, Tensor]:
        """Embed a file, overwrite `target`, and return what it holds."""
        stamp = self._stamp(source)  # taken first: a file that changes in between is embedded again
        features = read_features(source, self.model.config.input_size)
        tensors = embed_features(self.model, features, self.clock, self.levels, self.threads)
        save_tensors(target, tensors, {STAMP: stamp})
        return tensors

    def embed_files(self, targets: Mapping[Path, Path], progress: Callable[[str], None] = lambda _: None) -> list[str]:
        """Embed files unless they are up to date. Returns the error messages."""
        problems = []
        for source, target in targets.items():
            try:
                if not (target.is_file() and _read_stamp(target) == self._stamp(source)):
                    self.embed_file(source, target)
            except InputError as error:
                problems.append(str(error))
            except (MemoryError, OutOfMemoryError):
                problems.append(f"{source}: too large for the memory of this device")
            progress(source.name)
        return problems

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """The model and the settings. The fingerprint reads every weight, so it is computed once."""
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
        return json.dumps({**self._settings, "source": [source.name, content_key(source)]}, sort_keys=True)


def output_files(source: Path, out: Path) -> dict[Path, Path]:
    """The output of each feature file: `out` for a file, the same tree below `out` for a folder."""
    is_inside = source.is_dir() and real_path(out).is_relative_to(real_path(source))
    if is_inside or real_path(out) == real_path(source):
        raise InputError(f"-o {out} would mix with the input {source}; choose another folder")
    if source.is_dir() and out.is_file():
        raise InputError(f"-o {out} is a file; a folder of features needs a folder to write to")
    if source.is_file() and out.is_dir():
        raise InputError(f"-o {out} is a folder; name a file, such as {out / (source.stem + '.safetensors')}")
    if source.is_file():
        return {source: out}
    return {
        file: path_beside((out / file.relative_to(source)).with_suffix(""), ".safetensors")
        for file in find_features(source)
    }


def _read_stamp(path: Path) -> str | None:
    """The stamp of an output; None if the file is damaged or has none."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get(STAMP)
    except (SafetensorError, OSError):
        return None
