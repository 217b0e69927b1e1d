"""A small simulated collection, packed, with text vectors in a cache, so that training needs no encoder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from examples.simulation import World, WorldConfig, bag_of_words, write_sessions
from hiero.config import LossConfig, ModelConfig, TrainConfig
from hiero.features.stores import FeatureStore, pack
from hiero.networks.minilm import MINILM_KEY
from hiero.networks.vector_cache import TextCache
from hiero.training.narrated_windows import NarratedWindows
from hiero.training.narrations import read_narrations


class Collection(NamedTuple):
    store: Path
    narrations: Path
    cache: Path

    def windows(self, window_s: float = 60.0) -> NarratedWindows:
        return NarratedWindows(FeatureStore(self.store), read_narrations(self.narrations), window_s)

    def config(self, **changes) -> TrainConfig:
        model = ModelConfig(
            16,
            16,
            16,
            64,
            gate_size=8,
            radius_s=2.5,
            dropout=0.2,
            standardise=True,
            clock=FeatureStore(self.store).clock,
            **{"num_layers": 1, **changes.pop("model", {})},
        )
        settings = {"epochs": 3, "batch_size": 4, "lr": 1e-2, "warmup_epochs": 1.0, "window_s": 60.0, **changes}
        return TrainConfig(model, LossConfig(alpha=0.5), **settings)


SMALL = [
    "model.hidden_size=16",
    "model.embedding_size=16",
    "model.gate_size=8",
    "model.num_layers=1",
    "window_s=60.0",
    "batch_size=4",
    "lr=0.01",
    "epochs=3",
]


@pytest.fixture(scope="session")
def collection(tmp_path_factory) -> Collection:
    folder = tmp_path_factory.mktemp("collection")
    world = World(WorldConfig(width=16, session_s=200.0))
    features, narrations = write_sessions([world.session(i) for i in range(6)], folder)
    pack(features, folder / "store", clock=world.config.clock)
    texts = sorted({narration.text for narration in read_narrations(narrations)})
    TextCache(MINILM_KEY, folder / "cache").encode(texts, lambda part: bag_of_words(part, 384).numpy())
    return Collection(folder / "store", narrations, folder / "cache")
