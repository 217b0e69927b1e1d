"""A linear probe: how well classes can be told apart by a plane in a space of features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def fit_probe(
    x: np.ndarray, labels: np.ndarray, num_classes: int, *, decay: float = 1e-3, num_steps: int = 200
) -> Callable[[np.ndarray], np.ndarray]:
    """Multinomial logistic regression on standardised features x (N, D), by L-BFGS: a function from (M, D) to scores (M, C)."""
    import torch
    from torch.nn import functional as F

    mean, deviation = x.mean(0), x.std(0) + 1e-6
    inputs = torch.from_numpy((x - mean) / deviation).float()
    truth = torch.from_numpy(labels).long()
    weight = torch.zeros(num_classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=num_steps, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = F.cross_entropy(inputs @ weight.mT + bias, truth) + decay * weight.square().sum() / 2
        found.backward()
        return found

    optimizer.step(loss)
    plane, offset = weight.detach().numpy(), bias.detach().numpy()
    return lambda other: ((other - mean) / deviation) @ plane.T + offset
