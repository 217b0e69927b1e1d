"""Pictures and clips for `benchmarks.words_train`: out of clones of their repositories, into packs.

    python -m benchmarks.words_data pack WORK --clones CLONES --pairs PAIRS [--dev CLIPS]    (30 minutes on 2 cores)

CLONES holds a clone owner+name/repo of each repository below, PAIRS the texts (see `benchmarks.words_texts`),
and CLIPS the videos of `benchmarks.words score`. A source without a clone is left out.

Pictures are squashed to squares and packed as WebP, which loses what a video codec loses. A pack is
a file of pictures one after the other, beside a .json with [name, offset, size] of each. Nothing of
this goes into the project.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import math
import multiprocessing
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.words_score import CAPTIONS
from benchmarks.words_texts import read_texts
from hiero.networks import dinov2
from hiero.networks.registry import IMAGENET, normalise

SIZE = 224
CLIP_SIZE = (288, 216)  # of frames of EGTEA Gaze+, which are 4:3
QUALITY = 40  # of WebP
PACK_BYTES = 54 * 2**20
NUM_FRAMES = 6  # of a clip
NUM_VIEWS = 5  # of `make_view`
IN_MEMORY = 512  # files that are read ahead
Blob = tuple[str, str]  # the hash of a file and its name


@dataclass(frozen=True)
class Source:
    """Where files are: a clone CLONES/owner+name/repo, a commit, a path in it; and the file with texts."""

    clone: str
    commit: str
    path: str = ""
    texts: str = ""
    flat_names: bool = False
    """Names in the file with texts are paths with `_` for `/`."""

    @property
    def repository(self) -> str:
        """owner/name."""
        return self.clone.replace("+", "/")


SOURCES = {
    "coco": Source(
        "hai4h+cnn-edge-detection", "a2978a7048f2cde061a0d0d66ce2dcc576647857", "train2017", "coco_captions.tsv.gz"
    ),
    "flickr8k": Source(
        "RlNZLER+Image-Text-Matching",
        "56a15d913c3f290e2ee896386ece6076c1eea02e",
        "data/images",
        "flickr8k_captions.tsv.gz",
    ),
    "stanford40": Source(
        "dicky1207+dashboard_stanford40",
        "57503389fa5b687353782d1c9331c55115eed8c8",
        "stanford40",
        "stanford40_captions.tsv.gz",
    ),
    "grocery": Source(
        "marcusklasson+GroceryStoreDataset",
        "fc80ba90f803d79d0383df52c5a4ac5de99ff6fc",
        "dataset",
        "grocery_captions.tsv.gz",
        flat_names=True,
    ),
}
EGTEA_CLIPS = Source("tp6y30TP6Y30+dlcv2019_hw4", "db8419f2c973a99ea2982e659c71c9556e55a84a", "hw4_data/TrimmedVideos")
EGTEA_VIDEOS = replace(EGTEA_CLIPS, path="hw4_data/FullLengthVideos/videos/train")
EGTEA_VERBS = Source("fpv-iplab+rulstm", "57842b27d6264318be2cb0beb9e2f8c2819ad9bc", "RULSTM/data/egtea")
VERB_FRAMES_PER_S = 30  # of the times in these tables
SAME_CLIP = 0.8  # intersection over union of the times of a clip in both tables
HOUSEHOLD = {  # with how many pictures are used of each
    Source("MiguelARD+DoorDetect-Dataset", "1db107fe1b808fc5712f898b35bde0976ba0c0af"): 2000,
    Source("IvonaTau+ikea", "6f316e3fecf8ce95069eaef5f2021405c536168a"): 3000,
    Source("MachineLearning2020+Homework2-Caltech101", "836044dd000296b2bb74d0aa4b4e462e459b01d7"): 3600,
    Source("EliSchwartz+imagenet-sample-images", "bc69043e2862758a1906c6a24a792bb28c6bb2ff"): 1000,
    Source("GaeaStorm+Food-Detector", "ff1a49efb1b0bf20d43ef0280ed76d8848c3ae16"): 4000,
}
HOUSEHOLD_TEXTS = "household_texts.json"
MORE_VERBS_FILE = "egtea_verbs.json"


# Clones


def list_files(repository: Path, source: Source) -> list[Blob]:
    """(hash, path) of each file of a source."""
    command = ["git", "-c", "core.quotepath=off", "-C", repository, "ls-tree", "-r", source.commit]
    command += [source.path] if source.path else []
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [(line.split()[2], line.split("\t")[1]) for line in listing]


def list_pictures(repository: Path, source: Source) -> list[Blob]:
    """(hash, name) of each file, in an order that has nothing to do with its content."""
    rows = [(blob, path.removeprefix(source.path + "/")) for blob, path in list_files(repository, source)]
    rows = [(blob, name.replace("/", "_") if source.flat_names else name.split("/")[-1]) for blob, name in rows]
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def read_blobs(repository: Path, blobs: Iterable[Blob]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that the clone has, given (hash, name)."""
    with subprocess.Popen(
        ["git", "-C", repository, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for blob, name in blobs:
            process.stdin.write(f"{blob}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().split()
            if answer[-1] == b"missing":
                print(f"{name}: not in the clone, left out")
                continue
            yield name, process.stdout.read(int(answer[2]))
            process.stdout.read(1)


# Packs


@dataclass(frozen=True)
class Packer:
    """Writes pictures out of clones into packs.

    `limit` is the number of files of each source, for a try.
    """

    work: Path
    clones: Path
    pool: Executor
    limit: int | None = None

    def find(self, source: Source) -> Path | None:
        """The clone of a source."""
        repository = self.clones / source.clone / "repo"
        if repository.exists():
            return repository
        print(f"{source.repository}: no clone at {repository}, left out")
        return None

    def write(
        self, name: str, repository: Path, blobs: Sequence[Blob], prepare: Callable[[bytes], list[bytes]]
    ) -> None:
        """Write the pictures that `prepare` makes of each file."""
        write_pack(self.work, name, self.prepared(repository, blobs, prepare))

    def prepared(
        self, repository: Path, blobs: Sequence[Blob], prepare: Callable[[bytes], list[bytes]]
    ) -> Iterator[tuple[str, bytes]]:
        """Names and pictures. `Executor.map` alone would hold all files in memory."""
        files = read_blobs(repository, blobs[: self.limit])
        while ahead := list(islice(files, IN_MEMORY)):
            pictures_of = self.pool.map(prepare, [data for _, data in ahead], chunksize=8)
            for (name, _), pictures in zip(ahead, pictures_of, strict=True):
                if not pictures:
                    print(f"{name}: not a picture, left out")
                yield from ((name, picture) for picture in pictures)


def write_pack(work: Path, name: str, pictures: Iterable[tuple[str, bytes]]) -> None:
    """Write pictures and their names as packs of about equal size."""
    parts: list[list[tuple[str, int, int]]] = [[]]
    out = (work / f"{name}.0.pack").open("wb")
    for picture_name, picture in pictures:
        if out.tell() > PACK_BYTES:
            _close_pack(out, parts[-1])
            out = (work / f"{name}.{len(parts)}.pack").open("wb")
            parts.append([])
        parts[-1].append((picture_name, out.tell(), len(picture)))
        out.write(picture)
    _close_pack(out, parts[-1])
    print(f"{name}: {sum(map(len, parts))} pictures in {len(parts)} packs", flush=True)


def _close_pack(out: io.BufferedWriter, index: list[tuple[str, int, int]]) -> None:
    out.close()
    Path(out.name).with_suffix(".json").write_text(json.dumps(index))


def pack(packer: Packer, pairs: Path) -> None:
    """Pack all sources that are cloned."""
    packer.work.mkdir(parents=True, exist_ok=True)
    pack_coco(packer, pairs)
    for name, source in SOURCES.items():
        if name != "coco" and (repository := packer.find(source)):
            texts = read_texts(pairs / source.texts)
            blobs = [blob for blob in list_pictures(repository, source) if blob[1] in texts]
            packer.write(name, repository, blobs, squash_picture)
    pack_household(packer, pairs)
    pack_egtea(packer)


def pack_coco(packer: Packer, pairs: Path) -> None:
    """Pack the pictures of COCO with sentences, those with other texts alone, and the others."""
    source = SOURCES["coco"]
    if not (repository := packer.find(source)):
        return
    captioned, described = read_texts(pairs / source.texts), read_texts(pairs / "coco_texts.tsv.gz")
    by_pack: dict[str, list[Blob]] = {"coco": [], "coco-texts": [], "coco-others": []}
    for blob, name in list_pictures(repository, source):
        kind = "coco" if name in captioned else "coco-texts" if name in described else "coco-others"
        by_pack[kind].append((blob, name))
    for name, blobs in by_pack.items():
        packer.write(name, repository, blobs, squash_picture)


def pack_household(packer: Packer, pairs: Path) -> None:
    """Pack pictures of things from several repositories as one source, and write their texts."""
    texts: dict[str, dict[str, list[str]]] = {source.repository: {} for source in HOUSEHOLD}
    with gzip.open(pairs / "pictures.tsv.gz", "rt") as lines:
        for line in lines:
            repository, path, _, text = line.rstrip("\n").split("\t")
            if repository in texts:
                texts[repository].setdefault(path, []).append(text)

    def pictures() -> Iterator[tuple[str, bytes]]:
        random = np.random.default_rng(0)
        for source, num in HOUSEHOLD.items():
            if clone := packer.find(source):
                blobs = {path: blob for blob, path in list_files(clone, source)}
                paths = [path for path in texts[source.repository] if path in blobs]
                chosen = [paths[i] for i in sorted(random.permutation(len(paths))[:num])]
                named = [(blobs[path], f"{source.repository}/{path}") for path in chosen]
                yield from packer.prepared(clone, named, squash_picture)

    write_pack(packer.work, "household", pictures())
    flat = {f"{repository}/{path}": own for repository, of in texts.items() for path, own in of.items()}
    (packer.work / HOUSEHOLD_TEXTS).write_text(json.dumps(flat))


def pack_egtea(packer: Packer) -> None:
    """Pack frames of the clips of EGTEA Gaze+ and of its videos for training; write the labels."""
    if not (repository := packer.find(EGTEA_CLIPS)):
        return
    labels = read_egtea_labels(repository)
    for part, table in labels.items():
        (packer.work / f"egtea_gt_{part}.csv").write_text(table)
    if clone := packer.find(EGTEA_VERBS):
        (packer.work / MORE_VERBS_FILE).write_text(json.dumps(read_more_verbs(clone, labels)))
    packer.write("egtea", repository, list_egtea_clips(repository), shrink_clip)
    frames = [(blob, "/".join(path.split("/")[-2:])) for blob, path in list_files(repository, EGTEA_VIDEOS)]
    packer.write("whole", repository, frames, shrink_picture)


def list_egtea_clips(repository: Path) -> list[Blob]:
    """(hash, file name) of each clip."""
    return [(blob, Path(path).name) for blob, path in list_files(repository, EGTEA_CLIPS) if path.endswith(".mp4")]


def read_more_verbs(repository: Path, labels: dict[str, str]) -> dict[str, str]:
    """The verbs of clips that the labels call "other", by the names of clips, out of a second table of labels."""
    tables = dict(read_blobs(repository, list_files(repository, EGTEA_VERBS)))
    text = {Path(path).stem: table.decode() for path, table in tables.items()}
    rows = [row.split(", ") for row in text["actions"].splitlines()]
    verbs = {int(number): name.split("_")[0].lower() for number, _, name in rows}
    of_video: dict[str, list[tuple[float, float, str]]] = {}
    for line in (text["training1"] + text["validation1"]).splitlines():
        _, video, start, end, *_, action = line.split(",")
        times_s = int(start) / VERB_FRAMES_PER_S, int(end) / VERB_FRAMES_PER_S
        of_video.setdefault(video, []).append((*times_s, verbs[int(action)]))
    out = {}
    rows_of_clips = (row for table in labels.values() for row in csv.DictReader(io.StringIO(table)))
    for row in (row for row in rows_of_clips if row["Action_labels"] == "0"):
        start_s, end_s = (int(row[key]) / 1000 for key in ("Start_times", "End_times"))
        for start, end, verb in of_video.get(row["Video_category"], []):
            common_s, both_s = min(end, end_s) - max(start, start_s), max(end, end_s) - min(start, start_s)
            if common_s > SAME_CLIP * both_s:
                out[row["Video_name"]] = verb
    return out


def read_egtea_labels(repository: Path) -> dict[str, str]:
    """The tables with the labels of clips, as CSV by part."""
    files = [blob for blob in list_files(repository, EGTEA_CLIPS) if blob[1].endswith(".csv")]
    tables = {Path(path).stem.removeprefix("gt_"): data.decode() for path, data in read_blobs(repository, files)}
    return {part: tables[part] for part in ("train", "valid")}


def pack_development_clips(clips: Path, work: Path) -> None:
    """Pack a frame per second of the videos of `benchmarks.words score`, and write their texts."""
    pictures: list[bytes] = []

    def add(path: Path) -> tuple[int, int]:
        first = len(pictures)
        pictures.extend(_frames_per_second(path))
        return first, len(pictures)

    chores = sorted((clips / "chores").glob("*.mp4"))
    texts_of = {path: [path.stem.replace("_", " ")] for path in chores}
    files = [path for path in sorted(clips.iterdir()) if path.is_file()]
    captions_of = {next(path for path in files if key in path.name): texts for key, texts in CAPTIONS.items()}
    told: dict[str, dict | list] = {}
    for group, texts in (("chores", texts_of), ("kitchen", captions_of)):
        told[group] = {
            "clips": [add(path) for path in texts],
            "queries": [text for own in texts.values() for text in own],
            "owners": [i for i, own in enumerate(texts.values()) for _ in own],
        }
    told["procedures"] = [
        _frames_of_steps(steps, *add(clips / "procedures" / f"{name}.mp4"))
        for name, steps in json.loads((clips / "procedures" / "steps.json").read_text()).items()
    ]
    write_pack(work, "dev", ((str(i), picture) for i, picture in enumerate(pictures)))
    (work / "dev.json").write_text(json.dumps(told))


def _frames_of_steps(steps: list[tuple[float, float, str]], first: int, end: int) -> list[tuple[int, int, str]]:
    """The frames of each step, of which a video has those from `first` to `end`; at least one."""
    starts = [first + int(start_s) for start_s, _, _ in steps]
    return [
        (min(end - 1, start), min(end, max(start + 1, first + math.ceil(end_s))), text)
        for start, (_, end_s, text) in zip(starts, steps, strict=True)
    ]


def _frames_per_second(path: Path) -> list[bytes]:
    """The middle frame of each second, as the package crops it."""
    import av
    from PIL import Image

    out: list[bytes] = []
    mean, deviation = (torch.tensor(x)[:, None, None] for x in IMAGENET)
    with av.open(str(path)) as container:
        first_s = None
        for frame in container.decode(video=0):
            time_s = float(frame.pts * frame.time_base)
            first_s = time_s if first_s is None else first_s
            if time_s - first_s >= len(out) + 0.5 - 1e-3:
                cropped = dinov2.prepare(torch.from_numpy(frame.to_ndarray(format="rgb24")[None]))[0]
                pixels = (255 * (cropped * deviation + mean)).round().clamp(0, 255).byte()
                out.append(_to_webp(Image.fromarray(pixels.permute(1, 2, 0).numpy()), (SIZE, SIZE)))
    return out


def squash_picture(data: bytes, size: tuple[int, int] = (SIZE, SIZE)) -> list[bytes]:
    """A picture as WebP; none if it is not readable."""
    from PIL import Image

    try:
        return [_to_webp(Image.open(io.BytesIO(data)).convert("RGB"), size)]
    except OSError:
        return []


def shrink_picture(data: bytes) -> list[bytes]:
    return squash_picture(data, CLIP_SIZE)


def shrink_clip(data: bytes) -> list[bytes]:
    """Frames of a clip as WebP; none if the file is empty."""
    from PIL import Image

    return [_to_webp(Image.fromarray(frame), CLIP_SIZE) for frame in read_frames(data)] if data else []


def read_frames(video: bytes, chosen: Sequence[int] = range(NUM_FRAMES)) -> np.ndarray:
    """Some of six frames of a clip, which divide it into equal parts, (N, H, W, 3)."""
    import av

    with av.open(io.BytesIO(video)) as container:
        frames = [*container.decode(video=0)]
    return np.stack([frames[int((i + 0.5) / NUM_FRAMES * len(frames))].to_ndarray(format="rgb24") for i in chosen])


def _to_webp(picture: Any, size: tuple[int, int]) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    picture.resize(size, Image.Resampling.BICUBIC).save(out, "WEBP", quality=QUALITY, method=2)
    return out.getvalue()


def read_pictures(work: Path, name: str, num: int | None = None) -> tuple[list[str], np.ndarray]:
    """Names and pictures (N, H, W, 3) of a source, or of its first pack as many as `num`."""
    names: list[str] = []
    jobs = []
    files = sorted(work.glob(f"{name}.[0-9]*.json"), key=lambda path: int(path.suffixes[-2][1:]))
    for file in files if num is None else files[:1]:
        index = json.loads(file.read_text())[:num]
        names += [row[0] for row in index]
        jobs += [(file.with_suffix(".pack"), index[i : i + 250]) for i in range(0, len(index), 250)]
    with ProcessPoolExecutor() as pool:
        return names, np.concatenate([*pool.map(_decode, jobs)])


def _decode(job: tuple[Path, list[tuple[str, int, int]]]) -> np.ndarray:
    from PIL import Image

    path, index = job
    with path.open("rb") as pack:
        out = []
        for _, offset, size in index:
            pack.seek(offset)
            out.append(np.asarray(Image.open(io.BytesIO(pack.read(size))).convert("RGB")))
    return np.stack(out)


# Views


def make_view(pictures: Tensor, view: int, generator: torch.Generator) -> Tensor:
    """Pictures (N, 3, H, W) in [0, 1] as a camera on a head might have seen them, normalised for the network.

    View 0 is the whole picture. Others are turned, cut out, mirrored, lit differently; half of them
    lose resolution and get noise, some are blurred by motion.
    """
    if view:
        num = len(pictures)

        def draw(low: float, high: float, *shape: int) -> Tensor:
            return low + (high - low) * torch.rand(num, *shape, generator=generator, device=pictures.device)

        area = draw(*((0.75, 1.0), (0.45, 0.95), (0.25, 0.75), (0.3, 1.0))[view - 1])
        aspect = draw(-0.35, 0.35).exp()
        width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
        x, y = draw(-1, 1) * (1 - width), draw(-1, 1) * (1 - height)
        angle = draw(-0.08, 0.08) if view == 1 else draw(-0.25, 0.25)
        mirror = draw(-1, 1).sign()
        rows = [
            torch.stack([width * angle.cos() * mirror, -height * angle.sin(), x], 1),
            torch.stack([width * angle.sin() * mirror, height * angle.cos(), y], 1),
        ]
        grid = F.affine_grid(torch.stack(rows, 1), list(pictures.shape), align_corners=False)
        pictures = F.grid_sample(pictures, grid, padding_mode="reflection", align_corners=False)
        pictures = pictures * draw(0.7, 1.3, 1, 1, 1) * draw(0.9, 1.1, 3, 1, 1) + draw(-0.075, 0.075, 1, 1, 1)
        low = F.interpolate(pictures, size=int(draw(90, 190)[0]), mode="bilinear", antialias=True)
        pictures = torch.where(draw(0, 1, 1, 1, 1) < 0.5, F.interpolate(low, size=SIZE, mode="bilinear"), pictures)
        blurred = F.avg_pool2d(F.pad(pictures, (5, 5, 0, 0), mode="replicate"), (1, 11), 1)
        pictures = torch.where(draw(0, 1, 1, 1, 1) < 0.15, blurred, pictures)
        noise = torch.randn(pictures.shape, generator=generator, device=pictures.device)
        pictures = (pictures + 0.03 * (draw(0, 1, 1, 1, 1) < 0.5) * noise).clamp(0, 1)
    return normalise(pictures, *IMAGENET)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["pack"])
    parser.add_argument("work", type=Path, help="folder of the packs")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--dev", type=Path, help="the videos of `benchmarks.words score`, to see progress on them")
    parser.add_argument("--limit", type=int, help="files of each source, for a try")
    args = parser.parse_args()
    # Spawned workers do not inherit the pipe to git, which would otherwise never see its end.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        pack(Packer(args.work, args.clones, pool, args.limit), args.pairs)
    if args.dev is not None:
        pack_development_clips(args.dev, args.work)


if __name__ == "__main__":
    main()
