"""Words for actions: the head of benchmarks.words goes on learning, together with the text network.

    python -m benchmarks.words pack WORK --clones CLONES --pairs PAIRS   pictures of COCO
    python -m benchmarks.words_actions pack WORK --clones CLONES    clips of EGTEA Gaze+ (1 minute)
    python -m benchmarks.words_actions encode WORK --pairs PAIRS    features (2 minutes on an H200)
    python -m benchmarks.words_actions tune WORK --pairs PAIRS --head HEAD --seed 0 -o TUNED-0    (2 minutes on an H200)
    python -m benchmarks.words_actions mean TUNED-0 TUNED-1 TUNED-2 --head HEAD -o RESULT
    python -m benchmarks.words_actions score WORK --head HEAD [--part valid]    on other videos (9 minutes on 2 cores)

`tune` starts from the head of `benchmarks.words train`. First-person clips are compared with texts
that have another verb or other nouns (not with `--clip-weight 0`); pictures of COCO, with more texts,
keep what the head knew: it learns their sentences, and the similarities that it gave them at the
start. MiniLM learns too, by additions of low rank to its layers. `mean` gives the mean of the weights
of several runs and, with a smaller share, of the start, which finds objects as before and actions
nearly as well as at the end. Four videos of the training part are held out for choices;
`--all-videos` learns from them as well, when everything is chosen.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import io
import json
import math
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import words_data
from hiero.backbones import dinov2
from hiero.backbones.dinov2 import TwoLayers
from hiero.storage import weights
from hiero.storage.files import load_arrays, save_arrays
from hiero.text.minilm import load_minilm

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
NUM_FRAMES = 6  # of a clip
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
HELD_OUT = 1000  # pictures of COCO, in the order of the packs
SWAPS = 6  # texts with another verb or other nouns, for each clip
SCALE = 10.0  # of similarities in the losses
CLIP_WEIGHT, KEEP_WEIGHT = 0.5, 1.0  # of clips, and of similarities at the start, beside pictures
NUM_STEPS, BATCH_SIZE, CLIP_BATCH = 300, 1024, 256
RATE, DECAY, WARM_UP = 5e-4, 0.05, 30
RANK, TEXT_RATE, TEXT_DECAY = 16, 2e-4, 0.01  # of the additions to MiniLM
LAYERS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
PICTURES = ("coco", words_data.WITH_TEXTS)
SHARE = 0.85  # of the weights at the end in the result

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


def _read_clip(job: tuple[Path, tuple[str, int, int]]) -> np.ndarray:
    """Frames of a clip as the package prepares them, (6, 3, 224, 224)."""
    import av

    torch.set_num_threads(1)
    path, (_, offset, size) = job
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size)
    with av.open(io.BytesIO(data)) as container:
        frames = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
    chosen = [min(len(frames) - 1, int((i + 0.5) / NUM_FRAMES * len(frames))) for i in range(NUM_FRAMES)]
    return dinov2.prepare(torch.from_numpy(frames[chosen])).half().numpy()


class Tower:
    """DINOv2 on a device: normalised pictures → the class token and 8 × 8 patches, (N, 65, 384)."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.dtype = device, torch.float16 if device.type == "cuda" else torch.float32
        self.network = dinov2.load(weights.get("dinov2-text")).network.to(device, self.dtype)

    @torch.inference_mode()
    def encode(self, pictures: Tensor) -> Tensor:
        tokens = self.network(pictures.to(self.device, self.dtype))
        patches = tokens[:, 1:].unflatten(1, (dinov2.GRID, dinov2.GRID)).permute(0, 3, 1, 2)
        return torch.cat([tokens[:, :1], F.avg_pool2d(patches, 2).flatten(2).mT], 1).half().cpu()


def encode(work: Path, pairs: Path, device: torch.device) -> None:
    """Tokens of the pictures (whole, and one view) and of the clips (and mirrored)."""
    tower = Tower(device)
    generator = torch.Generator(device).manual_seed(0)
    found = [words_data.read_pictures(work, name) for name in PICTURES if (work / f"{name}.0.pack").exists()]
    (work / "pictures.json").write_text(json.dumps([name for names, _ in found for name in names]))
    pictures = np.concatenate([pictures for _, pictures in found])
    texts = words_data.read_texts(pairs / "coco_captions.tsv.gz")
    (work / "sentences.json").write_text(json.dumps([texts[name][0] for name in found[0][0][:HELD_OUT]]))
    for view in (0, 2):
        parts = []
        for start in range(0, len(pictures), 512):
            batch = torch.from_numpy(pictures[start : start + 512]).to(device).permute(0, 3, 1, 2).float() / 255
            parts.append(tower.encode(words_data.make_view(batch, view, generator)))
        torch.save(torch.cat(parts), work / f"pictures.{view}.pt")
    index = json.loads((work / "egtea.json").read_text())
    clips = []
    with ProcessPoolExecutor() as pool:
        for frames in pool.map(_read_clip, [(work / "egtea.pack", row) for row in index], chunksize=4):
            shown = torch.from_numpy(frames)
            clips.append(tower.encode(torch.cat([shown, shown.flip(-1)])).unflatten(0, (2, NUM_FRAMES)))
    torch.save(torch.stack(clips), work / "clips.pt")


# Training


class Additions(nn.Module):
    """A linear layer that learns an addition of low rank: W x + b + B A x."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer, self.is_used = layer, True
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) * layer.in_features**-0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y + 2 * (x @ self.a.T) @ self.b.T if self.is_used else y


class TextNetwork(nn.Module):
    """MiniLM: texts to unit vectors (N, 384), with additions that learn if the rank is not 0."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        from tokenizers import Tokenizer
        from transformers import BertModel

        folder = weights.get("minilm")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(40)
        self.tokenizer.enable_padding(pad_id=0)
        self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False).eval().requires_grad_(False)
        self.additions: dict[str, Additions] = {}
        for i, block in enumerate(self.bert.encoder.layer):
            for name in LAYERS if rank else ():
                parent, _, last = name.rpartition(".")
                addition = Additions(block.get_submodule(name), rank)
                setattr(block.get_submodule(parent), last, addition)
                self.additions[f"encoder.layer.{i}.{name}"] = addition

    def use_additions(self, is_used: bool) -> None:
        for addition in self.additions.values():
            addition.is_used = is_used

    def forward(self, texts: list[str]) -> Tensor:
        device = next(self.bert.parameters()).device
        parts = []
        for first in range(0, len(texts), 2048):
            encoded = self.tokenizer.encode_batch(texts[first : first + 2048])
            ids = torch.tensor([text.ids for text in encoded], device=device)
            mask = torch.tensor([text.attention_mask for text in encoded], device=device)
            hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            parts.append(F.normalize((hidden * mask[..., None]).sum(1).float(), dim=-1))
        return torch.cat(parts)

    def export(self) -> dict[str, np.ndarray]:
        """The additions, as `hiero.text.minilm` reads them."""
        out = {}
        for name, addition in self.additions.items():
            out[f"minilm.{name}.a"], out[f"minilm.{name}.b"] = addition.a.detach(), 2 * addition.b.detach()
        return {name: value.half().cpu().numpy() for name, value in out.items()}


class Head(nn.Module):
    """The head of a file: similarity of MiniLM's vectors of texts with tokens of pictures."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.picture, self.patch = TwoLayers(768, 1024, 256), TwoLayers(384, 768, 256)
        self.text = TwoLayers(384, 1024, 512)
        parts = ("picture.", "patch.", "text.", "pooling")
        arrays = {
            name: torch.from_numpy(array).float() for part in parts for name, array in load_arrays(file, part).items()
        }
        self.pooling = float(arrays.pop("pooling")[0])
        self.load_state_dict(arrays)

    def forward(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """(Q, 384) and (N, 65, 384) → (Q, N)."""
        tokens = tokens.float()
        pictures = self.picture(torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], 1))
        for_picture, for_patches = (F.normalize(half, dim=-1) for half in self.text.raw(vectors).chunk(2, -1))
        cosines = torch.einsum("qd,nmd->qnm", for_patches, self.patch(tokens[:, 1:]))
        chosen = ((self.pooling * cosines).softmax(-1) * cosines).sum(-1)
        return for_picture @ pictures.T + chosen

    def compare_clips(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """(Q, 384) and (N, F, 65, 384) → (Q, N), the mean over frames."""
        return self(vectors, tokens.flatten(0, 1)).unflatten(1, tokens.shape[:2]).mean(2)

    def save(self, path: Path, additions: dict[str, np.ndarray]) -> None:
        arrays = {name: value.half().cpu().numpy() for name, value in self.state_dict().items()}
        save_arrays(path, {**arrays, **additions, "pooling": np.array([self.pooling], np.float32)})


class Tuning:
    """All data on the device, the head at the start, and the head and the text network that learn."""

    def __init__(self, work: Path, head: Path, args: argparse.Namespace, device: torch.device) -> None:
        self.device, self.random, self.args = device, np.random.default_rng(args.seed), args
        torch.manual_seed(args.seed)
        self.embed = TextNetwork(args.rank).to(device)
        self.pictures = [torch.load(work / f"pictures.{view}.pt").to(device) for view in (0, 2)]
        texts = read_texts(args.pairs)
        self.texts = [texts.get(name, {}) for name in json.loads((work / "pictures.json").read_text())]
        self.clip_tokens = torch.load(work / "clips.pt").to(device)
        self.clips = Clips(work, [row[0] for row in json.loads((work / "egtea.json").read_text())])
        self.training = np.flatnonzero(np.isin(self.clips.parts, ["train", "dev"] if args.all_videos else ["train"]))
        self.noun_sets = sorted({self.clips.nouns[i] for i in self.training})
        self.head = Head(head).to(device)
        self.start = copy.deepcopy(self.head).eval().requires_grad_(False)

    def picture_loss(self, chosen: np.ndarray) -> Tensor:
        """InfoNCE of pictures and texts, of which equal ones are no negatives; and the similarities at the start."""
        drawn = []
        for i in chosen:
            kinds = list(self.texts[i])
            odds = np.array([KINDS[kind] for kind in kinds])
            of_kind = self.texts[i][kinds[self.random.choice(len(kinds), p=odds / odds.sum())]]
            drawn.append(of_kind[self.random.integers(len(of_kind))])
        self.embed.use_additions(False)
        with torch.no_grad():
            vectors_before = self.embed(drawn)
        self.embed.use_additions(True)
        vectors = self.embed(drawn)
        tokens = self.pictures[self.random.integers(len(self.pictures))][torch.from_numpy(chosen).to(self.device)]
        same = (vectors_before @ vectors_before.T > 0.85).fill_diagonal_(False)
        logits = SCALE * self.head(vectors, tokens).float()
        with torch.no_grad():
            before = SCALE * self.start(vectors_before, tokens).float()
        kept = sum(
            F.kl_div(a.log_softmax(1), b.log_softmax(1), log_target=True, reduction="batchmean")
            for a, b in ((logits, before), (logits.T, before.T))
        )
        return _contrast(logits, same) + KEEP_WEIGHT * kept / 2

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
        vectors = self.embed([write_text(verb, nouns, random) for verb, nouns in told + swapped])
        also_true = torch.from_numpy(self.clips.is_true(told + swapped, chosen)).to(self.device)
        also_true[:num].fill_diagonal_(False)
        frames = sorted(random.choice(NUM_FRAMES, random.integers(1, 4), replace=False).tolist())
        tokens = self.clip_tokens[torch.from_numpy(chosen).to(self.device), int(random.integers(2))][:, frames]
        return _contrast(SCALE * self.head.compare_clips(vectors, tokens).float(), also_true)

    def train(self) -> None:
        groups = [{"params": [*self.head.parameters()], "weight_decay": DECAY, "most": RATE}]
        if self.args.rank:
            learned = [p for p in self.embed.parameters() if p.requires_grad]
            groups.append({"params": learned, "weight_decay": TEXT_DECAY, "most": TEXT_RATE})
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
        items = np.array([i for i, texts in enumerate(self.texts) if texts and i >= HELD_OUT])
        num_steps = self.args.steps
        self.head.train()
        for step in range(num_steps):
            cosine = 0.5 * (1 + math.cos(math.pi * step / num_steps))
            for group in optimizer.param_groups:
                group["lr"] = group["most"] * min(1.0, (step + 1) / WARM_UP) * cosine
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.picture_loss(self.random.choice(items, self.args.batch, replace=False))
                if self.args.clip_weight:
                    loss = loss + self.args.clip_weight * self.clip_loss(self.args.clips)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            for group in optimizer.param_groups:
                torch.nn.utils.clip_grad_norm_(group["params"], 5.0)
            optimizer.step()
            if step % 50 == 49:
                print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
        self.head.eval()


def _contrast(logits: Tensor, ignored: Tensor) -> Tensor:
    """Symmetric InfoNCE of (Q, N): row i belongs to column i, rows after the first N to none."""
    logits = logits.masked_fill(ignored, -1e4)
    target = torch.arange(logits.shape[1], device=logits.device)
    return (F.cross_entropy(logits[: len(target)], target) + F.cross_entropy(logits.T, target)) / 2


# Report


def judge(compare: Callable[[list[str]], np.ndarray], clips: Clips, chosen: np.ndarray) -> dict[str, np.ndarray]:
    """What is right of chosen clips, given the similarity of texts with each of them, (Q, N).

    Each is told by its name among all names, by its verb among ten, and as opening or closing.
    """
    labels = [(int(clips.verbs[i]), clips.nouns[i]) for i in chosen]
    names = sorted(set(labels))
    rank = _rank(compare([write_text(*name) for name in names]), np.array([names.index(x) for x in labels]), 0)
    out = {f"first of {len(names)} names": rank < 1, "among the first five": rank < 5}
    has_verb = np.array([i for i, (verb, _) in enumerate(labels) if verb])
    verbs = np.array([labels[i][0] - 1 for i in has_verb])
    out["first of ten verbs"] = _rank(compare([write_text(v, ()) for v in VERBS])[:, has_verb], verbs, 0) < 1
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


@torch.inference_mode()
def score(work: Path, head_path: Path, part: str, device: torch.device) -> dict[str, list[float]]:
    """What `judge` finds for the clips of a part, with a head; and its recall on COCO, if encoded."""
    clips, chosen, compare = _comparison(work, head_path, part, device)
    out = summarise(judge(compare, clips, chosen))
    if (work / "pictures.0.pt").exists():
        pictures = torch.load(work / "pictures.0.pt")[:HELD_OUT, None]
        sentences = json.loads((work / "sentences.json").read_text())
        rank = _rank(compare(sentences, pictures), np.arange(HELD_OUT), 1)
        out |= summarise({"COCO R@1": rank < 1, "COCO R@5": rank < 5})
    return out


def _comparison(
    work: Path, head_path: Path, part: str, device: torch.device
) -> tuple[Clips, np.ndarray, Callable[..., np.ndarray]]:
    """All clips, those of a part, and the similarity of texts with two frames of each of them, or with other tokens."""
    index = json.loads((work / "egtea.json").read_text())
    clips = Clips(work, [row[0] for row in index])
    chosen = np.flatnonzero(clips.parts == part)
    head = Head(head_path).to(device).eval()
    additions = load_arrays(head_path, "minilm.")
    additions = {name.removeprefix("minilm."): array for name, array in additions.items()}
    network = load_minilm(device).tuned(additions)
    if (work / "clips.pt").exists():
        tokens = torch.load(work / "clips.pt")[chosen, 0][:, [1, 4]]
    else:
        tower = Tower(device)
        frames = (_read_clip((work / "egtea.pack", index[i]))[[1, 4]] for i in chosen)
        tokens = torch.stack([tower.encode(torch.from_numpy(pair)) for pair in frames])

    def compare(texts: list[str], tokens: Tensor = tokens) -> np.ndarray:
        vectors = torch.from_numpy(network.encode(texts)).to(device)
        rows = [
            torch.cat([head.compare_clips(v, part.to(device)) for part in tokens.split(64)], 1)
            for v in vectors.split(64)
        ]
        return torch.cat(rows).cpu().numpy()

    return clips, chosen, compare


def mean_of_heads(ends: list[Path], start: Path, share: float, out: Path) -> None:
    """A mean of the weights at the start and, with a share, at the ends of runs.

    Of the additions to MiniLM, which are none at the start, it is the nearest of the usual rank.
    """
    heads, before = [load_arrays(file) for file in ends], load_arrays(start)
    mean = {}
    for name, value in heads[0].items():
        if not name.startswith("minilm."):
            of_ends = np.mean([head[name].astype(np.float32) for head in heads], axis=0)
            mean[name] = (share * of_ends + (1 - share) * before[name].astype(np.float32)).astype(value.dtype)
        elif name.endswith(".a"):
            layer = name.removesuffix(".a")
            products = [h[f"{layer}.b"].astype(np.float32) @ h[f"{layer}.a"].astype(np.float32) for h in heads]
            left, strength, right = np.linalg.svd(share * np.mean(products, axis=0), full_matrices=False)
            mean[name] = right[:RANK].astype(np.float16)
            mean[f"{layer}.b"] = (left * strength)[:, :RANK].astype(np.float16)
    save_arrays(out, mean)


def _rank(similarity: np.ndarray, truth: np.ndarray, axis: int) -> np.ndarray:
    """How many are before the truth, along an axis."""
    right = np.take_along_axis(similarity, np.expand_dims(truth, axis), axis)
    return np.asarray((similarity > right).sum(axis))


def _share(right: np.ndarray) -> float:
    return round(100 * float(right.mean()), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["pack", "encode", "tune", "mean", "score"])
    parser.add_argument("paths", type=Path, nargs="+", metavar="WORK", help="for `mean`, heads")
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--head", type=Path, help="file to start from, or to score")
    parser.add_argument("--share", type=float, default=SHARE, help="of the ends of runs in their mean with the start")
    parser.add_argument("--rank", type=int, default=RANK, help="of the additions to MiniLM; 0 for none")
    parser.add_argument("--clip-weight", type=float, default=CLIP_WEIGHT, help="of clips beside pictures")
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--batch", type=int, default=BATCH_SIZE)
    parser.add_argument("--clips", type=int, default=CLIP_BATCH, help="clips of a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all-videos", action="store_true", help="learn from the held-out videos too")
    parser.add_argument("--part", choices=["dev", "valid"], default="valid", help="choose nothing on valid")
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    work = args.paths[0]
    if args.command == "pack":
        pack(work, args.clones)
    elif args.command == "encode":
        encode(work, args.pairs, device)
    elif args.command == "mean":
        mean_of_heads(args.paths, args.head, args.share, args.out)
    elif args.command == "score":
        print(json.dumps(score(work, args.head, args.part, device), indent=1))
    else:
        tuning = Tuning(work, args.head, args, device)
        tuning.train()
        tuning.head.save(args.out, tuning.embed.export())


if __name__ == "__main__":
    main()
