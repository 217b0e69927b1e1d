"""The examples in the docstrings of hiero.model run and show what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

from tests.conftest import FIXTURES


@pytest.mark.parametrize("name", ["embed", "hiero", "pretrained", "released", "spectral", "unet"])
def test_examples(name):
    module = importlib.import_module(f"hiero.model.{name}")
    result = doctest.testmod(module, extraglobs={"checkpoint": FIXTURES / "official_small.pth"})
    assert result.attempted > 0
    assert result.failed == 0
