"""The film of `make demo` as the engine reads it, which takes seconds."""

from __future__ import annotations

import json
import shutil

import pytest

from hiero.engine import load
from hiero.storage.files import home
from tests.optional import weights_or_skip
from tests.shared import shared_folder


def make_photographs(folder):
    """Write the film and its truth, and read it into a cache beside them."""
    from examples.photographs import write_film

    truth = write_film(folder / "photographs.mp4", seconds=3)
    (folder / "truth.json").write_text(json.dumps(truth))
    (folder / "home").mkdir()
    (folder / "home" / "weights").symlink_to((home() / "weights").resolve())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HIERO_HOME", str(folder / "home"))
        load().read(folder / "photographs.mp4")


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """The film, its truth, and the video. Nobody may change them."""
    pytest.importorskip("skimage", reason="needs the photographs of scikit-image")
    for name in ("i3d-k400", "dinov2-text", "minilm"):
        weights_or_skip(name)
    folder = shared_folder(tmp_path_factory, "photographs", make_photographs)
    truth = [tuple(row) for row in json.loads((folder / "truth.json").read_text())]
    path = folder / "photographs.mp4"
    # each worker has a home of its own; without this each would read the film, for more than a minute
    shutil.copytree(folder / "home" / "cache", home() / "cache", dirs_exist_ok=True)
    return path, truth, load().read(path)
