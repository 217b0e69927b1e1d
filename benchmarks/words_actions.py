"""How often clips of EGTEA Gaze+ are told by their names and verbs: labels of the clips, and a score.

    python -m benchmarks.words_actions score WORK --clones CLONES --head research    (4 minutes on 2 cores)

`score` reads two frames of each clip out of the clone in CLONES, as a user's video is read, and
compares them with texts by the shipped weights `research` or `permissive`. With `--pairs PAIRS`, it
adds the recall on the pictures of COCO that were held out; WORK holds their pack (`benchmarks.words_data`).

Four videos of the training part are held out for choices. Nothing may be chosen on the part `valid`.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import words_data, words_texts
from hiero.engine.embedder import PICTURES
from hiero.networks import dinov2
from hiero.networks.joint_text import HEAD_FILES, RESEARCH, encode_joint_texts, pooling_temperature
from hiero.networks.registry import IMAGENET, normalise
from hiero.steps.similarity import PictureEvidence
from hiero.storage import weights

CLONE, COMMIT = words_data.EGTEA_CLIPS.clone, words_data.EGTEA_CLIPS.commit
DEVELOPMENT = frozenset(
    ["OP06-R04-ContinentalBreakfast", "OP06-R07-Pizza", "OP03-R02-TurkeySandwich", "OP02-R05-Cheeseburger"]
)
# The verbs of the data set by number, with words for them; 0 is any other verb.
VERBS: dict[int, list[tuple[str, str]]] = {
    1: [("inspect", "inspecting"), ("look at", "looking at"), ("read", "reading")],
    2: [("open", "opening")],
    3: [("take", "taking"), ("pick up", "picking up"), ("grab", "grabbing")],
    4: [("cut", "cutting"), ("slice", "slicing"), ("chop", "chopping")],
    5: [("put", "putting"), ("put down", "putting down"), ("place", "placing")],
    6: [("close", "closing"), ("shut", "shutting")],
    7: [("move around", "moving around"), ("move", "moving"), ("stir", "stirring"), ("mix", "mixing")],
    8: [("divide", "dividing"), ("pull apart", "pulling apart"), ("separate", "separating")],
    9: [("pour", "pouring")],
    10: [("transfer", "transferring"), ("move over", "moving over")],
}
# Of clips with any other verb, by a second table of labels that names it (`words_data.read_more_verbs`).
MORE_VERBS: dict[int, list[tuple[str, str]]] = {
    11: [("spread", "spreading")],
    12: [("operate", "operating"), ("adjust", "adjusting")],
    13: [("turn on", "turning on"), ("switch on", "switching on")],
    14: [("turn off", "turning off"), ("switch off", "switching off")],
    15: [("wash", "washing"), ("rinse", "rinsing")],
    16: [("crack", "cracking"), ("break", "breaking")],
    17: [("compress", "compressing"), ("press", "pressing")],
}
WORDS_OF_VERBS = VERBS | MORE_VERBS
VERB_NUMBERS = {"mix": 7} | {words[0][0]: number for number, words in MORE_VERBS.items()}
FRAMES = (1, 4)  # of the six that divide a clip into equal parts
HELD_OUT = 1000  # pictures of COCO that nothing learned from, in the order of the pack
BATCH_SIZE = 32


class Clips:
    """Verbs and nouns of clips, and which part each belongs to, out of tables of labels by part."""

    def __init__(self, labels: Mapping[str, str], names: list[str]) -> None:
        rows = {}
        for part, table in labels.items():
            for row in csv.DictReader(io.StringIO(table)):
                is_development = row["Video_category"] in DEVELOPMENT
                nouns = tuple(noun.replace("_", " ").strip() for noun in row["Nouns"].split(",") if noun.strip())
                rows[row["Video_name"]] = ("dev" if is_development else part, int(row["Action_labels"]), nouns)
        found = [next((rows[key] for key in rows if name.startswith(key + "-")), None) for name in names]
        self.parts = np.array([row[0] if row else "" for row in found])
        self.verbs = np.array([row[1] if row else -1 for row in found])
        self.nouns = [row[2] if row else () for row in found]
        every = sorted({noun for nouns in self.nouns for noun in nouns})
        self.has_noun = np.array([[noun in nouns for noun in every] for nouns in self.nouns])
        self.every = every

    def is_true(self, texts: list[tuple[int, tuple[str, ...]]], clips: np.ndarray) -> np.ndarray:
        """Whether a verb (0 for none) and nouns describe each clip, (texts, clips)."""
        verbs = np.array([verb for verb, _ in texts])[:, None]
        wanted = np.array([[noun in nouns for noun in self.every] for _, nouns in texts])
        has_all = wanted.astype(int) @ (~self.has_noun[clips]).T.astype(int) == 0
        return ((verbs == 0) | (verbs == self.verbs[clips])) & has_all


def write_text(verb: int, nouns: tuple[str, ...], random: np.random.Generator | None = None) -> str:
    """A text for a verb (0 for none) and nouns; with `random` one of many forms."""
    things = " and ".join(nouns) if nouns else "something"
    if random is not None and len(nouns) > 1:
        things = (nouns[0], " and ".join(nouns[:2]), ", ".join(nouns))[random.integers(3)]
    if not verb:
        return things if random is None else ("{}", "a {}", "the {}")[random.integers(3)].format(things)
    if random is None:
        return f"{WORDS_OF_VERBS[verb][0][0]} the {things}"
    words = WORDS_OF_VERBS[verb]
    word, doing = words[0 if random.random() < 0.6 else random.integers(len(words))]
    forms = (f"{word} the {things}", f"{word} {things}", f"{doing} the {things}", f"a person is {doing} {things}")
    return forms[random.integers(len(forms))]


def judge(compare: Callable[[list[str]], np.ndarray], clips: Clips, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """What is right of chosen clips, given the similarity of texts with each of them, (Q, N).

    Each is told by its name among all names, by its verb among ten, and as opening or closing.
    """
    labels = [(int(clips.verbs[i]), clips.nouns[i]) for i in chosen]
    names = sorted(set(labels))
    rank = rank_of(compare([write_text(*name) for name in names]), np.array([names.index(x) for x in labels]), 0)
    out = {f"first of {len(names)} names": rank < 1, "among the first five": rank < 5}
    has_verb = np.array([i for i, (verb, _) in enumerate(labels) if verb in VERBS])
    verbs = np.array([labels[i][0] - 1 for i in has_verb])
    out["first of ten verbs"] = rank_of(compare([write_text(v, ()) for v in VERBS])[:, has_verb], verbs, 0) < 1
    moved = [i for i, (verb, _) in enumerate(labels) if verb in (2, 6)]
    opened, closed = (compare([write_text(v, labels[i][1]) for i in moved]) for v in (2, 6))
    is_open = opened[range(len(moved)), moved] > closed[range(len(moved)), moved]
    out["open above close, or below"] = is_open == [labels[i][0] == 2 for i in moved]
    return out


def summarise(right: dict[str, np.ndarray]) -> dict[str, list[float]]:
    """Percent with its 95 % interval, by bootstrap."""
    random = np.random.default_rng(0)
    out = {}
    for name, values in right.items():
        means = values[random.integers(len(values), size=(1000, len(values)))].mean(1)
        out[name] = [_share(values), *np.round(100 * np.percentile(means, [2.5, 97.5]), 1).tolist()]
    return out


# Score


class Reader:
    """Pictures to vectors of the whole and of 8 × 8 patches, which are not grouped, by the chosen weights."""

    def __init__(self, head: str) -> None:
        self.head = head
        self.network = dinov2.load(weights.get(PICTURES), head)

    @torch.inference_mode()
    def read(self, prepared: torch.Tensor) -> PictureEvidence:
        """Evidence of prepared pictures (N, 3, 224, 224)."""
        parts = [self.network.head(self.network._tokens(batch)) for batch in prepared.split(BATCH_SIZE)]
        pictures, patches = (torch.cat(each).numpy() for each in zip(*parts, strict=True))
        return PictureEvidence(pictures, patches, pooling_temperature(self.head))


def read_clips(repository: Path, part: str) -> tuple[Clips, torch.Tensor]:
    """The clips of a part, and two frames of each, prepared as those of a user's video, (2 N, 3, 224, 224)."""
    labels = words_data.read_egtea_labels(repository)
    blobs = words_data.list_egtea_clips(repository)
    parts = Clips(labels, [name for _, name in blobs]).parts
    files = words_data.read_blobs(repository, [blob for blob, of in zip(blobs, parts, strict=True) if of == part])
    names, frames = [], []
    for name, video in files:
        names.append(name)
        frames.append(dinov2.prepare(torch.from_numpy(words_data.read_frames(video, FRAMES))))
    return Clips(labels, names), torch.cat(frames)


def score(
    clones: Path, part: str, work: Path, pairs: Path | None = None, head: str = RESEARCH
) -> dict[str, list[float]]:
    """What `judge` finds for the clips of a part with the chosen weights, and with texts the recall on COCO."""
    reader = Reader(head)
    clips, frames = read_clips(clones / CLONE / "repo", part)
    seen = reader.read(frames)

    def compare(texts: list[str]) -> np.ndarray:
        similarity = seen.similarity(encode_joint_texts(texts, head))
        return similarity.reshape(len(texts), -1, len(FRAMES)).mean(2)

    right = judge(compare, clips, np.arange(len(clips.parts)))
    return summarise(right if pairs is None else right | coco_recall(reader, work, pairs))


def coco_recall(reader: Reader, work: Path, pairs: Path) -> dict[str, np.ndarray]:
    """Whether the first sentence of each held-out picture finds it among all."""
    names, pictures = words_data.read_pictures(work, "coco", HELD_OUT)
    sentences = words_texts.read_texts(pairs / words_data.SOURCES["coco"].texts)
    prepared = normalise(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255, *IMAGENET)
    texts = [sentences[name][0] for name in names]
    similarity = reader.read(prepared).similarity(encode_joint_texts(texts, reader.head))
    rank = rank_of(similarity, np.arange(len(names)), 1)
    return {"COCO R@1": rank < 1, "COCO R@5": rank < 5}


def rank_of(similarity: np.ndarray, truth: Sequence[int] | np.ndarray, axis: int) -> np.ndarray:
    """How many are before the truth, along an axis."""
    right = np.take_along_axis(similarity, np.expand_dims(np.asarray(truth), axis), axis)
    return np.asarray((similarity > right).sum(axis))


def _share(right: np.ndarray) -> float:
    return round(100 * float(right.mean()), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["score"])
    parser.add_argument("work", type=Path, help="folder with the pack of COCO")
    parser.add_argument("--clones", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, help="folder of texts, to score COCO as well")
    parser.add_argument("--head", choices=[*HEAD_FILES], default=RESEARCH, help="the shipped weights to score")
    parser.add_argument("--part", choices=["dev", "valid"], default="valid", help="choose nothing on valid")
    args = parser.parse_args()
    print(json.dumps(score(args.clones, args.part, args.work, args.pairs, args.head), indent=1))


if __name__ == "__main__":
    main()
