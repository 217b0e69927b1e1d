"""Search in a large corpus: synthetic steps, latency and recall of the index against exact search.

python -m benchmarks.corpus [--steps 1000000] [--folder FOLDER]

Steps are drawn around centres (kinds of activity) on the sphere, 200 a video; queries likewise. The table is the one of `hiero
index`, without pictures. Recall: of the 20 nearest by exact search, how many the index gives.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from hiero.corpus.corpus import TABLE, Corpus

WIDTH, KINDS, NOISE, BATCH = 640, 5000, 0.6, 50_000


def steps(rng: np.random.Generator, centres: np.ndarray, first: int, num: int) -> pa.Table:
    x = unit(centres[rng.integers(0, len(centres), num)] + NOISE * rng.standard_normal((num, WIDTH), dtype=np.float32))
    number = first + np.arange(num)
    return pa.table({
        "uid": [f"v{n // 200}\n2\n2.{n % 200}" for n in number],
        "video": [f"v{n // 200}" for n in number],
        "level": pa.array(np.full(num, 2), pa.int32()),
        "step": [f"2.{n % 200}" for n in number],
        "start_s": (number % 200) * 30.0,
        "end_s": (number % 200) * 30.0 + 30.0,
        "thread": pa.array(number % 7, pa.int32()),
        "label": pa.array([None] * num, pa.string()),
        "picture": pa.array([None] * num, pa.binary()),
        "about": [""] * num,
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH),
    })  # fmt: skip


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def run(folder: Path, total: int, num_queries: int = 200, num_exact: int = 30) -> None:
    rng = np.random.default_rng(0)
    centres = unit(rng.standard_normal((KINDS, WIDTH), dtype=np.float32))
    # noise has the length of a centre's own vector times NOISE: kinds overlap
    corpus = Corpus(str(folder), create=True)
    begin = time.perf_counter()
    for first in range(0, total, BATCH):
        rows = steps(rng, centres * np.sqrt(WIDTH), first, min(BATCH, total - first))
        if first == 0:
            corpus._make_table(rows.schema)
        corpus.table.add(rows)
    written = time.perf_counter() - begin
    begin = time.perf_counter()
    corpus.tidy()
    indexed = time.perf_counter() - begin
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(
        f"{total} steps of {WIDTH} numbers: written in {written:.0f} s, indexed in {indexed:.0f} s, {size / 2**30:.1f} GiB on disk"
    )
    queries = unit(
        centres[rng.integers(0, KINDS, num_queries)] * np.sqrt(WIDTH) + NOISE * rng.standard_normal((num_queries, WIDTH))
    )
    spent: dict[str, list[float]] = {"index": [], "exact": []}
    shared = []
    for i, query in enumerate(queries):
        begin = time.perf_counter()
        found = {(hit.video, hit.step) for hit in corpus.search(query, 20)}
        spent["index"].append(time.perf_counter() - begin)
        if i < num_exact:
            begin = time.perf_counter()
            truth = {(hit.video, hit.step) for hit in corpus.search(query, 20, exact=True)}
            spent["exact"].append(time.perf_counter() - begin)
            shared.append(len(found & truth) / len(truth))
    print("| | p50 | p99 |\n|---|---|---|")
    for name, times in spent.items():
        print(f"| {name} | {1e3 * np.median(times):.0f} ms | {1e3 * np.quantile(times, 0.99):.0f} ms |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"recall at 20: {np.mean(shared):.3f} ({num_exact} queries); peak memory {peak:.1f} GiB; table {TABLE}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        run(Path(folder), args.steps)


if __name__ == "__main__":
    main()
