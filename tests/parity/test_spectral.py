"""Similarity, Laplacian and threads agree with the release and with scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import adjusted_rand_score

from hiero.model.normalised_cut import log_similarity, normalise_similarity
from hiero.model.spectral import spectral_cut
from hiero.model.unet import sort_positions
from tests.conftest import close, load


@pytest.fixture(scope="module")
def data():
    return load("spectral")


def test_similarity_laplacian_and_eigenvalues(data):
    log_s = log_similarity(data["x"].double()[None], 0.05, "training")
    close(log_s[0].exp(), data["S_safe"], rtol=1e-6, atol=1e-12)
    m, log_degree = normalise_similarity(log_s, 0.05)
    close(log_degree[0].exp(), data["degree_safe"], rtol=1e-6, atol=1e-9)
    laplacian = torch.eye(32, dtype=torch.float64) - m[0]
    close(laplacian, data["laplacian"], rtol=1e-6, atol=1e-7)
    close(torch.linalg.eigvalsh(laplacian), data["eigenvalues"], rtol=1e-6, atol=1e-7)
    close(laplacian.float(), data["reference_laplacian_f32"], atol=1e-6)


def test_separated_threads_and_ranks(data):
    threads = spectral_cut(data["separated/x"], 4, form="training")
    assert adjusted_rand_score(data["separated/partition"], threads) == 1.0
    assert adjusted_rand_score(data["separated/reference_assignments"], threads) == 1.0
    _, rank = sort_positions(threads[None], 4)
    assert rank[0].float().equal(data["separated/rank_in_thread"])


@pytest.mark.parametrize(("kappa", "min_score"), [(0.05, 0.98), (0.5, 0.9)])
@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_scikit_learn(data, kappa, min_score, seed):
    threads = spectral_cut(data["sklearn/x"], 6, kappa=kappa, method="exact", random_state=seed)
    assert adjusted_rand_score(data[f"sklearn/labels_T{kappa}"], threads) >= min_score
