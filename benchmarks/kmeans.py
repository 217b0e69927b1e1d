"""K-Means on a CPU, ours against scikit-learn's: the same points, clusters, restarts and greedy k-means++ seeding.

    python -m benchmarks.kmeans [--threads 1 2] [--repeats 3]

`cut` has the shape of the spectral cut's embedding (as many columns as clusters), `features` that of a video's nodes.
Points are drawn around as many centres as clusters and follow each other in runs, as those of a video do.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from hiero.model.kmeans import kmeans
from hiero.model.spectral import KMEANS_ITERATIONS, KMEANS_RESTARTS

CASES = {
    "cut, 10 minutes": (600, 10, 10),
    "cut, 1 hour": (3_600, 20, 20),
    "cut, 10 hours": (36_000, 20, 20),
    "features, 30 minutes": (1_800, 768, 20),
    "features, 3 hours": (10_800, 768, 20),
}


def make_points(num_points: int, width: int, num_clusters: int, noise: float = 1.5) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((num_clusters, width))
    cluster = rng.integers(num_clusters, size=-(-num_points // 20)).repeat(20)[:num_points]
    return (centres[cluster] + noise * rng.standard_normal((num_points, width))).astype(np.float32)


def run_ours(points: np.ndarray, num_clusters: int) -> np.ndarray:
    settings = {"num_restarts": KMEANS_RESTARTS, "num_iterations": KMEANS_ITERATIONS}
    return kmeans(torch.from_numpy(points)[None], num_clusters, **settings)[0].numpy()


def run_sklearn(points: np.ndarray, num_clusters: int) -> np.ndarray:
    # tol=0: until nothing moves, as ours
    return (
        KMeans(num_clusters, n_init=KMEANS_RESTARTS, max_iter=KMEANS_ITERATIONS, tol=0, random_state=0)
        .fit(points)
        .labels_
    )


def inertia(points: np.ndarray, labels: np.ndarray) -> float:
    """Sum of squared distances to the means of clusters."""
    return float(sum(((points[labels == k] - points[labels == k].mean(0)) ** 2).sum() for k in np.unique(labels)))


def timed(run: Callable[[], np.ndarray], num_repeats: int) -> tuple[float, np.ndarray]:
    """Seconds of the fastest run."""
    labels, seconds = run(), float("inf")
    for _ in range(num_repeats):
        start_s = time.perf_counter()
        labels = run()
        seconds = min(seconds, time.perf_counter() - start_s)
    return seconds, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    print("| points | threads | ours | scikit-learn | times faster | inertia, ours / scikit-learn |")
    print("|---|---|---|---|---|---|")
    for name, (num_points, width, num_clusters) in CASES.items():
        points = make_points(num_points, width, num_clusters)
        for num_threads in args.threads:
            torch.set_num_threads(num_threads)
            with threadpool_limits(num_threads):
                ours_s, ours = timed(lambda points=points, k=num_clusters: run_ours(points, k), args.repeats)
                theirs_s, theirs = timed(lambda points=points, k=num_clusters: run_sklearn(points, k), args.repeats)
            ratio = inertia(points, ours) / inertia(points, theirs)
            print(
                f"| {name} ({num_points}, {width}), {num_clusters} clusters | {num_threads} | {1e3 * ours_s:.0f} ms | "
                f"{1e3 * theirs_s:.0f} ms | {theirs_s / ours_s:.1f} | {ratio:.4f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
