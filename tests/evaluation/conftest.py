"""Models and data of the tests of evaluation; see tests/evaluation/simulated.py."""

from __future__ import annotations

import pytest
import torch

from hiero.engine import load
from hiero.evaluation.own_videos import read_own_cases
from hiero.features.stores import FeatureStore, pack
from hiero.formats.annotations import read_annotations
from tests.evaluation import simulated


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """A small random model; texts are bags of letters."""
    torch.manual_seed(0)
    simulated.save_random_model(tmp_path / "model", num_layers=2)
    simulated.know_texts(monkeypatch, tmp_path / "home", simulated.encode_letters, simulated.TEXTS)
    return load(tmp_path / "model", device="cpu")


@pytest.fixture
def store(tmp_path):
    """Features of the videos that EgoMCQ asks about."""
    for seed, (name, num) in enumerate((("a", 130), ("b", 90), ("c", 3))):
        simulated.save_features(tmp_path / "features", name, num, seed)
    pack(tmp_path / "features", tmp_path / "store", clock=simulated.CLOCK, precision="float32")
    return FeatureStore(tmp_path / "store")


@pytest.fixture
def egoprocel_files(tmp_path):
    """A folder with EgoProceL's annotations and features, and the frame rates."""
    return tmp_path, simulated.write_egoprocel(tmp_path)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Folder of a model in whose space a node that shows a text is that text."""
    return simulated.save_identity_model(tmp_path / "model", monkeypatch)


@pytest.fixture
def data(tmp_path):
    """A folder with features and annotations of one's own videos."""
    return simulated.write_own_videos(tmp_path)


@pytest.fixture
def cases(model, data):
    annotated = read_annotations(data / "steps.json")
    cases, missing, warnings = read_own_cases(load(model, device="cpu"), data / "features", annotated, None)
    assert not missing
    assert not warnings
    return cases
