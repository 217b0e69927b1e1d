"""Shared fixtures: the parity files of the release, and helpers to pad them."""

from __future__ import annotations

import gc
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # workers share the cores, and so do their children

import pytest
from hypothesis import HealthCheck, settings

from tests.processes import share_forkserver

if TYPE_CHECKING:  # torch is imported where it is used: the process that starts the workers loads this file before it starts any
    from torch import Tensor

    from hiero.model.released import Released

FIXTURES = Path(__file__).parent / "fixtures"

settings.register_profile("hiero", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hiero")


def load(name: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(FIXTURES / f"{name}.safetensors")


def load_json(name: str):
    return json.loads((FIXTURES / f"{name}.json").read_text())


def pad(x: Tensor, video: Tensor, fill: float = 0) -> tuple[Tensor, Tensor]:
    """Concatenated videos (N, …) → (B, T, …) and their mask (B, T)."""
    import torch

    parts = [x[video == v] for v in range(int(video.max()) + 1)]
    length = max(map(len, parts))
    out = x.new_full((len(parts), length, *x.shape[1:]), fill)
    mask = torch.zeros(len(parts), length, dtype=torch.bool)
    for i, part in enumerate(parts):
        out[i, : len(part)] = part
        mask[i, : len(part)] = True
    return out, mask


def close(actual: Tensor, expected: Tensor, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    import torch

    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


@pytest.fixture(scope="session")
def released() -> Released:
    from hiero.model.released import read_released

    return read_released(FIXTURES / "official_small.pth")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and config.getoption("numprocesses", None):
        share_forkserver()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: at any time one of them waits, for a recording or for another process."""
    return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    gc.freeze()  # what was imported stays; the collector need not look through it again and again


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture
def make(tmp_path):
    """Writes a video into the test's folder."""
    from tests.films import write_video

    return lambda name, *arguments, **options: write_video(tmp_path / name, *arguments, **options)
