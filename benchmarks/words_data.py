"""Pictures with sentences, for `python -m benchmarks.words`: out of clones of their repositories, into
features and texts.

Pictures are squashed to squares and packed as WebP, which loses what a video codec loses; a pack is
a file of pictures one after the other, and a .json with [name, offset, size] of each. Nothing of
this goes into the project.
"""

from __future__ import annotations

import gzip
import io
import json
import multiprocessing
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.backbones.registry import IMAGENET, normalise

SIZE = 224
QUALITY = 45  # of WebP
PACK_BYTES = 57 * 2**20


@dataclass(frozen=True)
class Source:
    """Where pictures are: a clone FOLDER/owner+name/repo, a commit, a path in it; and the file with
    their sentences.
    """

    clone: str
    commit: str
    path: str
    texts: str
    flat_names: bool = False
    """Names in the file with texts are paths with `_` for `/`."""


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
LABELLED = "coco-labels"  # pictures of COCO that have classes but no sentences
WITH_TEXTS = "coco-texts"  # pictures of COCO with other texts than sentences
VIEWS = {"coco": 5, "flickr8k": 2, "stanford40": 2, "grocery": 2, LABELLED: 1}


# Pictures


def pack_pictures(clones: Path, pairs: Path, work: Path, limit: int | None = None, num_labelled: int = 11_000) -> None:
    """Pack the pictures of all sources that are cloned.

    Args:
        clones: Folder of bare clones, owner+name/repo each.
        pairs: Folder with the texts.
        work: Folder to write to.
        limit: Pictures of each source, for a try.
        num_labelled: Pictures of COCO without sentences.
    """
    captioned = read_texts(pairs / SOURCES["coco"].texts)
    for name, source in SOURCES.items():
        repository = clones / source.clone / "repo"
        if not repository.exists():
            print(f"{name}: no clone at {repository}, left out")
            continue
        blobs = list_blobs(repository, source)
        texts = read_texts(pairs / source.texts)
        _pack(work, name, repository, [(blob, file) for blob, file in blobs if file in texts][:limit])
        if name == "coco":
            others = [(blob, file) for blob, file in blobs if file not in captioned]
            _pack(work, LABELLED, repository, others[: limit or num_labelled])
            described = read_texts(pairs / "coco_texts.tsv.gz")
            _pack(work, WITH_TEXTS, repository, [(blob, file) for blob, file in others if file in described][:limit])


def list_blobs(repository: Path, source: Source) -> list[tuple[str, str]]:
    """(hash, name) of each file, in an order that has nothing to do with its content."""
    listing = subprocess.run(
        ["git", "-c", "core.quotepath=off", "-C", repository, "ls-tree", "-r", source.commit, source.path],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    rows = [(line.split()[2], line.split("\t")[1].removeprefix(source.path + "/")) for line in listing]
    rows = [(blob, name.replace("/", "_") if source.flat_names else name.split("/")[-1]) for blob, name in rows]
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def _pack(work: Path, name: str, repository: Path, blobs: list[tuple[str, str]]) -> None:
    work.mkdir(parents=True, exist_ok=True)
    index: list[tuple[str, int, int]] = []
    number, offset = 0, 0
    out = (work / f"{name}.0.pack").open("wb")
    # Spawned workers do not inherit the pipe to git, which would otherwise never see its end.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for file, picture in pool.map(_squash, read_blobs(repository, blobs), chunksize=32):
            if not picture:
                print(f"{file}: not a picture, left out")
                continue
            if offset > PACK_BYTES:
                _close_pack(out, index)
                number, offset, index = number + 1, 0, []
                out = (work / f"{name}.{number}.pack").open("wb")
            index.append((file, offset, len(picture)))
            offset += out.write(picture)
    _close_pack(out, index)
    print(f"{name}: {len(blobs)} pictures in {number + 1} packs")


def _close_pack(out: io.BufferedWriter, index: list[tuple[str, int, int]]) -> None:
    out.close()
    Path(out.name).with_suffix(".json").write_text(json.dumps(index))


def read_blobs(repository: Path, blobs: list[tuple[str, str]]) -> Iterator[tuple[str, bytes]]:
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


def _squash(picture: tuple[str, bytes]) -> tuple[str, bytes]:
    from PIL import Image

    name, data = picture
    out = io.BytesIO()
    try:
        image = Image.open(io.BytesIO(data)).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    except OSError:
        return name, b""
    image.save(out, "WEBP", quality=QUALITY, method=2)
    return name, out.getvalue()


def read_pictures(work: Path, name: str) -> tuple[list[str], np.ndarray]:
    """Names and pictures (N, 224, 224, 3) of a source."""
    names: list[str] = []
    jobs = []
    for index_file in sorted(work.glob(f"{name}.[0-9]*.json"), key=lambda path: int(path.suffixes[-2][1:])):
        index = json.loads(index_file.read_text())
        names += [entry[0] for entry in index]
        jobs += [(index_file.with_suffix(".pack"), index[i : i + 500]) for i in range(0, len(index), 500)]
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


# Texts

# Words that look like verbs in -ing and are none; where phrases end; heads of phrases that say nothing.
NO_VERBS = frozenset(
    [
        "thing",
        "something",
        "anything",
        "everything",
        "nothing",
        "ceiling",
        "building",
        "clothing",
        "evening",
        "morning",
        "during",
        "king",
        "ring",
        "string",
        "wing",
        "spring",
        "railing",
        "wedding",
        "bedding",
        "lighting",
        "dining",
        "living",
        "swing",
        "sling",
        "awning",
        "siding",
        "flooring",
        "icing",
        "pudding",
        "stuffing",
        "topping",
        "being",
        "having",
        "parking",
        "skiing",
        "surfing",
        "earring",
        "dressing",
        "setting",
    ]
)
PHRASE_ENDS = frozenset(
    [
        "in",
        "on",
        "at",
        "with",
        "of",
        "by",
        "near",
        "from",
        "for",
        "over",
        "under",
        "behind",
        "while",
        "as",
        "to",
        "and",
        "into",
        "onto",
        "next",
        "front",
        "beside",
        "between",
        "that",
        "which",
        "who",
        "is",
        "are",
        "has",
    ]
)
VAGUE = frozenset(
    [
        "man",
        "woman",
        "person",
        "people",
        "boy",
        "girl",
        "child",
        "kid",
        "men",
        "women",
        "someone",
        "guy",
        "lady",
        "group",
        "couple",
        "player",
        "picture",
        "photo",
        "image",
        "close",
        "view",
        "bunch",
        "pair",
        "lot",
        "front",
        "top",
        "side",
        "back",
        "it",
        "one",
        "other",
    ]
)
ARTICLES = frozenset(["a", "an", "the", "some", "two", "three", "his", "her", "their", "several", "many"])
CLAUSE_STARTS = frozenset(["while", "that", "which", "who", "as", "and"])
MAX_WORDS = 8  # of a phrase that begins with a verb
MAX_NOUNS = 3  # words of a phrase after an article
PROMPTS = ("{}", "a photo of a {}", "a {} on a table", "there is a {}", "someone holding a {}", "a person using a {}")


@cache
def read_texts(path: Path) -> dict[str, list[str]]:
    """The sentences of each picture."""
    out: dict[str, list[str]] = {}
    with gzip.open(path, "rt") as lines:
        for line in lines:
            name, _, text = line.rstrip("\n").partition("\t")
            if text := text.strip().rstrip(" .").strip():
                out.setdefault(name, []).append(text)
    return out


def phrases(sentence: str) -> tuple[list[str], list[str]]:
    """What a sentence says in few words, as questions do: phrases from a verb in -ing on, and nouns
    after an article.
    """
    words = re.findall(r"[a-z']+", sentence.lower())

    def is_verb(word: str) -> bool:
        return word.endswith("ing") and len(word) > 4 and word not in NO_VERBS

    doings, things = [], []
    for i, word in enumerate(words):
        if is_verb(word):
            end = i + 1
            while end < len(words) and end - i < MAX_WORDS and words[end] not in CLAUSE_STARTS:
                if is_verb(words[end]) and end > i + 1:
                    break
                end += 1
            if end - i >= 2:
                doings.append(" ".join(words[i:end]))
        if word in ARTICLES:
            end = i + 1
            while (
                end < len(words)
                and end - i <= MAX_NOUNS
                and words[end] not in PHRASE_ENDS | ARTICLES
                and not is_verb(words[end])
            ):
                end += 1
            if end > i + 1 and words[end - 1] not in VAGUE:
                things.append(" ".join(words[i + 1 : end]))
    return doings, things


def texts_of_picture(source: str, sentences: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Sentences, phrases with a verb, phrases without."""
    if source == "stanford40":
        return sentences, [sentence.removeprefix("a person ") for sentence in sentences[:1]], []
    if source == "grocery":
        return sentences, [], [s.removeprefix("a photo of ").removesuffix(" in a grocery store") for s in sentences[:1]]
    by_sentence = [phrases(sentence) for sentence in sentences]
    return sentences, [p for doings, _ in by_sentence for p in doings], [p for _, things in by_sentence for p in things]


def unheard_phrases(phrases: list[str], files: list[Path]) -> list[str]:
    """Phrases whose verb and last word are never in one line of compressed text files: they may be nonsense."""

    def stem(word: str) -> str:
        return re.sub(r"(es|s|e)$", "", word)

    wanted: dict[str, set[tuple[str, str]]] = {}
    for phrase in phrases:
        words = phrase.lower().split()
        wanted.setdefault(stem(words[-1]), set()).add((stem(words[0]), phrase))
    heard: set[str] = set()
    for file in files:
        with gzip.open(file, "rt") as lines:
            for line in lines:
                stems = {stem(word) for word in re.findall(r"[a-z]+", line.lower())}
                for thing in stems & wanted.keys():
                    pairs = wanted[thing]
                    heard |= {phrase for verb, phrase in pairs if any(word.startswith(verb) for word in stems)}
    return [phrase for phrase in phrases if phrase not in heard]
