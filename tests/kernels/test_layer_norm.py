from __future__ import annotations

import torch

from hiero.kernels.layer_norm import add_norm
from tests.conftest import close


def test_sum_and_its_norm():
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    norm = torch.nn.LayerNorm(8)
    torch.nn.init.normal_(norm.weight)
    total, normalised = add_norm(x, y, norm)
    close(total, x + y)
    close(normalised, norm(x + y))
    same, normalised = add_norm(x, None, norm)
    close(same, x)
    close(normalised, norm(x))
