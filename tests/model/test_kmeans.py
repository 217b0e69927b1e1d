"""K-Means against scikit-learn, and what makes it the same everywhere."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from hiero.model.kmeans import kmeans, renumber, uniform_hash


@given(st.integers(5, 60), st.integers(1, 5), st.integers(0, 2**31))
def test_kmeans_is_as_tight_as_scikit_learn(num_points, num_clusters, seed):
    torch.manual_seed(seed)
    points = torch.randn(num_points, 2, dtype=torch.float64)

    def inertia(labels):
        return sum(float((points[labels == c] - points[labels == c].mean(0)).square().sum()) for c in labels.unique())

    ours = kmeans(points[None], num_clusters, num_restarts=16)[0]
    theirs = torch.as_tensor(KMeans(num_clusters, n_init=10, random_state=0).fit_predict(points.numpy()))
    assert inertia(ours) <= 1.25 * inertia(theirs) + 1e-9


def test_kmeans_without_early_stop_is_the_same():
    points = torch.randn(4, 32, 4)
    without_early_stop = kmeans(points, 4, num_iterations=60, early_stop=False)
    assert kmeans(points, 4, num_iterations=60).equal(without_early_stop)


def test_masked_points_do_not_count():
    """They get −1, and the others the labels that they have without them."""
    points = torch.cat([torch.randn(2, 20, 3), torch.full((2, 5, 3), 100.0)], 1)
    mask = (torch.arange(25) < 20).expand(2, 25)
    labels = kmeans(points, 3, mask=mask)
    assert labels[:, :20].equal(kmeans(points[:, :20], 3))
    assert labels[:, 20:].eq(-1).all()


def test_random_numbers_are_spread_and_seeded():
    numbers = uniform_hash(200, 50, random_state=1, device=torch.device("cpu"))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    assert abs(numbers.std() - 12**-0.5) < 0.01
    assert not numbers.equal(uniform_hash(200, 50, random_state=2, device=torch.device("cpu")))


def test_renumber_by_first_appearance():
    labels = torch.tensor([[3, 3, 1, 0, 1], [2, 0, 2, 3, 3]])
    mask = torch.tensor([[True] * 5, [True, True, True, False, False]])
    assert renumber(labels, 4, mask).tolist() == [[0, 0, 1, 2, 1], [0, 1, 0, -1, -1]]
