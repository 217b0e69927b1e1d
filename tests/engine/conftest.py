"""The film of `make demo` as the engine reads it, which takes seconds."""

from __future__ import annotations

import pytest

from hiero.engine import load
from hiero.errors import InputError
from hiero.storage import weights


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """The film, its truth, and the video. Nobody may change them."""
    pytest.importorskip("skimage", reason="needs the photographs of scikit-image")
    from examples.photographs import write_film

    try:
        for name in ("i3d-k400", "dinov2-text", "minilm"):
            weights.get(name)
    except InputError as error:
        pytest.skip(f"weights cannot be fetched here: {error}")
    path = tmp_path_factory.mktemp("photographs") / "photographs.mp4"
    truth = write_film(path, seconds=6)
    return path, truth, load(backbone="default").read(path)
