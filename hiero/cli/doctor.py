"""hiero doctor: what is installed on this machine, a line each."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import hiero
from hiero.cli.console import echo, print_json
from hiero.cli.options import Json
from hiero.storage import weights

PACKAGES = ("torch", "av", "onnxruntime", "lancedb", "fastapi")
CODECS = ("h264", "hevc", "av1", "vp9")
DEFAULT_WEIGHTS = ("i3d-k400", "dinov2-text", "minilm")  # used by the built-in models


@dataclass(frozen=True)
class Finding:
    """A line of the report. A warning is about an optional part, a problem keeps hiero from working."""

    name: str
    message: str
    level: Literal["ok", "warning", "problem"] = "ok"


def doctor(*, json_: Json = False) -> None:
    """Show versions, weights, decoders and GPU of this machine. The exit code is 1 if there is a problem.

    **Examples**

    * `hiero doctor`
    * `hiero doctor --json`
    """
    findings = [*check_versions(), *check_weights(), *check_decoders(), *check_gpu()]
    is_ok = all(finding.level != "problem" for finding in findings)
    if json_:
        print_json({"ok": is_ok, "findings": list(map(asdict, findings))})
    else:
        for finding in findings:
            echo(f"{finding.level:<8} {finding.name:<22} {finding.message}")
    sys.exit(not is_ok)


def check_versions() -> Iterator[Finding]:
    yield Finding("hiero", f"{hiero.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in PACKAGES:
        try:
            yield Finding(package, version(package))
        except PackageNotFoundError:
            yield Finding(package, f"not installed; run: pip install {package}", "warning")


def check_weights() -> Iterator[Finding]:
    """Installed weights, compared with their published hashes."""
    for entry in weights.REGISTRY.values():
        name, command = f"weights {entry.name}", f"hiero models get {entry.name}"
        folder = weights.find(entry.name)
        if folder is None:
            level: Literal["ok", "warning"] = "warning" if entry.name in DEFAULT_WEIGHTS else "ok"
            yield Finding(name, f"not installed ({entry.megabytes} MB); run: {command}", level)
            continue
        hashes = {folder / file: checksum for file, (_, checksum) in entry.files.items()}
        if damaged := [str(file) for file, checksum in hashes.items() if not weights.is_genuine(file, checksum)]:
            yield Finding(name, f"damaged; delete {' '.join(damaged)} and run: {command}", "problem")
        else:
            yield Finding(name, f"{folder}, {'verified' if all(hashes.values()) else 'no published hash'}")


def check_decoders() -> Iterator[Finding]:
    try:
        import av
    except ImportError as error:
        yield Finding("decoders", f"no video can be read ({error}); run: pip install 'av>=18'", "problem")
        return
    missing = [codec for codec in CODECS if codec not in av.codec.codecs_available]
    if missing:
        yield Finding("decoders", f"{', '.join(missing)} missing; run: pip install --force-reinstall av", "warning")
    else:
        yield Finding("decoders", ", ".join(CODECS))


def check_gpu() -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs only"
        yield Finding("gpu", f"no NVIDIA GPU is usable; torch is built for {build}")
    for index in range(torch.cuda.device_count()):
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(index))
        yield Finding(f"gpu cuda:{index}", f"{torch.cuda.get_device_name(index)}, {free:.1f} of {total:.1f} GiB free")
