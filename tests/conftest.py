"""Shared fixtures: the parity files of the release, and helpers to pad them."""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

# workers share the cores, and so do their children
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import pytest
from hypothesis import HealthCheck, settings

from hiero.storage.files import home
from tests.optional import summarise_skipped
from tests.processes import end_programs

# torch is imported where it is used: the process that starts the workers loads this file before it
# starts any
if TYPE_CHECKING:
    from torch import Tensor

    from hiero.model.released import Released

FIXTURES = Path(__file__).parent / "fixtures"
HOME = pytest.StashKey[Path]()
# Modules of many seconds begin first, so that none is left alone at the end; before all those that
# wait more than compute.
LONG_MODULES = (
    "engine/test_photographs.py",
    "features/test_collection.py",
    "browser/test_video.py",
    "test_notebooks.py",
    "browser/test_collection.py",
    "engine/test_engine.py",
    "serve/test_server.py",
    "corpus/test_s3.py",
    "fuzz/test_fuzz.py",
    "evaluation/test_case_processes.py",
    "storage/test_weights.py",
    "training/test_processes.py",
    "test_package.py",
    "serve/test_api.py",
    "training/test_loop.py",
    "evaluation/heads/test_training.py",
    "browser/test_people.py",
    "corpus/test_corpus.py",
    "engine/test_speech.py",
    "training/test_captured_step.py",
    "cli/test_cli.py",
    "evaluation/test_reproduction.py",
    "corpus/test_adaptation.py",
    "test_docs.py",
    "deploy/test_signed_in_by_a_proxy.py",
    "networks/test_i3d_int8.py",
    "test_docstrings.py",
    "media/test_cutting.py",
    "examples/test_figures.py",
)

settings.register_profile("hiero", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hiero")


def load(name: str) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(FIXTURES / f"{name}.safetensors")


def load_json(name: str):
    return json.loads((FIXTURES / f"{name}.json").read_text())


@pytest.fixture(autouse=True)
def forget_edits():
    """Corrected steps are stored by the content of a video, and tests use the same contents."""
    yield
    shutil.rmtree(home() / "edits", ignore_errors=True)


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
        config.option.loadscopereorder = False  # see pytest_collection_modifyitems
    config.stash[HOME] = _make_home()
    gc.disable()  # until all tests are collected, which takes a tenth less: what they import stays


def pytest_unconfigure(config: pytest.Config) -> None:
    end_programs()
    shutil.rmtree(config.stash[HOME], ignore_errors=True)


def _make_home() -> Path:
    """An empty home of hiero for this process alone: nothing that an earlier run or another worker
    has cached decides a test. Only weights are shared, as they are on the machine.
    """
    shared = Path(os.environ.pop("HIERO_WEIGHTS", "") or home() / "weights")
    folder = Path(tempfile.mkdtemp(prefix="hiero-tests-"))
    shared.mkdir(parents=True, exist_ok=True)
    (folder / "weights").symlink_to(shared.resolve())
    os.environ["HIERO_HOME"] = str(folder)
    return folder


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """More workers than cores: at any time some of them wait, for a recording, a browser or another process."""
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(4, num_cores + 1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        places = {FIXTURES.parent / name: place for place, name in enumerate(LONG_MODULES)}
        items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    gc.freeze()  # the collector need not look through what was imported again and again
    gc.enable()


def pytest_terminal_summary(terminalreporter) -> None:
    reports = terminalreporter.stats.get("skipped", [])
    if reports:
        terminalreporter.write_line(summarise_skipped(report.longrepr[2] for report in reports))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture
def make(tmp_path):
    """Writes a video into the test's folder."""
    from tests.films import write_video

    return lambda name, *arguments, **options: write_video(tmp_path / name, *arguments, **options)


@pytest.fixture
def brightness(monkeypatch):
    """An engine whose backbone, the example of a plug-in, gives the mean colour of each second without weights."""
    from hiero import load, plugins
    from hiero.networks import registry
    from tests.fixtures.plugin.hiero_example_plugin import BRIGHTNESS

    monkeypatch.setitem(plugins.SCRIPT_PLUGINS["hiero.backbones"], "brightness", BRIGHTNESS)
    yield load("brightness", device="cpu")
    registry.backbones.cache_clear()  # which may list it
