"""The spectral cut against scikit-learn on one hour of nodes, and how it grows to ten hours. One run, one machine.

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


def make_video(
    num: int, num_threads: int = 8, width: int = 768, noise: float = 0.6, seed: int = 0, longest: int = 120
) -> tuple[Tensor, Tensor]:
    """Nodes of interleaved threads: stretches of up to `longest` nodes, each of one thread, around that thread's direction."""
    generator = torch.Generator().manual_seed(seed)
    labels: list[int] = []
    while len(labels) < num:
        length = int(torch.randint(longest // 6, longest, (), generator=generator))
        labels += [int(torch.randint(num_threads, (), generator=generator))] * length
    truth = torch.tensor(labels[:num])
    centres = torch.nn.functional.normalize(torch.randn(num_threads, width, generator=generator), dim=1)
    return centres[truth] + noise * torch.randn(num, width, generator=generator) / width**0.5, truth


def against_sklearn(num: int = 6750, num_threads: int = 8) -> None:
    import numpy as np
    from sklearn.cluster import SpectralClustering
    from sklearn.metrics import adjusted_rand_score

    print(f"{num} nodes (one hour at 16/30 s), {num_threads} threads, {torch.get_num_threads()} cores")
    for kappa, noise in ((0.5, 0.6), (0.05, 0.6), (0.5, 2.0)):
        x, truth = make_video(num, num_threads, noise=noise)
        begin = time.perf_counter()
        unit = torch.nn.functional.normalize(x, dim=1).numpy()
        affinity = np.exp((unit @ unit.T - 1) / kappa)
        theirs = SpectralClustering(num_threads, affinity="precomputed", random_state=0).fit_predict(affinity)
        reference = time.perf_counter() - begin
        print(
            f"  κ {kappa}, noise {noise}: scikit-learn {reference:.2f} s, ARI with truth {adjusted_rand_score(truth, theirs):.3f}"
        )
        for method in ("exact", "landmarks"):
            begin = time.perf_counter()
            ours = spectral_cut(x, num_threads, kappa=kappa, method=method)  # type: ignore[arg-type]
            seconds = time.perf_counter() - begin
            print(
                f"    {method:>9} {seconds:6.2f} s, {reference / seconds:5.1f}x faster, "
                f"ARI with scikit-learn {adjusted_rand_score(theirs, ours):.3f}, "
                f"with truth {adjusted_rand_score(truth, ours):.3f}; target 10x {'met' if reference / seconds >= 10 else 'MISSED'}",
                flush=True,
            )


def alone(num: int) -> None:
    """One size in this process; prints seconds and the most memory that the process ever held above its start."""
    x, _ = make_video(num)
    spectral_cut(x[:256], 8, kappa=0.5)  # first-use costs
    before = peak_memory()
    begin = time.perf_counter()
    spectral_cut(x, 8, kappa=0.5)
    seconds = time.perf_counter() - begin
    peak = peak_memory()
    met = "met" if seconds < 60 and peak < 2 else "MISSED"
    print(
        f"{num:6d} nodes  {seconds:6.1f} s  {peak - before:5.2f} GiB more than before, {peak:5.2f} GiB for the process; "
        f"target 60 s, 2 GiB {met}",
        flush=True,
    )


def peak_memory() -> float:
    """The most memory that this process ever held, in GiB."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, not inherited from the process that started this one
        return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 2**20  # type: ignore[index]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def growth() -> None:
    print("growth at 1 node a second (each size in its own process)")
    for minutes in (10, 60, 180, 600):
        subprocess.run([sys.executable, "-m", "benchmarks.spectral", str(minutes * 60)], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        alone(int(sys.argv[1]))
    else:
        against_sklearn()
        growth()
