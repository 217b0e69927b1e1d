"""K-Means against scikit-learn and the textbook's, on each of its paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from hiero.model import kmeans as kmeans_module
from hiero.model.kmeans import kmeans, kmeans_of_points, renumber, uniform_hash
from tests.oracle.kmeans import has_seeding_tie, plain_kmeans


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


def test_random_numbers_are_spread_and_seeded():
    numbers = uniform_hash(200, 50, random_state=1, device=torch.device("cpu"))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    assert abs(numbers.std() - 12**-0.5) < 0.01
    assert not numbers.equal(uniform_hash(200, 50, random_state=2, device=torch.device("cpu")))


def test_renumber_by_first_appearance():
    labels = torch.tensor([[3, 3, 1, 0, 1], [2, 0, 2, 3, 3]])
    assert renumber(labels, 4).tolist() == [[0, 0, 1, 2, 1], [0, 1, 0, 2, 2]]


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    return len({*zip(a.tolist(), b.tolist(), strict=True)}) == len(set(a.tolist())) == len(set(b.tolist()))


@given(st.integers(8, 60), st.integers(1, 6), st.integers(1, 9), st.integers(0, 2**31))
@settings(max_examples=60)
def test_clusters_are_those_of_the_plain_algorithm(num_points, num_clusters, width, seed):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(num_points, width)).astype(np.float32)
    numbers = rng.random((num_clusters, 3, 2), dtype=np.float32)
    assume(not has_seeding_tie(points, numbers))
    expected, inertia = plain_kmeans(points, num_clusters, numbers, 50)
    labels = kmeans_of_points(points, num_clusters, numbers, 50)
    ours = sum(((points[labels == k] - points[labels == k].mean(0)) ** 2).sum() for k in set(labels.tolist()))
    # Two restarts may end equally well: then either is right.
    assert same_partition(labels, expected) or ours == pytest.approx(inertia, rel=1e-5)


@pytest.mark.parametrize("num_clusters", [3, 40])
def test_a_video_alone_is_clustered_as_in_a_batch(num_clusters, monkeypatch):
    points = torch.randn(2, 300, 64, generator=torch.Generator().manual_seed(0)) + torch.randn(2, 1, 64) * 0.1
    fast = kmeans(points, num_clusters)
    monkeypatch.setattr(kmeans_module, "MIN_POINTS_PER_VIDEO", 10**9)
    assert fast.equal(kmeans(points, num_clusters))


@given(st.integers(8, 80), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=25)
def test_restarts_together_end_where_each_does_alone(num_points, num_clusters, num_restarts, seed):
    """Also with repeated points, and if restarts end at different steps or none has time to end."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(num_points, 3)).astype(np.float32)[rng.integers(0, num_points, num_points)]
    numbers = rng.random((num_clusters, num_restarts, 2), dtype=np.float32)
    for num_iterations in (1, 3, 50):
        together = kmeans_of_points(points, num_clusters, numbers, num_iterations)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kmeans_module, "MAX_TABLE_SIZE", 1)
            assert (kmeans_of_points(points, num_clusters, numbers, num_iterations) == together).all()


def test_fewer_different_points_than_clusters():
    points = np.repeat(np.eye(4, dtype=np.float32)[:3], 100, axis=0)
    labels = kmeans_of_points(points, 5, np.random.default_rng(0).random((5, 2, 3), dtype=np.float32), 20)
    assert [len(set(labels[i : i + 100].tolist())) for i in (0, 100, 200)] == [1, 1, 1]
    assert len(set(labels.tolist())) == 3


def test_restarts_that_share_the_cores_give_the_same_clusters(monkeypatch):
    monkeypatch.setattr(kmeans_module, "MIN_SHARED_SIZE", 1)
    rng = np.random.default_rng(0)
    points, numbers = rng.normal(size=(500, 8)).astype(np.float32), rng.random((6, 5, 3), dtype=np.float32)
    num_threads = torch.get_num_threads()
    alone = kmeans_of_points(points, 6, numbers, 50)
    assert (kmeans_of_points(points, 6, numbers, 50, num_workers=3) == alone).all()
    assert torch.get_num_threads() == num_threads
