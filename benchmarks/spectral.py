"""How much faster is the spectral cut than scikit-learn, and how does it grow to ten hours?

python -m benchmarks.spectral
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor

from hiero.model.spectral import spectral_cut

HOUR = 6750  # nodes of an hour at 16/30 s
TARGET_SPEEDUP = 10  # over scikit-learn, for an hour
TARGET_S, TARGET_GIB = 60, 2  # for ten hours


def make_video(
    num_nodes: int, num_threads: int = 8, width: int = 768, noise: float = 0.6, seed: int = 0, longest: int = 120
) -> tuple[Tensor, Tensor]:
    """Nodes of interleaved threads: stretches of nodes around the direction of their thread.

    Args:
        num_nodes: N.
        num_threads: Number of threads that take turns.
        width: D.
        noise: Length of the noise; directions of threads have length 1.
        seed: Seed of all random numbers.
        longest: Number of nodes in the longest stretch.

    Returns:
        Features (N, D) and threads (N,).
    """
    generator = torch.Generator().manual_seed(seed)
    labels: list[int] = []
    while len(labels) < num_nodes:
        length = int(torch.randint(longest // 6, longest, (), generator=generator))
        labels += [int(torch.randint(num_threads, (), generator=generator))] * length
    truth = torch.tensor(labels[:num_nodes])
    centres = torch.nn.functional.normalize(torch.randn(num_threads, width, generator=generator), dim=1)
    return centres[truth] + noise * torch.randn(num_nodes, width, generator=generator) / width**0.5, truth


def compare_with_sklearn(num_nodes: int = HOUR, num_threads: int = 8) -> None:
    """Speed and agreement of both methods with scikit-learn's spectral clustering."""
    import numpy as np
    from sklearn.cluster import SpectralClustering
    from sklearn.metrics import adjusted_rand_score

    print(f"{num_nodes} nodes (one hour at 16/30 s), {num_threads} threads, {torch.get_num_threads()} cores")
    for kappa, noise in ((0.5, 0.6), (0.05, 0.6), (0.5, 2.0)):
        x, truth = make_video(num_nodes, num_threads, noise=noise)
        begin = time.perf_counter()
        unit = torch.nn.functional.normalize(x, dim=1).numpy()
        affinity = np.exp((unit @ unit.T - 1) / kappa)
        theirs = SpectralClustering(num_threads, affinity="precomputed", random_state=0).fit_predict(affinity)
        sklearn_s = time.perf_counter() - begin
        print(
            f"  κ {kappa}, noise {noise}: scikit-learn {sklearn_s:.2f} s, ARI with truth "
            f"{adjusted_rand_score(truth, theirs):.3f}"
        )
        for method in ("exact", "landmarks"):
            begin = time.perf_counter()
            ours = spectral_cut(x, num_threads, kappa=kappa, method=method)  # type: ignore[arg-type]
            seconds = time.perf_counter() - begin
            met = "met" if sklearn_s / seconds >= TARGET_SPEEDUP else "MISSED"
            print(
                f"    {method:>9} {seconds:6.2f} s, {sklearn_s / seconds:5.1f}x faster, "
                f"ARI with scikit-learn {adjusted_rand_score(theirs, ours):.3f}, "
                f"with truth {adjusted_rand_score(truth, ours):.3f}; target {TARGET_SPEEDUP}x {met}",
                flush=True,
            )


def measure(num_nodes: int) -> None:
    """Seconds and peak memory of one cut, in this process."""
    x, _ = make_video(num_nodes)
    spectral_cut(x[:256], 8, kappa=0.5)  # first-use costs
    before = peak_memory()
    begin = time.perf_counter()
    spectral_cut(x, 8, kappa=0.5)
    seconds = time.perf_counter() - begin
    peak = peak_memory()
    met = "met" if seconds < TARGET_S and peak < TARGET_GIB else "MISSED"
    print(
        f"{num_nodes:6d} nodes  {seconds:6.1f} s  {peak - before:5.2f} GiB more than before, {peak:5.2f} GiB for "
        "the process; "
        f"target {TARGET_S} s, {TARGET_GIB} GiB {met}",
        flush=True,
    )


def peak_memory() -> float:
    """The most memory that this process ever held, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, not inherited from the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 2**20  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure_growth() -> None:
    """Up to ten hours. Each size has its own process, since the peak of memory belongs to a process."""
    print("growth at 1 node a second (each size in its own process)")
    for minutes in (10, 60, 180, 600):
        subprocess.run([sys.executable, "-m", "benchmarks.spectral", str(minutes * 60)], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
    else:
        compare_with_sklearn()
        measure_growth()
