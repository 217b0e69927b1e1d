"""Write files of hiero/assets that are computed from others.

python -m tools.assets labels      vectors of the bundled labels; after a change of words.txt, vocabulary.txt, steps.txt
python -m tools.assets template    DINOv2's ONNX file without its weights
"""

from __future__ import annotations

import argparse
import base64
import gzip
import json

import numpy as np

from hiero.engine.vocabulary import class_names, default_labels, rich_labels, word_texts
from hiero.networks import joint_text
from hiero.networks.minilm import LABEL_VECTORS, compute_minilm
from hiero.networks.vector_cache import text_digest
from hiero.storage import weights
from hiero.storage.files import ASSETS, load_arrays, save_arrays


def write_label_vectors() -> None:
    """Encode all bundled labels and class names with MiniLM and with each head."""

    def digests(texts: list[str]) -> np.ndarray:
        return np.frombuffer(b"".join(map(text_digest, texts)), dtype=np.uint8).reshape(len(texts), -1)

    verbs, things = word_texts()
    labels = [*default_labels(), *rich_labels(), *verbs, *things]
    texts = list(dict.fromkeys([*class_names(), *labels]))
    vectors = compute_minilm(texts).astype(np.float16)
    save_arrays(LABEL_VECTORS, {"digests": digests(texts), "vectors": vectors})
    print(f"{LABEL_VECTORS}: {len(texts)} texts, {LABEL_VECTORS.stat().st_size / 1e6:.1f} MB")
    for name, file in joint_text.HEAD_FILES.items():
        head = {name: array for name, array in load_arrays(file).items() if not name.startswith("labels.")}
        vectors = joint_text.encode_new_texts(labels, name).astype(np.float16)
        save_arrays(file, {**head, "labels.digests": digests(labels), "labels.vectors": vectors})
        print(f"{file}: {len(labels)} labels, {file.stat().st_size / 1e6:.1f} MB")


# Names in DINOv2's own code, and the names of the same tensors in the file of the Hugging Face hub.
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
PRODUCTS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")  # of each block in turn; they have no names in the ONNX file


def write_template() -> None:
    """Save DINOv2's ONNX file without its weights, and the place of each tensor of the hub's file in it."""
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
        elif name.startswith("onnx::Reshape"):  # without the position of the class token
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
    parser.add_argument("what", choices=["labels", "template"])
    {"labels": write_label_vectors, "template": write_template}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
