"""A small corpus of made feature files."""

from __future__ import annotations

import numpy as np
import pytest

from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.engine import load

SCENES = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
ORDERS = {"a": [0, 1, 2, 3], "b": [4, 1, 5], "it's": [6, 7, 2]}


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HIERO_HOME", str(tmp_path / "home"))


def session(path, order, noise=0.2, seed=0):
    """Features at 1 Hz: half a minute of each scene."""
    rng = np.random.default_rng(seed)
    rows = np.concatenate([SCENES[i] + noise * rng.normal(size=(30, 32)) for i in order])
    np.save(path, rows.astype(np.float32))
    return path


@pytest.fixture
def engine():
    return load("raw")


def index_all(folder, engine):
    corpus = Corpus(str(folder / "corpus"), create=True)
    for name, order in ORDERS.items():
        add_video(corpus, engine, folder / f"{name}.npy", engine.read, IndexSettings([2, len(order)]))
    return corpus


@pytest.fixture
def corpus(tmp_path, engine):
    for seed, (name, order) in enumerate(ORDERS.items(), start=1):
        session(tmp_path / f"{name}.npy", order, seed=seed)
    return index_all(tmp_path, engine)
