"""Ways to train that `benchmarks.cross_validation` compares: other words, further negatives,
recordings without text.
"""

from __future__ import annotations

import csv
import gzip
import re
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.captaincook4d_data import CLOCK, narrate, read_annotations
from hiero import HiERO, embed_features, load_model
from hiero.config import LossConfig
from hiero.features.stores import FeatureStore
from hiero.model.losses import Losses, Timed, compute_losses
from hiero.model.process_group import ProcessGroup
from hiero.model.unet import Level
from hiero.networks.minilm import MINILM_KEY
from hiero.networks.text_encoders import encode_texts
from hiero.networks.vector_cache import TextCache
from hiero.steps.hierarchy import default_step_counts
from hiero.steps.segmentation import NODE_LENGTH_PRIOR, cut_steps

OTHER_TEXTS = "other-texts.txt"  # of WORK: step texts of other data sets
MIN_PARAPHRASE = 0.6  # cosine of a text that may stand for another
NUM_NEGATIVES = 512  # texts of other data sets that a batch is contrasted with
BANK_STEP = 8  # of those texts one in so many is used
PSEUDO_TEMPERATURE = 0.05  # of a mean of texts that stands for a piece
NUM_KEPT, KEEP_TEMPERATURE = 256, 0.1  # nodes of each video whose neighbours stay; of their cosines

UNIT = r"tsps?|teaspoons?|tbsps?|tablespoons?|cups?|ounces?|oz|inch(es)?|grams?|g|ml|seconds?|minutes?|mins?"
PREPOSITIONS = frozenset(["to", "with", "in", "on", "from", "into", "until", "over", "onto", "for", "at", "by", "and"])
AMOUNT = re.compile(
    rf"\(.*?\)|\b(about|a few|half|one|two)?\s*[\d/.-]+\s*({UNIT})?\b( of)?|\b(about|the|a)\b", re.IGNORECASE
)


def shorten(text: str) -> str:
    """A step's sentence without amounts, brackets and articles."""
    short = re.sub(r"\s+", " ", AMOUNT.sub(" ", text)).strip(" ,.")
    return short if len(short.split()) > 1 else text


def object_of(text: str) -> str:
    """What a step's sentence is about: without its verb, and without what follows a preposition."""
    words = shorten(text).split()
    if len(words) > 1 and text[0].isalpha():
        words = words[1:]
    for i, word in enumerate(words[1:], start=1):
        if word.lower() in PREPOSITIONS:
            return " ".join(words[:i])
    return " ".join(words)


def write_other_texts(work: Path, source: Path) -> list[str]:
    """Texts of steps in a file of timed texts (a column `text`, gzip), into WORK."""
    with gzip.open(source, "rt", newline="") as file:
        texts = sorted({row["text"].strip() for row in csv.DictReader(file) if row["text"].strip()})
    (work / OTHER_TEXTS).write_text("\n".join(texts))
    return texts


def read_other_texts(work: Path) -> list[str]:
    """What `write_other_texts` has written."""
    return (work / OTHER_TEXTS).read_text().splitlines()


def paraphrases(work: Path) -> dict[str, str]:
    """For each step's text the nearest one of other data sets, where it is near."""
    texts = sorted({step["text"] for entry in read_annotations(work).values() for step in entry["steps"]})
    others = read_other_texts(work)
    vectors, other_vectors = (encode_texts(part, cache=work / "text").float() for part in (texts, others))
    best, where = (vectors @ other_vectors.mT).max(1)
    return {
        text: others[i]
        for text, similarity, i in zip(texts, best.tolist(), where.tolist(), strict=True)
        if similarity >= MIN_PARAPHRASE
    }


def rewrite_narrations(source: Path, out: Path, rewrite: Callable[[str], str]) -> None:
    """Every second narration of a step in other words."""
    with source.open(newline="") as file, out.open("w", newline="") as target:
        writer = csv.writer(target)
        for i, row in enumerate(csv.reader(file)):
            writer.writerow(row if i % 2 or i == 0 else [*row[:2], rewrite(row[2])])


def negative_vectors(work: Path, text: Path) -> Tensor:
    """Vectors of texts of other data sets, (N, D).

    Args:
        work: The folder with those texts.
        text: Folder of vectors of texts.
    """
    return encode_texts(read_other_texts(work)[::BANK_STEP], cache=text).float()


def losses_with_negatives(bank: Tensor) -> Callable[..., Losses]:
    """`compute_losses` with one more term: a node is nearer to its narrations than to texts of other data sets.

    Args:
        bank: Vectors of those texts, (N, D).
    """

    def losses(
        model: HiERO, levels: list[Level], narrations: Timed, config: LossConfig, peers: ProcessGroup | None = None
    ) -> Losses:
        result = compute_losses(model, levels, narrations, config, peers)
        texts, text_times, text_mask = narrations
        drawn = bank.to(texts)[torch.randint(len(bank), (NUM_NEGATIVES,), device=texts.device)]
        nodes = model.embed_video(levels[0].features)
        near = (levels[0].times[:, :, None] - text_times[:, None, :]).abs() <= 1 / config.alpha
        positive = near & levels[0].mask[:, :, None] & text_mask[:, None, :]
        own = model.embed_text(torch.where(text_mask[..., None], texts, 0))
        similarity = (nodes @ own.mT).float() / config.temperature
        negative = ((nodes @ model.embed_text(drawn).mT).float() / config.temperature).logsumexp(2)
        used = positive.any(2)
        term = F.softplus(negative[used] - similarity.masked_fill(~positive, -1e4)[used].logsumexp(1)).mean()
        return result._replace(total=result.total + config.alignment_weight * term)

    return losses


def centred_inputs(model: HiERO, features: Tensor, mask: Tensor) -> Tensor:
    """The features (B, T, F) of a batch in the scale of the model, of length 1, without the mean of each video."""
    x = torch.where(mask[..., None], features.float() * model.input_scale, 0.0)
    centred = x - x.sum(1, keepdim=True) / mask.sum(1)[:, None, None].clamp_min(1)
    return F.normalize(centred, dim=-1)


class KeepNeighbours:
    """`compute_losses` with one more term: nodes that are neighbours in the input stay neighbours.

    For nodes drawn from all videos of the batch, the softmax of their cosines with each other is to
    be that of the centred inputs (a Kullback-Leibler divergence). `watch` is put in the place of
    `HiERO.forward_unchecked`, to see the inputs.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.forward = HiERO.forward_unchecked
        self.inputs = torch.empty(0)

    def watch(self, model: HiERO, features: Tensor, mask: Tensor, *args: object, **kwargs: object) -> list[Level]:
        self.inputs = centred_inputs(model, features.detach(), mask)
        return self.forward(model, features, mask, *args, **kwargs)  # type: ignore[arg-type]

    def losses(
        self,
        model: HiERO,
        levels: list[Level],
        narrations: Timed,
        config: LossConfig,
        peers: ProcessGroup | None = None,
    ) -> Losses:
        result = compute_losses(model, levels, narrations, config, peers)
        mask = levels[0].mask
        drawn = torch.rand(mask.shape, device=mask.device).masked_fill(~mask, -1.0).topk(min(NUM_KEPT, mask.shape[1]))
        used = (drawn.values >= 0).flatten()
        rows = torch.arange(len(mask), device=mask.device)[:, None]
        before = self.inputs[rows, drawn.indices].flatten(0, 1)[used]
        nodes = model.embed_video(levels[0].features).float()
        centred = nodes - (nodes * mask[..., None]).sum(1, keepdim=True) / mask.sum(1)[:, None, None].clamp_min(1)
        after = F.normalize(centred, dim=-1)[rows, drawn.indices].flatten(0, 1)[used]
        own = torch.eye(len(before), dtype=torch.bool, device=before.device)
        wanted = (before @ before.mT / KEEP_TEMPERATURE).masked_fill(own, -1e4).softmax(1)
        given = (after @ after.mT / KEEP_TEMPERATURE).masked_fill(own, -1e4).log_softmax(1)
        return result._replace(total=result.total + self.weight * F.kl_div(given, wanted, reduction="batchmean"))


def write_pseudo_narrations(
    teacher: Path,
    store: FeatureStore,
    recordings: Sequence[str],
    narrations: Path,
    text: Path,
    out: Path,
    device: str,
    soft: bool,
) -> Path:
    """Narrations of recordings without text, by a model: each of its pieces gets what it finds nearest
    among the texts it knows.

    Args:
        teacher: Folder of the model.
        store: Features.
        recordings: Without text.
        narrations: Of the recordings with text; their texts are those it knows.
        text: Folder of vectors of texts.
        out: For all narrations; beside it, with the ending `.text`, the folder of vectors.
        device: Where the model runs.
        soft: A mean of the texts, weighted by how near they are, instead of the nearest.

    Returns:
        The folder of vectors of all texts.
    """
    with narrations.open(newline="") as file:
        rows = list(csv.reader(file))
    known = [row for row in rows[1:] if row[0] not in recordings]
    texts = sorted({row[2] for row in known})
    vectors = encode_texts(texts, cache=text).float()
    model = load_model(teacher).to(device)
    with torch.no_grad():
        queries = model.embed_text(vectors.to(device)).cpu()
    pseudo: dict[str, np.ndarray] = {}
    for recording in recordings:
        nodes = F.normalize(embed_features(model, store.read(recording), CLOCK, [0])["projected0"], dim=-1)
        boundaries = cut_steps(
            nodes.numpy(), default_step_counts(len(nodes), len(nodes))[-1], length_prior=NODE_LENGTH_PRIOR
        )
        for start, end in pairwise(boundaries):
            similarity = queries @ F.normalize(nodes[start:end].mean(0), dim=0)
            name = texts[int(similarity.argmax())]
            if soft:
                name = f"{recording} {start}"
                mean = (similarity / PSEUDO_TEMPERATURE).softmax(0) @ vectors
                pseudo[name] = F.normalize(mean, dim=0).numpy()
            known += narrate(recording, start * CLOCK.spacing_s, end * CLOCK.spacing_s, name)
    with out.open("w", newline="") as file:
        csv.writer(file).writerows([rows[0], *known])
    folder = out.with_suffix(".text")
    shutil.copytree(text, folder, dirs_exist_ok=True)
    if pseudo:
        TextCache(MINILM_KEY, folder).encode(list(pseudo), lambda names: np.array([pseudo[name] for name in names]))
    return folder
