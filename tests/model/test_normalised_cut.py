"""The similarity matrix and the cut of a few samples."""

from __future__ import annotations

import pytest
import torch

from hiero.model import normalised_cut
from hiero.model.normalised_cut import cut_samples, log_similarity, normalise_similarity
from tests.conftest import close


@pytest.mark.parametrize("form", ["sklearn", "training"])
@pytest.mark.parametrize("num_nodes", [40, 700])  # in one piece, and in stripes
def test_normalisation_in_logs_is_the_plain_one(form, num_nodes, monkeypatch):
    """Where neither underflows."""
    x = torch.randn(2, num_nodes, 8, dtype=torch.float64)
    mask = torch.arange(num_nodes) < torch.tensor([[num_nodes], [num_nodes // 2]])
    plain = normalise_similarity(log_similarity(x, 0.1, form, mask), 0.1)
    monkeypatch.setattr(normalised_cut, "MAX_EXPONENT", 0.0)
    for a, b in zip(plain, normalise_similarity(log_similarity(x, 0.1, form, mask), 0.1), strict=True):
        close(a, b, rtol=1e-9, atol=1e-12)


def test_clear_threads_are_separated():
    truth = torch.tensor([[0, 0, 1, 1, 2, 2, 0, 0], [0, 1, 0, 1, 0, 1, 2, 2]])
    x = torch.eye(3, 5)[truth] + 0.01 * torch.randn(2, 8, 5)
    assert cut_samples(x, 3, 0.05, 0).equal(truth)
