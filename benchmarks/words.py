"""The words of hiero: vectors of the bundled labels, the vocabulary, and a report on real videos.

    python -m benchmarks.words labels    vectors of the bundled labels, into the package
    python -m benchmarks.words phrases TEXTS    bundled labels whose words no text in the .gz files of a folder contains
    python -m benchmarks.words template    DINOv2's ONNX file without its weights, into the package
    python -m benchmarks.words score CLIPS    `ask`, `search`, `steps` on real first-person videos

The weights come from `benchmarks.words_train`.
`score` reads videos with what ships, as a user's are; it chose the settings of
hiero/engine/video.py, so it is no test of them.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import words_texts
from benchmarks.words_score import score
from hiero.engine.vocabulary import class_names, default_labels, rich_labels
from hiero.networks import joint_text
from hiero.networks.minilm import LABEL_VECTORS, compute_minilm
from hiero.networks.vector_cache import text_digest
from hiero.storage import weights
from hiero.storage.files import ASSETS, load_arrays, save_arrays


def write_label_vectors() -> None:
    """Vectors of all bundled labels and of the names of classes, into the package: by MiniLM, and by each head."""

    def digests(texts: list[str]) -> np.ndarray:
        return np.frombuffer(b"".join(map(text_digest, texts)), dtype=np.uint8).reshape(len(texts), -1)

    labels = [*default_labels(), *rich_labels()]
    texts = list(dict.fromkeys([*class_names(), *labels]))
    vectors = compute_minilm(texts).astype(np.float16)
    save_arrays(LABEL_VECTORS, {"digests": digests(texts), "vectors": vectors})
    print(f"{LABEL_VECTORS}: {len(texts)} texts, {LABEL_VECTORS.stat().st_size / 1e6:.1f} MB")
    for name, file in joint_text.HEAD_FILES.items():
        head = {name: array for name, array in load_arrays(file).items() if not name.startswith("labels.")}
        vectors = joint_text.encode_new_texts(labels, name).astype(np.float16)
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
        slots.append({"offset": len(rest), "tensors": hub_tensors(name), "transpose": transpose, "skip": skip})
        end = start + len(tensor.raw_data)
    path = ASSETS / "dinov2-text" / "template.json.gz"
    document = {"content": base64.b64encode(rest + content[end:]).decode(), "slots": slots}
    path.write_bytes(gzip.compress(json.dumps(document).encode(), 9, mtime=0))
    print(f"{path}: {len(slots)} tensors, {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("labels")
    commands.add_parser("template")
    commands.add_parser("phrases").add_argument("texts", type=Path)
    commands.add_parser("score").add_argument("clips", type=Path)
    args = parser.parse_args()
    if args.command == "labels":
        write_label_vectors()
    elif args.command == "template":
        write_template()
    elif args.command == "phrases":
        print("\n".join(words_texts.unheard_phrases(rich_labels(), sorted(args.texts.glob("*.gz")))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            score(args.clips, Path(folder))


if __name__ == "__main__":
    main()
