"""Words on real pictures: the head of assets/dinov2-text, from pictures with sentences to a report on real videos.

    python -m benchmarks.words pack WORK --clones CLONES --pairs PAIRS
        pictures out of clones of their repositories (CPU, minutes)
    python -m benchmarks.words encode WORK --pairs PAIRS   features of all views, and texts (3 minutes on an H200)
    python -m benchmarks.words train WORK -o HEAD.safetensors [--teachers N]
        the head, and its recall on held-out pictures (1 minute; with N others first, whose mean it learns as well)
    python -m benchmarks.words labels   vectors of the bundled labels, into the package
    python -m benchmarks.words phrases TEXTS   bundled labels whose words no text in the .gz files of a folder contains
    python -m benchmarks.words score CLIPS   `ask`, `search`, `steps` on real first-person videos

CLONES holds bare clones owner+name/repo; PAIRS the texts, CLIPS the videos: see their README.
`score` reads videos with what ships, as a user's are; it chose the settings of
hiero/engine/video.py, so it is no test of them.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks import words_data
from benchmarks.words_score import score
from hiero.backbones.dinov2 import PictureHead, TwoLayers
from hiero.storage.files import ASSETS

HELD_OUT = 1000  # pictures of COCO and of Flickr8k, in the order of the packs
BATCH_SIZE, ENCODE_BATCH = 1024, 512
EPOCHS, WARM_UP, RATE, DECAY = 24, 100, 1e-3, 0.1
TEXT_NOISE = 0.02
DOING_SHARE, THING_SHARE = 0.2, 0.15  # of texts that are phrases, with and without a verb
SAME_TEXT = 0.85  # cosine above which two sentences of a batch are no negatives of each other
LABEL_WEIGHT, LABEL_BATCH = 1.0, 512
MAX_SCALE = 100.0
DISTILLATION_WEIGHT = 1.0  # of what teachers say, beside the loss of the pairs


# Features


def encode(work: Path, pairs: Path, device: torch.device) -> None:
    """Tokens of all views, 1 + 8 × 8 a picture, in half precision; and the vectors of all texts."""
    from hiero.backbones.dinov2 import GRID, load
    from hiero.storage import weights

    network = load(weights.get("dinov2-text")).network.to(device)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    network = network.to(dtype)
    for name, num_views in words_data.VIEWS.items():
        if not (work / f"{name}.0.pack").exists():
            continue
        names, pictures = words_data.read_pictures(work, name)
        (work / f"{name}.names.json").write_text(json.dumps(names))
        for view in range(num_views):
            generator = torch.Generator(device).manual_seed(view)
            rows = []
            with torch.inference_mode():
                for start in range(0, len(pictures), ENCODE_BATCH):
                    batch = (
                        torch.from_numpy(pictures[start : start + ENCODE_BATCH]).to(device).permute(0, 3, 1, 2).float()
                        / 255
                    )
                    tokens = network(words_data.make_view(batch, view, generator).to(dtype)).float()
                    patches = (
                        F.avg_pool2d(tokens[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2), 2).flatten(2).mT
                    )
                    rows.append(torch.cat([tokens[:, :1], patches], 1).half().cpu().numpy())
            np.save(work / f"{name}.view{view}.npy", np.concatenate(rows))
        print(f"{name}: {len(names)} pictures, {num_views} views")
    encode_all_texts(work, pairs, device)


def encode_all_texts(work: Path, pairs: Path, device: torch.device) -> None:
    """Vectors of all texts that training draws from, each once, and which of them belong to which picture."""
    from hiero.text.minilm import MiniLMEncoder

    index: dict[str, int] = {}

    def number(texts: list[str]) -> list[int]:
        return [index.setdefault(text, len(index)) for text in texts]

    pictures = {}
    for name, source in words_data.SOURCES.items():
        if (work / f"{name}.names.json").exists():
            sentences = words_data.read_texts(pairs / source.texts)
            names = json.loads((work / f"{name}.names.json").read_text())
            pictures[name] = [
                [number(texts) for texts in words_data.texts_of_picture(name, sentences[n])] for n in names
            ]
    labels = {n: texts[0].split(",") for n, texts in words_data.read_texts(pairs / "coco_labels.tsv.gz").items()}
    classes = sorted({label for of_picture in labels.values() for label in of_picture})
    prompts = [number([prompt.format(label) for prompt in words_data.PROMPTS]) for label in classes]
    labelled = work / f"{words_data.LABELLED}.names.json"
    of_pictures = [
        [classes.index(c) for c in labels.get(n, [])]
        for n in (json.loads(labelled.read_text()) if labelled.exists() else [])
    ]
    np.save(work / "texts.npy", MiniLMEncoder(device).encode(list(index)).astype(np.float16))
    (work / "texts.json").write_text(json.dumps({"pictures": pictures, "prompts": prompts, "labels": of_pictures}))


# Training


class JointHead(nn.Module):
    """The head while it learns: pictures, patches and texts, and the scales of their cosines."""

    def __init__(self, text_size: int = 384, size: int = 384, outputs: int = 256) -> None:
        super().__init__()
        self.pictures, self.text = PictureHead(), TwoLayers(text_size, 1024, 2 * outputs)
        self.size = outputs
        # Scales of whole pictures, of patches, of the choice among patches; of both together.
        self.scales = nn.Parameter(torch.tensor([15.0, 15.0, 20.0, 10.0, 10.0]).log())
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))

    def embed_pictures(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (N, 65, 384) → (N, D) and (N, 64, D)."""
        tokens = (tokens.float() - self.mean) / self.deviation
        whole = torch.cat([tokens[:, 0], 2 * tokens[:, 1:].mean(1)], 1)
        return self.pictures.picture(whole), self.pictures.patch(tokens[:, 1:])

    def embed_texts(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """MiniLM's vectors (Q, 384) → for whole pictures and for patches, (Q, D) each."""
        return tuple(F.normalize(half, dim=-1) for half in self.text.raw(vectors).chunk(2, -1))  # type: ignore[return-value]

    def similarity(self, texts: tuple[Tensor, Tensor], pictures: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """(Q, N) with whole pictures, and with the patches that each text chooses."""
        cosines = torch.einsum("qd,nmd->qnm", texts[1], pictures[1])
        return texts[0] @ pictures[0].T, ((cosines * self.scales[2].exp()).softmax(-1) * cosines).sum(-1)

    def combine(self, whole: Tensor, patches: Tensor) -> list[Tensor]:
        """Logits of whole pictures, of patches, and of both together, from their similarity with
        texts, (Q, N) each.
        """
        scales = self.scales.exp().clamp(max=MAX_SCALE)
        return [scales[0] * whole, scales[1] * patches, scales[3] * whole + scales[4] * patches]

    def logits(self, vectors: Tensor, tokens: Tensor) -> list[Tensor]:
        """The same from the vectors of texts and the tokens of pictures."""
        return self.combine(*self.similarity(self.embed_texts(vectors), self.embed_pictures(tokens)))

    def export(self) -> dict[str, np.ndarray]:
        """The arrays of assets/dinov2-text, in half precision: the tokens' normalisation goes into
        the first layers.
        """
        out = {}
        shift, scale = (self.mean / self.deviation).double(), 1 / self.deviation.double()
        for part, layers in (("picture", self.pictures.picture), ("patch", self.pictures.patch), ("text", self.text)):
            for layer in ("hidden", "skip", "out"):
                linear = getattr(layers, layer)
                weight, bias = linear.weight.detach().double(), linear.bias.detach().double()
                if layer != "out" and part == "picture":
                    factors = torch.cat([scale, 2 * scale])
                    bias = bias - weight @ torch.cat([shift, 2 * shift])
                    weight = weight * factors
                elif layer != "out" and part == "patch":
                    bias, weight = bias - weight @ shift, weight * scale
                out[f"{part}.{layer}.weight"], out[f"{part}.{layer}.bias"] = (
                    x.half().cpu().numpy() for x in (weight, bias)
                )
        out["pooling"] = self.scales[2].detach().exp().float().cpu().numpy()[None]
        return out


class Pairs:
    """All that heads learn from, on the device."""

    def __init__(self, work: Path, device: torch.device) -> None:
        self.texts = json.loads((work / "texts.json").read_text())
        self.vectors = F.normalize(torch.from_numpy(np.load(work / "texts.npy")).to(device).float(), dim=1)
        self.tokens, self.first_row, self.num_views = _load_views(work, list(self.texts["pictures"]), device)
        self.labelled = _load_views(work, [words_data.LABELLED], device)[0] if self.texts["labels"] else None
        self.held_out = {"coco": min(HELD_OUT, len(self.texts["pictures"]["coco"]) // 4), "flickr8k": HELD_OUT}

    def recall(self, heads: Sequence[JointHead]) -> dict[str, dict[str, float]]:
        """Of the mean of heads, on the held-out pictures of each source."""
        out = {}
        for name, num in self.held_out.items():
            pictures = self.texts["pictures"].get(name, ())
            if len(pictures) > num:
                first_texts = self.vectors[[kinds[0][0] for kinds in pictures[:num]]]
                out[name] = recall_of(heads, first_texts, self.tokens[self.first_row[name] :][:num])
        return out


def train(
    work: Path,
    out: Path,
    device: torch.device,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    seed: int = 0,
    num_teachers: int = 0,
) -> dict:
    """Train the head by a contrastive loss between pictures and their sentences, and write it; returns its recall.

    Args:
        work: Folder of features and texts.
        out: File of the head.
        device: Where to train.
        epochs: Passes over all pictures.
        batch_size: Pairs of a step.
        seed: Of weights, order and noise.
        num_teachers: Heads of other seeds that are trained before. Their mean is better than each;
            the head learns it as well, and costs what one costs.
    """
    from hiero.storage.files import save_arrays

    pairs, recall = Pairs(work, device), {}
    teachers = []
    for i in range(num_teachers):
        teachers.append(train_head(pairs, device, epochs, batch_size, seed + 1 + i).eval().requires_grad_(False))
        print(json.dumps({f"teacher {i}": pairs.recall(teachers[-1:])}), flush=True)
    if teachers:
        recall["mean of teachers"] = pairs.recall(teachers)
    head = train_head(pairs, device, epochs, batch_size, seed, teachers).eval()
    save_arrays(out, head.export())
    return recall | pairs.recall([head])


def train_head(
    pairs: Pairs, device: torch.device, epochs: int, batch_size: int, seed: int, teachers: Sequence[JointHead] = ()
) -> JointHead:
    """One head, which also learns the mean of what teachers say, if there are any."""
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    texts, vectors, tokens_of, labelled = pairs.texts, pairs.vectors, pairs.tokens, pairs.labelled
    first_row, num_views = pairs.first_row, pairs.num_views
    items = [
        (name, i) for name, rows in texts["pictures"].items() for i in range(pairs.held_out.get(name, 0), len(rows))
    ]
    head = JointHead(vectors.shape[1]).to(device)
    sample = tokens_of[first_row["coco"] :][:4000].float()
    head.mean, head.deviation = sample.mean((0, 1)), sample.std((0, 1))
    label_bias = nn.Parameter(torch.full((len(texts["prompts"]),), -4.0, device=device))
    matrices = [p for p in head.parameters() if p.ndim > 1]
    others = [label_bias, *(p for p in head.parameters() if p.ndim <= 1)]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    batch_size = min(batch_size, len(items))
    num_steps = epochs * (len(items) // batch_size)
    step = 0
    for _ in range(epochs):
        order = random.permutation(len(items))
        for start in range(0, len(items) - batch_size + 1, batch_size):
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / num_steps))
            chosen = [items[i] for i in order[start : start + batch_size]]
            numbers = [_draw_text(texts["pictures"][name][i], random) for name, i in chosen]
            rows = [
                first_row[name] + random.integers(num_views[name]) * len(texts["pictures"][name]) + i
                for name, i in chosen
            ]  # of any view
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = _contrastive_loss(head, vectors[numbers], tokens_of[rows], teachers)
                if labelled is not None:
                    loss = loss + LABEL_WEIGHT * _label_loss(head, labelled, texts, vectors, label_bias, random)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
    return head


def _load_views(work: Path, names: list[str], device: torch.device) -> tuple[Tensor, dict[str, int], dict[str, int]]:
    """Tokens of all views of some sources, one after the other; the first row of each source, and
    its number of views.
    """
    parts: list[Tensor] = []
    first_row, num_views = {}, {}
    for name in names:
        files = sorted(work.glob(f"{name}.view*.npy"))
        first_row[name], num_views[name] = sum(map(len, parts)), len(files)
        parts += [torch.from_numpy(np.load(file)) for file in files]
    return torch.cat(parts).to(device), first_row, num_views


def _draw_text(kinds: list[list[int]], random: np.random.Generator) -> int:
    """A sentence of the picture, or a phrase out of one."""
    sentences, doings, things = kinds
    draw = random.random()
    if draw < DOING_SHARE and doings:
        return doings[random.integers(len(doings))]
    if draw < DOING_SHARE + THING_SHARE and things:
        return things[random.integers(len(things))]
    return sentences[random.integers(len(sentences))]


def _contrastive_loss(head: JointHead, vectors: Tensor, tokens: Tensor, teachers: Sequence[JointHead] = ()) -> Tensor:
    """Symmetric InfoNCE of whole pictures, of patches, and of both together; equal sentences are no negatives.

    With teachers also the cross-entropy with the mean of their logits, of each of the three.
    """
    same = (vectors @ vectors.T > SAME_TEXT).fill_diagonal_(False)
    noisy = vectors + TEXT_NOISE * torch.randn_like(vectors)
    whole, patches = head.similarity(head.embed_texts(noisy), head.embed_pictures(tokens))
    target = torch.arange(len(vectors), device=vectors.device)
    taught: list[Tensor] = [
        sum(parts) / len(teachers) for parts in zip(*(t.logits(vectors, tokens) for t in teachers), strict=True)
    ]

    def loss(logits: Tensor, targets: Tensor | None) -> Tensor:
        logits = logits.float().masked_fill(same, -1e4)
        out = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        if targets is not None:
            targets = targets.float().masked_fill(same, -1e4)
            soft = F.cross_entropy(logits, targets.softmax(1)) + F.cross_entropy(logits.T, targets.T.softmax(1))
            out = out + DISTILLATION_WEIGHT * soft / 2
        return out

    logits = head.combine(whole, patches)
    return sum(map(loss, logits, taught or [None] * len(logits)), torch.zeros((), device=vectors.device))


def _label_loss(
    head: JointHead, labelled: Tensor, texts: dict, vectors: Tensor, bias: Tensor, random: np.random.Generator
) -> Tensor:
    """Binary cross-entropy of 80 class names with pictures that have no sentences."""
    rows = random.integers(len(labelled), size=min(LABEL_BATCH, len(labelled)))
    truth = torch.zeros(len(rows), len(texts["prompts"]), device=vectors.device)
    for row, i in enumerate(rows):
        truth[row, texts["labels"][i]] = 1
    prompts = [of_class[random.integers(len(of_class))] for of_class in texts["prompts"]]
    whole, patches = head.similarity(head.embed_texts(vectors[prompts]), head.embed_pictures(labelled[rows]))
    scales = head.scales.exp()
    return F.binary_cross_entropy_with_logits((scales[3] * whole + scales[4] * patches).float().T + bias, truth)


@torch.inference_mode()
def recall_of(heads: Sequence[JointHead], vectors: Tensor, tokens: Tensor) -> dict[str, float]:
    """A sentence's own picture among all, in percent: first, and among five. By the mean of heads."""
    both = sum(
        (head.logits(vectors, tokens)[2] for head in heads),
        torch.zeros(len(vectors), len(tokens), device=vectors.device),
    )
    rank = (both > both.diagonal()[:, None]).sum(1).float()
    return {f"R@{k}": round(100 * float((rank < k).float().mean()), 1) for k in (1, 5)}


def write_label_vectors() -> None:
    """Vectors of all bundled labels and of the names of classes, into the package: by MiniLM, and by each head."""
    from hiero.engine.video_nodes import class_names, default_labels, rich_labels
    from hiero.storage.files import load_arrays, save_arrays
    from hiero.text import joint_text
    from hiero.text.minilm import LABEL_VECTORS, MiniLMEncoder
    from hiero.text.vector_cache import text_digest

    def digests(texts: list[str]) -> np.ndarray:
        return np.frombuffer(b"".join(map(text_digest, texts)), dtype=np.uint8).reshape(len(texts), -1)

    labels = [*default_labels(), *rich_labels()]
    texts = list(dict.fromkeys([*class_names(), *labels]))
    vectors = MiniLMEncoder().encode(texts).astype(np.float16)
    save_arrays(LABEL_VECTORS, {"digests": digests(texts), "vectors": vectors})
    print(f"{LABEL_VECTORS}: {len(texts)} texts, {LABEL_VECTORS.stat().st_size / 1e6:.1f} MB")
    file = joint_text.head_file()
    head = {name: array for name, array in load_arrays(file).items() if not name.startswith("labels.")}
    vectors = joint_text.encode_new_texts(labels).astype(np.float16)
    save_arrays(file, {**head, "labels.digests": digests(labels), "labels.vectors": vectors})
    print(f"{file}: {len(labels)} labels, {file.stat().st_size / 1e6:.1f} MB")


# Of names in DINOv2's own code to those in the hub's file.
HUB_NAMES = {
    "blocks.": "encoder.layer.",
    "attn.qkv": "attention.attention.qkv",
    "attn.proj": "attention.output.dense",
    "ls1.gamma": "layer_scale1.lambda1",
    "ls2.gamma": "layer_scale2.lambda1",
    "cls_token": "embeddings.cls_token",
    "pos_embed": "embeddings.position_embeddings",
    "patch_embed.proj": "embeddings.patch_embeddings.projection",
}
PRODUCTS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")  # of each block in turn; the ONNX file has no names for them


def write_template() -> None:
    """DINOv2's ONNX file without its weights, and where those of the hub's file belong in it, into the package."""
    import onnx

    from hiero.storage import weights
    from hiero.storage.weights import Slot, Template

    def hub_tensors(name: str) -> list[str]:
        name = "layer" + name if name.startswith("norm.") else name
        for old, new in HUB_NAMES.items():
            name = name.replace(old, new)
        return [name.replace("qkv", part) for part in ("query", "key", "value")] if "qkv" in name else [name]

    content = (weights.get("dinov2-text") / "dinov2_vits14.onnx").read_bytes()
    num_products, rest, slots, end = 0, b"", [], 0
    for tensor in onnx.load_from_string(content).graph.initializer:
        name, transpose, skip = tensor.name.removeprefix("model."), False, 0
        if name.startswith("onnx::MatMul"):
            block, i = divmod(num_products, len(PRODUCTS))
            name, transpose, num_products = f"blocks.{block}.{PRODUCTS[i]}.weight", True, num_products + 1
        elif name.startswith("onnx::Reshape"):  # but for the first token's
            name, skip = "pos_embed", tensor.dims[2]
        start = content.index(tensor.raw_data, end)
        rest += content[end:start]
        slots.append(Slot(len(rest), hub_tensors(name), transpose, skip))
        end = start + len(tensor.raw_data)
    path = ASSETS / "dinov2-text" / "template.json.gz"
    Template(rest + content[end:], slots).save(path)
    print(f"{path}: {len(slots)} tensors, {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "work", type=Path, nargs="?", help="folder of packs and features; for `score` that of the clips"
    )
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--limit", type=int, help="pictures of each source, for a try")
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--teachers", type=int, default=0)
    import sys

    command = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if command == "pack":
        words_data.pack_pictures(args.clones, args.pairs, args.work, args.limit)
    elif command == "encode":
        encode(args.work, args.pairs, device)
    elif command == "train":
        print(json.dumps(train(args.work, args.out, device, seed=args.seed, num_teachers=args.teachers)))
    elif command == "phrases":
        from hiero.engine.video_nodes import rich_labels

        print("\n".join(words_data.unheard_phrases(rich_labels(), sorted(args.work.glob("*.gz")))))
    elif command == "labels":
        write_label_vectors()
    elif command == "template":
        write_template()
    elif command == "score":
        with tempfile.TemporaryDirectory() as folder:
            score(args.work, Path(folder))
    else:
        parser.error("say what to do: pack, encode, train, labels, phrases, template or score")


if __name__ == "__main__":
    main()
