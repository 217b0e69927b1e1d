"""Speed of the backbones on this machine: measured once, and kept in a file."""

from __future__ import annotations

import json
import platform
import time

import numpy as np
import torch

from hiero.errors import InputError
from hiero.features.extractor import NUM_FRAMES, choose_precision, default_batch_size, run_network, stack_frames
from hiero.media.decode import Segment
from hiero.networks.registry import find_backbone
from hiero.storage.files import home, read_json, write_text

SPEEDS_FILE = "cache/speeds.json"
MIN_MEASURE_S = 2.0  # length of a measurement


def measure_speed(name: str, device: str) -> None:
    """Measure a backbone with random weights, without decoding; `known_speeds` returns the result."""
    backbone = find_backbone(name)
    if backbone.module == "hiero.networks.clip" or not backbone.builtin:
        raise InputError(f"{name}: cannot be measured, because its size depends on the weights that you install")
    torch_device, is_tower = torch.device(device), backbone.num_frames > 0
    dtype = choose_precision(torch_device, tower=is_tower)
    if not backbone.allows_half and torch_device.type != "cuda":
        dtype = torch.float32
    module = backbone.untrained().to(torch_device, dtype)
    # As in `extract_features`: a tower reads segments, the other networks windows of two segments.
    num_frames = backbone.num_frames if is_tower else NUM_FRAMES
    window_s = backbone.spacing_s if is_tower else 2 * backbone.spacing_s
    height, width = backbone.short_side, backbone.short_side * 4 // 3
    frames = np.random.default_rng(0).integers(0, 255, (num_frames, height, width, 3), dtype=np.uint8)
    batch = [Segment(0, (0.0,) * num_frames, frames, window_s)] * default_batch_size(torch_device)
    with torch.inference_mode():
        run_network(backbone, module, stack_frames(batch, torch_device))  # warms up
        num_batches, begin_s = 0, time.perf_counter()
        while time.perf_counter() - begin_s < MIN_MEASURE_S:
            run_network(backbone, module, stack_frames(batch, torch_device))
            num_batches += 1
        speed = num_batches * len(batch) * window_s / (time.perf_counter() - begin_s)
    speeds = _read_speeds()
    speeds.setdefault(_machine(device), {})[name] = round(speed, 4)
    write_text(home() / SPEEDS_FILE, json.dumps(speeds, indent=1) + "\n")


def known_speeds(device: str) -> dict[str, float]:
    """Speeds that were measured on this device, by backbone."""
    return dict(_read_speeds().get(_machine(device), {}))


def _read_speeds() -> dict[str, dict[str, float]]:
    try:
        speeds = read_json(home() / SPEEDS_FILE)
    except InputError:
        return {}
    return speeds if isinstance(speeds, dict) else {}


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device}, {platform.machine()}, {torch.get_num_threads()} threads"
