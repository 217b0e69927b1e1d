"""A small world to serve: two short videos read by a small random EgoVLP, their corpus, a second
model, and annotations.
"""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from hiero.config import ModelConfig
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.engine import load
from hiero.model.hiero import HiERO
from hiero.serve.library import open_library
from hiero.storage import weights
from hiero.storage.cache import content_key
from hiero.types import Clock
from tests.films import write_video
from tests.networks.released import egovlp_with_words
from tests.optional import skip_without, weights_or_skip
from tests.shared import shared_folder
from tests.waiting import PATIENCE_S

skip_without("transformers", "needs transformers: pip install 'hiero-video[text]'")
skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
skip_without("fastapi", "needs FastAPI: pip install 'hiero-video[serve]'")


def write_scenes(path, order, seconds=6):
    """A video of scenes, each a colour with a square that wanders; scenes of one number look alike."""
    rng = np.random.default_rng(1)
    colours = [rng.integers(30, 220, 3) for _ in range(8)]
    frames = []
    for scene in order:
        for i in range(10 * seconds):
            frame = np.full((120, 160, 3), colours[scene], dtype=np.uint8)
            left = 10 + (i * 2) % 110
            frame[40:80, left : left + 30] = 255 - colours[scene]
            frames.append(frame)
    return write_video(path, [0] * len(frames), pictures=frames, fps=10, options={"crf": "28", "g": "10"})


def make_world(root):
    """Weights, a model, and videos, two of which have been read into the cache."""
    minilm = weights_or_skip("minilm")
    (root / "home" / "weights").mkdir(parents=True)
    (root / "home" / "weights" / "minilm").symlink_to(minilm)
    sizes = {"input_size": 256, "hidden_size": 32, "embedding_size": 16, "text_size": 384, "gate_size": 8}
    config = ModelConfig(**sizes, num_layers=1, backbone="egovlp", clock=Clock(30, 16))
    HiERO(config).save_pretrained(root / "model")
    videos = [write_scenes(root / "tea.mp4", [0, 1, 2, 0, 3]), write_scenes(root / "bike.mp4", [4, 1, 5, 3])]
    write_scenes(root / "new.mp4", [6, 7], 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIERO_HOME", str(root / "home"))
        weights.get("egovlp", source=egovlp_with_words(root / "egovlp.pth", patch=32)[0])
        for path in videos:
            load("egovlp", device="cpu").read(path)


@pytest.fixture(scope="package")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("worlds") / "world"
    shutil.copytree(shared_folder(tmp_path_factory, "world", make_world), root, symlinks=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIERO_HOME", str(root / "home"))
        videos = [root / "tea.mp4", root / "bike.mp4"]
        engine = load("egovlp", device="cpu")
        corpus = Corpus(str(root / "corpus"), create=True)
        for path in videos:
            settings = IndexSettings(labels=["pour the tea", "wash a cup", "mend the tyre", "ride away"])
            add_video(corpus, engine, path, engine.read, settings)
        scenes = enumerate([0, 1, 2, 0, 3])
        steps = [{"start_s": 6.0 * i, "end_s": 6.0 * i + 6, "text": f"scene {scene}"} for i, scene in scenes]
        (root / "truth.json").write_text(json.dumps({"tea": {"steps": steps}}))
        yield SimpleNamespace(root=root, engine=engine, corpus=corpus, videos=videos)


def connect(library, settings=None, state=None, **options):
    """A client of a server with this library."""
    from fastapi.testclient import TestClient

    from hiero.serve.app import create_app

    app = create_app(library, settings, state)
    return TestClient(app, **{"base_url": "http://localhost", **options})


@pytest.fixture
def client(library):
    with connect(library) as client:
        yield client


@pytest.fixture
def tea(library):
    return library.find_by_name("tea").id


@pytest.fixture
def library(world):
    library = open_library([str(world.root / "corpus")], world.engine, world.root / "truth.json")
    library.add(world.root / "new.mp4")
    yield library
    for entry in library.entries.values():
        if library.edits.exists(entry):
            library.edits.delete(entry)
            library.update_corpus(entry, PATIENCE_S)
    for cached in (world.root / "home" / "cache").glob(f"*/{content_key(world.root / 'new.mp4')}*"):
        cached.unlink()  # for the next test, it has not been processed
