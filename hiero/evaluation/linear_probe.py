"""A linear probe: how well a linear classifier separates classes in a space of features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

MIN_DEVIATION = 1e-6  # added to a feature's deviation: one that never changes is not divided by zero


def fit_probe(
    x: np.ndarray, labels: np.ndarray, num_classes: int, *, weight_decay: float = 1e-3, num_iterations: int = 200
) -> Callable[[np.ndarray], np.ndarray]:
    """Fit multinomial logistic regression on standardised features, by L-BFGS."""
    import torch
    from torch.nn import functional as F

    mean, deviation = x.mean(0), x.std(0) + MIN_DEVIATION
    inputs = torch.from_numpy((x - mean) / deviation).float()
    targets = torch.from_numpy(labels).long()
    weight = torch.zeros(num_classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=num_iterations, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(inputs @ weight.mT + bias, targets) + weight_decay * weight.square().sum() / 2
        loss.backward()
        return loss

    optimizer.step(closure)
    fitted_weight, fitted_bias = weight.detach().numpy(), bias.detach().numpy()
    return lambda features: ((features - mean) / deviation) @ fitted_weight.T + fitted_bias
