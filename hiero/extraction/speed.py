"""How fast the backbones are on this machine, measured once and kept."""

from __future__ import annotations

import json
import platform
import time
from typing import Any

import numpy as np
import torch

from hiero.errors import InputError
from hiero.extraction.extractor import NUM_FRAMES, choose_precision, run_backbone
from hiero.storage import weights
from hiero.storage.files import read_json, write_text
from hiero.video.decode import Segment
from hiero.video.registry import find_backbone

LEAST_S = 2.0


def measure_speed(name: str, device: str) -> float:
    """Seconds of video that the network alone handles in a second; kept for `known_speeds`."""
    backbone = find_backbone(name)
    if backbone.module == "hiero.video.clip" or not backbone.builtin:
        raise InputError(f"{name}: comes as the user brings it, so there is no size to measure")
    place = torch.device(device)
    kind = choose_precision(place, tower=backbone.num_frames > 0)
    module = backbone.untrained().to(place, kind if backbone.half or place.type == "cuda" else torch.float32)
    frames, length_s = (backbone.num_frames, backbone.spacing_s) if backbone.num_frames else (NUM_FRAMES, 2 * backbone.spacing_s)
    side = backbone.short_side
    rng = np.random.default_rng(0)
    window = Segment(0, (0.0,) * frames, rng.integers(0, 255, (frames, side, side * 4 // 3, 3), dtype=np.uint8), length_s)
    batch = [window] * (16 if place.type == "cuda" else 1)
    with torch.inference_mode():
        run_backbone(backbone, module, batch, place)
        num, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < LEAST_S:
            run_backbone(backbone, module, batch, place)
            num += 1
        spent = time.perf_counter() - begin
    found = num * len(batch) * length_s / spent
    held = _held()
    held.setdefault(_machine(device), {})[name] = round(found, 4)
    write_text(_file(), json.dumps(held, indent=1) + "\n")
    return found


def known_speeds(device: str) -> dict[str, float]:
    """What was measured on this device before."""
    return dict(_held().get(_machine(device), {}))


def _file() -> Any:
    return weights.home() / "cache" / "speeds.json"


def _held() -> dict[str, dict[str, float]]:
    try:
        found = read_json(_file())
    except InputError:
        return {}
    return found if isinstance(found, dict) else {}


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return f"{device}, {platform.machine()}, {torch.get_num_threads()} threads"
