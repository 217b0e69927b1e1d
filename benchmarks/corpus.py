"""How fast and how exact is a search among a million steps?

python -m benchmarks.corpus [--steps 1000000] [--folder FOLDER]

Synthetic steps are drawn around centres (kinds of activity) on the sphere, 200 per video; queries
likewise. The table is that of `hiero index`, without pictures. Recall is the share of the 20 nearest
steps by exact search that the index finds.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from hiero.corpus.corpus import Corpus
from hiero.corpus.table import STEPS
from hiero.vectors import unit_vectors

WIDTH = 640  # of a vector
NUM_CENTRES = 5000  # kinds of activity
NOISE = 0.6  # centres have the length √WIDTH, so kinds overlap
BATCH_SIZE = 50_000  # steps that are written together
STEPS_PER_VIDEO = 200
STEP_S = 30.0
NUM_THREADS = 7
NUM_HITS = 20


def synthetic_steps(rng: np.random.Generator, centres: np.ndarray, first: int, num_steps: int) -> pa.Table:
    """Rows of the table for steps around centres.

    Args:
        rng: Draws a centre and noise for each step.
        centres: (C, WIDTH), each √WIDTH long.
        first: Number of the first step; it says which video a step is in.
        num_steps: Number of rows.
    """
    chosen = centres[rng.integers(0, len(centres), num_steps)]
    vectors = unit_vectors(chosen + NOISE * rng.standard_normal((num_steps, WIDTH), dtype=np.float32))
    video, position = np.divmod(first + np.arange(num_steps), STEPS_PER_VIDEO)
    return pa.table(
        {
            "uid": [f"v{v}\n2\n2.{i}" for v, i in zip(video, position, strict=True)],
            "video": [f"v{v}" for v in video],
            "level": pa.array(np.full(num_steps, 2), pa.int32()),
            "step": [f"2.{i}" for i in position],
            "start_s": position * STEP_S,
            "end_s": position * STEP_S + STEP_S,
            "thread": pa.array((first + np.arange(num_steps)) % NUM_THREADS, pa.int32()),
            "label": pa.array([None] * num_steps, pa.string()),
            "origin": ["model"] * num_steps,
            "picture": pa.array([None] * num_steps, pa.binary()),
            "about": [""] * num_steps,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
        }
    )


def write_corpus(folder: Path, rng: np.random.Generator, centres: np.ndarray, num_steps: int) -> Corpus:
    """Write and index a corpus of synthetic steps, and print its time and size."""
    corpus = Corpus(str(folder), create=True)
    begin = time.perf_counter()
    for first in range(0, num_steps, BATCH_SIZE):
        rows = synthetic_steps(rng, centres, first, min(BATCH_SIZE, num_steps - first))
        if first == 0:
            corpus.tables.create(STEPS, rows.schema)
        corpus.table.add(rows)
    write_s = time.perf_counter() - begin
    begin = time.perf_counter()
    corpus.optimize()
    index_s = time.perf_counter() - begin
    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(
        f"{num_steps} steps of {WIDTH} numbers: written in {write_s:.0f} s, indexed in {index_s:.0f} s, "
        f"{num_bytes / 2**30:.1f} GiB on disk"
    )
    return corpus


def timed_search(corpus: Corpus, query: np.ndarray, exact: bool) -> tuple[set[tuple[str, str]], float]:
    """The nearest steps as (video, step), and the time of the search in seconds."""
    begin = time.perf_counter()
    hits = {(hit.video, hit.step) for hit in corpus.search(query, NUM_HITS, exact=exact)}
    return hits, time.perf_counter() - begin


def run(folder: Path, num_steps: int, num_queries: int = 200, num_exact: int = 30) -> None:
    """Write a corpus, search in it, and print latencies and recall.

    Args:
        folder: Folder of the corpus.
        num_steps: Size of the corpus.
        num_queries: Number of searches by the index.
        num_exact: Number of these queries that are also searched exactly.
    """
    rng = np.random.default_rng(0)
    centres = unit_vectors(rng.standard_normal((NUM_CENTRES, WIDTH), dtype=np.float32)) * np.sqrt(WIDTH)
    corpus = write_corpus(folder, rng, centres, num_steps)
    queries = unit_vectors(
        centres[rng.integers(0, NUM_CENTRES, num_queries)] + NOISE * rng.standard_normal((num_queries, WIDTH))
    )
    latencies_s: dict[str, list[float]] = {"index": [], "exact": []}
    recalls = []
    for i, query in enumerate(queries):
        approximate, seconds = timed_search(corpus, query, exact=False)
        latencies_s["index"].append(seconds)
        if i < num_exact:
            nearest, seconds = timed_search(corpus, query, exact=True)
            latencies_s["exact"].append(seconds)
            recalls.append(len(approximate & nearest) / len(nearest))
    print("| | p50 | p99 |\n|---|---|---|")
    for name, times_s in latencies_s.items():
        print(f"| {name} | {1e3 * np.median(times_s):.0f} ms | {1e3 * np.quantile(times_s, 0.99):.0f} ms |")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"recall at {NUM_HITS}: {np.mean(recalls):.3f} ({num_exact} queries); peak memory {peak_gib:.1f} GiB; "
        f"table {STEPS}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        run(Path(folder), args.steps)


if __name__ == "__main__":
    main()
