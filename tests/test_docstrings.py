"""The examples in the docstrings of the public names run."""

from __future__ import annotations

import doctest
from importlib import import_module

import numpy as np
import pytest
import torch

import hiero
from tests.conftest import FIXTURES
from tests.optional import weights_or_skip

MODULES = sorted({getattr(hiero, name).__module__ for name in hiero.__all__})
EXAMPLES = {
    test.name: test
    for module in MODULES
    for test in doctest.DocTestFinder(exclude_empty=True).find(import_module(module), module)
    if test.examples
}
ANSWERING = ("Video.ask", "Video.follow", "Video.label")  # their examples need a text encoder


@pytest.fixture
def names(tmp_path):
    """What examples may use: modules, a file with features, a video."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "tea.npy", rng.normal(size=(120, 16)).astype(np.float32))
    video = hiero.load("raw").read_array(np.load(tmp_path / "tea.npy"))
    checkpoint = FIXTURES / "official_small.pth"
    files = {"feature_file": tmp_path / "tea.npy", "checkpoint": checkpoint}
    return {"hiero": hiero, "np": np, "torch": torch, "video": video, **files}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, names, monkeypatch, tmp_path):
    if name.endswith(ANSWERING):
        weights_or_skip("minilm")
        scores = np.random.default_rng(0).normal(0, 2, (120, 400)).astype(np.float32)
        names["text_video"] = hiero.load("hiero-k400", device="cpu").read_array(scores)
    monkeypatch.chdir(tmp_path)
    test = EXAMPLES[name]
    test.globs = {**test.globs, **names}
    output: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        test, out=output.append
    )
    assert not results.failed, "".join(output)
