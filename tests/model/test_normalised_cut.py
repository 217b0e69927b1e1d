"""The similarity matrix, its leading eigenvectors, and the cut of a few samples."""

from __future__ import annotations

import pytest
import torch

from benchmarks.spectral import make_video
from hiero.model import normalised_cut
from hiero.model.normalised_cut import (
    cut_samples,
    krylov_eigenvectors,
    log_similarity,
    normalise_similarity,
)
from tests.conftest import close


@pytest.mark.parametrize("form", ["sklearn", "training"])
@pytest.mark.parametrize("num_nodes", [40, 700])  # at once, and in stripes
def test_normalisation_in_logs_is_the_plain_one(form, num_nodes, monkeypatch):
    """Where neither underflows."""
    x = torch.randn(2, num_nodes, 8, dtype=torch.float64)
    plain = normalise_similarity(log_similarity(x, 0.1, form), 0.1)
    monkeypatch.setattr(normalised_cut, "MAX_EXPONENT", 0.0)
    for a, b in zip(plain, normalise_similarity(log_similarity(x, 0.1, form), 0.1), strict=True):
        close(a, b, rtol=1e-9, atol=1e-12)


def test_clear_threads_are_separated():
    truth = torch.tensor([[0, 0, 1, 1, 2, 2, 0, 0], [0, 1, 0, 1, 0, 1, 2, 2]])
    x = torch.eye(3, 5)[truth] + 0.01 * torch.randn(2, 8, 5)
    assert cut_samples(x, 3, 0.05, 0).equal(truth)


@pytest.mark.parametrize("kappa", [0.02, 0.1, 1.0])
def test_without_decomposing_the_matrix(kappa):
    """Crowded eigenvalues (small κ, almost separate components) included."""
    torch.manual_seed(3)
    x, _ = make_video(900, 7, width=24, noise=2.0)
    m, _ = normalise_similarity(log_similarity(x[None], kappa, "training"), kappa)
    values, vectors = krylov_eigenvectors(m[0], 6)
    expected = torch.linalg.eigvalsh(m[0].double()).flip(0)[:6]
    close(values.double(), expected, rtol=0, atol=1e-5)
    close(m[0] @ vectors, vectors * values, rtol=0, atol=3e-4)
    close(vectors.mT @ vectors, torch.eye(6), rtol=0, atol=1e-4)


def test_the_last_block_counts_where_products_run_out(monkeypatch):
    torch.manual_seed(3)
    x, _ = make_video(900, 7, width=24, noise=2.0)
    m, _ = normalise_similarity(log_similarity(x[None], 0.1, "training"), 0.1)
    monkeypatch.setattr("hiero.model.normalised_cut.MAX_PRODUCTS", 2)
    values, vectors = krylov_eigenvectors(m[0], 6)
    close((vectors * (m[0] @ vectors)).sum(0), values, rtol=0, atol=1e-5)
    close(vectors.mT @ vectors, torch.eye(6), rtol=0, atol=1e-4)
