"""Leading eigenvectors, by full decomposition and by products alone."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.spectral import make_video
from hiero.model.normalised_cut import dense_eigenvectors, krylov_eigenvectors, log_similarity, normalise_similarity
from tests.conftest import close


@given(st.integers(1, 20), st.integers(0, 2**31))
def test_by_full_decomposition(size, seed):
    torch.manual_seed(seed)
    a = torch.randn(3, size, size, dtype=torch.float64)
    a = a + a.mT
    values, vectors = dense_eigenvectors(a, max(1, size // 2))
    close(a @ vectors, vectors * values[:, None], rtol=1e-8, atol=1e-8)
    assert (values.diff(dim=1) <= 0).all()


@pytest.mark.parametrize("kappa", [0.02, 0.1, 1.0])
def test_without_decomposing_the_matrix(kappa):
    """Crowded eigenvalues (small κ, almost separate pieces) included."""
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
