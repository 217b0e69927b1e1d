"""What a video costs to index, in time and on disk, when many are in; and what a question costs
when many were asked.

python -m benchmarks.corpus_scale [--videos 2000] [--seconds 600] [--model raw] [--questions 10000]
[--folder FOLDER]

Feature files at 1 Hz, 400 wide, of activities that come back; they are written before the clock
starts, and indexed as by `hiero index`, in one run. Rates are of tenths of the run, so the last
against the first says what the others in the corpus cost. Beside them stands the most that can be:
the same files read and cut into steps, and not indexed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hiero.corpus.corpus import Corpus
from hiero.corpus.indexing import index_files
from hiero.corpus.rows import VideoRows
from hiero.engine import Embedder, Engine, load
from hiero.networks.vector_cache import TextCache
from hiero.storage.files import home

WIDTH = 400  # of a row of features
NUM_SCENES = 20  # kinds of activity
SCENE_S = 20  # of one activity
NOISE = 0.2
NUM_PARTS = 10  # of the run, whose rates are printed
NUM_READ = 20  # files that are only read
TEXT_SIZE = 384
NUM_REPEATS = 50  # of a question


def write_features(folder: Path, num_videos: int, num_rows: int) -> dict[str, Path]:
    """Feature files by name."""
    rng = np.random.default_rng(0)
    scenes = rng.normal(size=(NUM_SCENES, WIDTH)).astype(np.float32)
    files = {}
    for i in range(num_videos):
        order = rng.integers(0, NUM_SCENES, -(-num_rows // SCENE_S)).repeat(SCENE_S)[:num_rows]
        files[f"v{i:06d}"] = folder / f"v{i:06d}.npy"
        np.save(files[f"v{i:06d}"], scenes[order] + NOISE * rng.standard_normal((num_rows, WIDTH), dtype=np.float32))
    return files


def disk_mib(folder: Path) -> float:
    """Size of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def measure_reading(engine: Engine, files: dict[str, Path]) -> float:
    """Files a second that are read and cut into steps; nothing is cached."""
    begin = time.perf_counter()
    for path in files.values():
        engine.read(path, cache=False).steps()
    return len(files) / (time.perf_counter() - begin)


class TimedCorpus(Corpus):
    """A corpus that knows how long its commits took."""

    commit_s = 0.0

    def add_all(self, videos: Sequence[VideoRows], engine: Embedder, again: bool = False) -> int:
        begin = time.perf_counter()
        num_added = super().add_all(videos, engine, again)
        self.commit_s += time.perf_counter() - begin
        return num_added


def measure_indexing(engine: Engine, corpus: TimedCorpus, files: dict[str, Path]) -> None:
    """Index the files, and print the rate, the share of the commits and the size for each part of the run."""
    part_size, num_done, part_begin = max(1, len(files) // NUM_PARTS), 0, time.perf_counter()
    rates: list[float] = []
    print("| videos in | videos a second | commits, ms a video | MiB on disk |\n|---|---|---|---|")

    def progress(_: str) -> None:
        nonlocal num_done, part_begin
        num_done += 1
        if num_done % part_size == 0:
            rates.append(part_size / (time.perf_counter() - part_begin))
            commit_ms = 1e3 * corpus.commit_s / part_size
            print(f"| {num_done} | {rates[-1]:.1f} | {commit_ms:.2f} | {disk_mib(Path(corpus.uri)):.0f} |", flush=True)
            part_begin, corpus.commit_s = time.perf_counter(), 0.0

    begin = time.perf_counter()
    result = index_files(corpus, engine, files, engine.read, progress=progress)
    total_s = time.perf_counter() - begin
    size_mib, stored_mib = disk_mib(Path(corpus.uri)), corpus.table.stats()["total_bytes"] / 2**20
    print(
        f"{result.num_added} videos in {total_s:.0f} s, {result.num_added / total_s:.1f} a second; last part "
        "against first: "
        f"{rates[-1] / rates[0]:.2f}; {corpus.num_videos} videos, {len(corpus)} steps, {size_mib:.0f} MiB on disk for "
        f"{stored_mib:.0f} MiB of rows; {len(corpus.check())} problems"
    )
    begin = time.perf_counter()
    index_files(corpus, engine, files, engine.read)
    print(f"all unchanged: {len(files) / (time.perf_counter() - begin):.0f} files a second")


def measure_questions(folder: Path, num_questions: int) -> None:
    """Print what it costs to look up a question after ten different ones, and after many."""
    rng = np.random.default_rng(0)

    def encode(texts: list[str]) -> np.ndarray:
        return rng.normal(size=(len(texts), TEXT_SIZE))

    def lookup_ms() -> float:
        times_s = []
        for i in range(NUM_REPEATS):
            begin = time.perf_counter()
            TextCache("key", folder).encode([f"question {i % 10}"], encode)
            times_s.append(time.perf_counter() - begin)
        return 1e3 * float(np.median(times_s))

    times_ms = []
    for first, last in ((0, 10), (10, num_questions)):
        for i in range(first, last):
            TextCache("key", folder).encode([f"question {i}"], encode)
        times_ms.append(lookup_ms())
    print(
        f"a question: {times_ms[0]:.2f} ms after 10, {times_ms[1]:.2f} ms after {num_questions}: "
        f"{times_ms[1] / times_ms[0]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--model", default="raw")
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder, fetched = Path(name), home() / "weights"
        os.environ["HIERO_HOME"] = str(folder / "home")  # nothing of an earlier run
        (folder / "home").mkdir()
        (folder / "home" / "weights").symlink_to(fetched)
        (folder / "features").mkdir()
        measure_questions(folder / "text", args.questions)
        files = write_features(folder / "features", args.videos, args.seconds)
        engine = load(args.model)
        rate = measure_reading(engine, dict(list(files.items())[:NUM_READ]))
        print(
            f"{args.videos} files of {args.seconds} rows of {WIDTH} numbers, {args.model}; read only: {rate:.1f} "
            "files a second"
        )
        measure_indexing(engine, TimedCorpus(str(folder / "corpus"), create=True), files)


if __name__ == "__main__":
    main()
