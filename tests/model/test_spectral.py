"""The spectral cut: against scikit-learn, its two paths against each other, and the inputs that break clustering."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from benchmarks.spectral import make_video
from hiero.errors import InputError
from hiero.model.normalised_cut import leading_eigenvectors, log_similarity, normalise_similarity
from hiero.model.spectral import embed_by_landmarks, embed_exactly, spectral_cut
from tests.conftest import close


def by_scikit_learn(x: torch.Tensor, num_threads: int, kappa: float) -> np.ndarray:
    unit = torch.nn.functional.normalize(x.double(), dim=1).numpy()
    return SpectralClustering(num_threads, affinity="precomputed", random_state=0).fit_predict(
        np.exp((unit @ unit.T - 1) / kappa)
    )


# Full decomposition, and a few eigenvectors: of these fewer, since they take seconds.
EXACT_CASES = [(300, k, kappa) for k in (2, 5, 9) for kappa in (0.01, 0.02, 0.05, 0.5)]
EXACT_CASES += [(1300, 2, 0.01), (1300, 5, 0.05), (1300, 9, 0.5)]


@pytest.mark.parametrize(("num_nodes", "num_threads", "kappa"), EXACT_CASES)
def test_exact_agrees_with_scikit_learn(kappa, num_threads, num_nodes):
    x, truth = make_video(num_nodes, num_threads, width=64, noise=0.5, longest=12)
    labels = spectral_cut(x, num_threads, kappa=kappa, method="exact")
    assert adjusted_rand_score(by_scikit_learn(x, num_threads, kappa), labels) >= 0.98
    assert adjusted_rand_score(truth, labels) >= 0.98


@pytest.mark.parametrize(("form", "kappa"), [("sklearn", 0.05), ("training", 0.5)])
def test_landmarks_agree_with_exact(kappa, form):
    x, truth = make_video(6000, 6, width=64, noise=0.5)
    exact = spectral_cut(x, 6, kappa=kappa, method="exact", form=form)
    landmarks = spectral_cut(x, 6, kappa=kappa, method="landmarks", form=form)
    assert adjusted_rand_score(exact, landmarks) >= 0.95
    assert adjusted_rand_score(truth, landmarks) >= 0.95


@pytest.mark.parametrize("form", ["sklearn", "training"])
def test_landmarks_on_all_nodes_are_exact(form):
    """With every node a landmark the extension gives back the eigenvectors themselves."""
    x, _ = make_video(200, 4, width=32, longest=12)
    vectors = embed_exactly(x.double(), 4, 0.5, form=form)
    close(embed_by_landmarks(x.double(), 4, 0.5, form=form), vectors, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method", ["exact", "landmarks"])
@pytest.mark.parametrize("form", ["sklearn", "training"])
@given(
    num_nodes=st.integers(1, 12),
    num_threads=st.integers(1, 15),
    kind=st.sampled_from(["random", "equal", "zero", "pairs"]),
    kappa=st.sampled_from([0.01, 0.05, 0.5]),
    seed=st.integers(0, 2**31),
)
def test_anything_gives_labels(method, form, num_nodes, num_threads, kind, kappa, seed):
    """K ≥ N, duplicates, zero vectors."""
    torch.manual_seed(seed)
    x = torch.randn(num_nodes, 4)
    if kind == "equal":
        x = x[:1].repeat(num_nodes, 1)
    if kind == "zero":
        x[::2] = 0
    if kind == "pairs":
        x = x.repeat_interleave(2, dim=0)[:num_nodes]
    labels = spectral_cut(x, num_threads, kappa=kappa, method=method, form=form)
    assert labels.shape == (num_nodes,)
    assert labels.min() == 0
    assert labels[0] == 0
    assert labels.max() < min(num_threads, num_nodes)
    if kind == "random" and num_threads >= num_nodes and kappa >= 0.5:
        assert len(labels.unique()) == num_nodes


def test_many_threads_of_few_nodes():
    """K close to N leaves no room for a few eigenvectors: the whole matrix is decomposed."""
    m, _ = normalise_similarity(log_similarity(torch.randn(1, 520, 16), 0.5, "training"), 0.5)
    values, vectors = leading_eigenvectors(m, 300)
    close(m @ vectors, vectors * values[:, None], rtol=0, atol=1e-4)


def test_the_cut_keeps_no_gradient():
    assert not spectral_cut(torch.randn(9, 3, requires_grad=True), 2).requires_grad


def test_the_same_seed_gives_the_same_threads():
    x = torch.randn(400, 8)  # no structure: the seed decides
    assert spectral_cut(x, 6, random_state=5).equal(spectral_cut(x, 6, random_state=5))
    assert not spectral_cut(x, 6, random_state=5).equal(spectral_cut(x, 6, random_state=6))


def test_beyond_the_memory_budget_landmarks_are_used():
    x = torch.randn(2500, 16)  # no structure: the two methods give different threads
    exact, landmarks = (spectral_cut(x, 8, method=method) for method in ("exact", "landmarks"))
    assert not exact.equal(landmarks)
    assert spectral_cut(x, 8, memory_budget=3 * 4 * 2500**2).equal(exact)
    assert spectral_cut(x, 8, memory_budget=3 * 4 * 2500**2 - 1).equal(landmarks)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spectral_cut(torch.zeros(0, 3), 2), "without empty dimensions"),
        (lambda: spectral_cut(torch.zeros(3), 2), r"\(N, D\)"),
        (lambda: spectral_cut(torch.zeros(4, 3), 0), "num_threads must be at least 1"),
        (lambda: spectral_cut(torch.zeros(4, 3), "auto"), "num_threads must be at least 1"),
        (lambda: spectral_cut(torch.full((4, 3), torch.nan), 2), "finite floating-point numbers"),
        (lambda: spectral_cut(torch.zeros(4, 3).long(), 2), "finite floating-point numbers"),
        (lambda: spectral_cut(torch.ones(4, 3), 2, kappa=0.0), "kappa must be positive"),
        (lambda: spectral_cut(torch.ones(4, 3), 2, method="magic"), "method must be one of"),
        (lambda: spectral_cut(torch.ones(4, 3), 2, form="plain"), "form must be one of"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
