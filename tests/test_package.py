"""The package from outside: light to import, few public names, and the method alone with torch, numpy and scipy."""

from __future__ import annotations

import subprocess
import sys
import time

import hiero


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    begin = time.perf_counter()
    loaded = run("import sys, hiero; print(any(m in sys.modules for m in ('torch', 'numpy', 'huggingface_hub', 'rich')))")
    assert loaded.strip() == "False"
    assert time.perf_counter() - begin < 2  # the whole process on a busy machine; the import itself takes about 0.02 s


def test_public_names():
    assert hiero.__all__ == [
        "Answer", "Backbone", "Batch", "Behaviour", "Clock", "Corpus", "Embedder", "Engine", "Exporter", "HiERO", "Hierarchy",
        "Hit", "IndexedVideo", "InputError", "Level", "LossConfig", "Losses", "Match", "ModelConfig", "Narration", "ProgressEvent",
        "Released", "Step", "TextConfig", "TrainConfig", "Video", "VideoFeatures", "Window", "collate", "embed_features", "load",
        "read_features", "read_released", "spectral_cut",
    ]  # fmt: skip
    for name in hiero.__all__:
        assert getattr(hiero, name).__doc__
    assert set(hiero.__all__) <= set(dir(hiero))


def test_the_method_needs_only_torch_numpy_scipy():
    """Everything else that the project installs is blocked."""
    run(
        """
import sys
for name in ("huggingface_hub", "safetensors", "sklearn", "cyclopts", "rich", "transformers", "av", "lightning", "omegaconf"):
    sys.modules[name] = None
import torch
from hiero.config import LossConfig, ModelConfig
from hiero.model.hiero import HiERO
import hiero.model.released, hiero.model.embed, hiero.training.captured_step
model = HiERO(ModelConfig(input_size=4, hidden_size=8, embedding_size=4, text_size=4))
levels = model.train()(torch.randn(2, 40, 4))
model.losses(levels, torch.randn(2, 3, 4), torch.rand(2, 3) * 20, torch.ones(2, 3, dtype=torch.bool), LossConfig()).total.backward()
"""
    )
