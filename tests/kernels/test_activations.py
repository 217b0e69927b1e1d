from __future__ import annotations

import torch

from hiero.kernels.activations import quick_gelu
from tests.conftest import close


def test_quick_gelu():
    x = torch.linspace(-4, 4, 50)
    close(quick_gelu(x.clone()), x / (1 + torch.exp(-1.702 * x)))
    close(quick_gelu(x.clone()), torch.nn.functional.gelu(x), rtol=0, atol=0.03)  # which it approximates
