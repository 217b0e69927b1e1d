"""Where tests run kernels of Triton: on a GPU, or without one with TRITON_INTERPRET=1 and Triton installed."""

from __future__ import annotations

import os

import pytest
import torch

from hiero.model.triton_support import HAS_TRITON

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
TRITON_MARKS = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_TRITON or not (DEVICE == "cuda" or INTERPRETED), reason="needs a CUDA GPU"),
]
