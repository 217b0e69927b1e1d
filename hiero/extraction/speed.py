"""Speed of the backbones on this machine: measured once, and kept in a file."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path

import numpy as np
import torch

from hiero.backbones.registry import find_backbone
from hiero.decoding.decode import Segment
from hiero.errors import InputError
from hiero.extraction.extractor import NUM_FRAMES, choose_precision, default_batch_size, run_backbone
from hiero.storage.files import home, read_json, write_text

MIN_MEASURE_S = 2.0  # how long a measurement runs at least


def measure_speed(name: str, device: str) -> float:
    """Measure a backbone with random weights, without decoding; `known_speeds` gives the result again."""
    backbone = find_backbone(name)
    if backbone.module == "hiero.backbones.clip" or not backbone.builtin:
        raise InputError(f"{name}: comes as the user brings it, so there is no size to measure")
    torch_device = torch.device(device)
    dtype = choose_precision(torch_device, tower=backbone.num_frames > 0)
    module = backbone.untrained().to(
        torch_device, dtype if backbone.allows_half or torch_device.type == "cuda" else torch.float32
    )
    # As `extract_features` reads: a tower sees segments, the other networks windows of two segments.
    if backbone.num_frames:
        num_frames, window_s = backbone.num_frames, backbone.spacing_s
    else:
        num_frames, window_s = NUM_FRAMES, 2 * backbone.spacing_s
    height, width = backbone.short_side, backbone.short_side * 4 // 3
    frames = np.random.default_rng(0).integers(0, 255, (num_frames, height, width, 3), dtype=np.uint8)
    batch = [Segment(0, (0.0,) * num_frames, frames, window_s)] * default_batch_size(torch_device)
    with torch.inference_mode():
        run_backbone(backbone, module, batch, torch_device)  # warms up
        num_batches, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < MIN_MEASURE_S:
            run_backbone(backbone, module, batch, torch_device)
            num_batches += 1
        spent_s = time.perf_counter() - begin
    speed = num_batches * len(batch) * window_s / spent_s
    speeds = _read_speeds()
    speeds.setdefault(_machine(device), {})[name] = round(speed, 4)
    write_text(_speeds_file(), json.dumps(speeds, indent=1) + "\n")
    return speed


def known_speeds(device: str) -> dict[str, float]:
    """Speeds that were measured on this device before, by backbone."""
    return dict(_read_speeds().get(_machine(device), {}))


def _speeds_file() -> Path:
    return home() / "cache" / "speeds.json"


def _read_speeds() -> dict[str, dict[str, float]]:
    try:
        speeds = read_json(_speeds_file())
    except InputError:
        return {}
    return speeds if isinstance(speeds, dict) else {}


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device}, {platform.machine()}, {torch.get_num_threads()} threads"
