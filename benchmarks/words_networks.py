"""Networks that `benchmarks.words_train` trains: DINOv2 and MiniLM with additions, a head, and CLIP as a teacher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.engine.embedder import PICTURES
from hiero.networks import dinov2
from hiero.networks.dinov2 import PictureHead, TwoLayers, VisionTransformer
from hiero.networks.registry import IMAGENET
from hiero.storage import weights
from hiero.storage.files import load_arrays

IMAGE_RANK, TEXT_RANK = 24, 16
ADDITION_SCALE = 2.0
IMAGE_LAYERS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
TEXT_LAYERS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
TEXT_TOKENS, TEXT_BATCH = 40, 2048
MAX_SCALE = 100.0  # of logits
CLIP_CONFIG = {"patch_size": 16, "projection_dim": 512}  # of ViT-B/16, beside the defaults
CLIP_MEAN_DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
Vectors = tuple[Tensor, Tensor]  # of whole pictures and of their patches, or of texts for both


class Additions(nn.Module):
    """A linear layer that learns an addition of low rank: W x + b + B A x."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer, self.is_used = layer, True
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) * layer.in_features**-0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y + ADDITION_SCALE * (x @ self.a.T) @ self.b.T if self.is_used else y


def load_additions(additions: dict[str, Additions], file: Path, prefix: str) -> None:
    """Continue with the additions in the file of a head, if it has them."""
    arrays = {name: torch.from_numpy(array).float() for name, array in load_arrays(file, prefix).items()}
    for name, addition in additions.items():
        if f"{prefix}{name}.a" in arrays:
            addition.a.data = arrays[f"{prefix}{name}.a"].to(addition.a.device)
            addition.b.data = arrays[f"{prefix}{name}.b"].to(addition.b.device) / ADDITION_SCALE


def export_additions(additions: dict[str, Additions], prefix: str) -> dict[str, Tensor]:
    """The additions as hiero reads them, LAYER.b @ LAYER.a."""
    out = {f"{prefix}{name}.a": addition.a for name, addition in additions.items()}
    return out | {f"{prefix}{name}.b": ADDITION_SCALE * addition.b for name, addition in additions.items()}


class TextNetwork(nn.Module):
    """MiniLM with additions: texts to unit vectors (N, 384)."""

    def __init__(self, rank: int = TEXT_RANK) -> None:
        super().__init__()
        from tokenizers import Tokenizer
        from transformers import BertModel

        folder = weights.get("minilm")
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(TEXT_TOKENS)
        self.tokenizer.enable_padding(pad_id=0)
        self.bert = BertModel.from_pretrained(folder, add_pooling_layer=False).eval().requires_grad_(False)
        self.additions: dict[str, Additions] = {}
        for i, block in enumerate(self.bert.encoder.layer):
            for name in TEXT_LAYERS:
                parent, _, last = name.rpartition(".")
                addition = Additions(block.get_submodule(name), rank)
                setattr(block.get_submodule(parent), last, addition)
                self.additions[f"encoder.layer.{i}.{name}"] = addition

    def use_additions(self, is_used: bool) -> None:
        for addition in self.additions.values():
            addition.is_used = is_used

    @torch.no_grad()
    def encode_untuned(self, texts: list[str]) -> Tensor:
        """The vectors without additions."""
        self.use_additions(False)
        vectors: Tensor = self(texts)
        self.use_additions(True)
        return vectors

    def forward(self, texts: list[str]) -> Tensor:
        device = next(self.bert.parameters()).device
        parts = []
        for first in range(0, len(texts), TEXT_BATCH):
            encoded = self.tokenizer.encode_batch(texts[first : first + TEXT_BATCH])
            ids = torch.tensor([text.ids for text in encoded], device=device)
            mask = torch.tensor([text.attention_mask for text in encoded], device=device)
            hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            parts.append(F.normalize((hidden * mask[..., None]).sum(1).float(), dim=-1))
        return torch.cat(parts)


class Student(nn.Module):
    """DINOv2 and MiniLM with additions, and the head that joins them."""

    def __init__(self, image_rank: int, start: Path | None = None) -> None:
        super().__init__()
        self.tower: VisionTransformer = dinov2.load_tower(weights.get(PICTURES)).requires_grad_(False)
        self.embed = TextNetwork()
        self.additions: dict[str, Additions] = {}
        for i, block in enumerate(self.tower.blocks):
            for name in IMAGE_LAYERS:
                parent, _, last = name.rpartition(".")
                addition = Additions(block.get_submodule(name), image_rank)
                block.get_submodule(parent)[last] = addition
                self.additions[f"blocks.{i}.{name}"] = addition
        self.head, self.text = PictureHead(), TwoLayers(384, 1024, 512)
        self.pooling = nn.Parameter(torch.tensor(13.3))
        self.scales = nn.Parameter(torch.tensor([15.0, 15.0, 10.0]).log())  # of wholes, of patches, of both
        if start is not None:
            self._load(start)

    def _parts(self) -> dict[str, nn.Module]:
        return {"picture.": self.head.picture, "patch.": self.head.patch, "text.": self.text}

    def _load(self, file: Path) -> None:
        """Continue with the file of a head."""
        for prefix, module in self._parts().items():
            arrays = {name: torch.from_numpy(array).float() for name, array in load_arrays(file, prefix).items()}
            module.load_state_dict({name.removeprefix(prefix): array for name, array in arrays.items()})
        self.pooling.data = torch.tensor(float(load_arrays(file, "pooling")["pooling"][0]))
        load_additions(self.additions, file, "dinov2.")
        load_additions(self.embed.additions, file, "minilm.")

    def train(self, mode: bool = True) -> Student:
        """Dropout is for the head alone."""
        super().train(mode)
        self.tower.eval()
        self.embed.eval()
        return self

    def see(self, pictures: Tensor) -> Vectors:
        """(N, 3, 224, 224) → (N, 256) and (N, 64, 256)."""
        whole, patches = self.head(self.tower(pictures))
        return whole, patches

    def read(self, vectors: Tensor) -> Vectors:
        """MiniLM's vectors (Q, 384) → for whole pictures and for patches, (Q, 256) each."""
        whole, patches = (F.normalize(half, dim=-1) for half in self.text.raw(vectors).chunk(2, -1))
        return whole, patches

    def compare(self, texts: Vectors, seen: Vectors) -> tuple[Tensor, Tensor]:
        """(Q, N) with wholes, and with the patches that each text chooses."""
        cosines = torch.einsum("qd,nmd->qnm", texts[1], seen[1])
        return texts[0] @ seen[0].T, ((self.pooling * cosines).softmax(-1) * cosines).sum(-1)

    def export(self) -> dict[str, np.ndarray]:
        """The arrays of a file of assets/dinov2-text, without those of labels."""
        out = {
            prefix + name: value
            for prefix, module in self._parts().items()
            for name, value in module.state_dict().items()
        }
        out |= export_additions(self.additions, "dinov2.") | export_additions(self.embed.additions, "minilm.")
        arrays = {name: value.detach().half().cpu().numpy() for name, value in out.items()}
        return {**arrays, "pooling": self.pooling.detach().float().cpu().numpy()[None]}


class Teacher(nn.Module):
    """CLIP's image tower, what of it the student's vectors should give, and a text head in its space."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

        self.tower = CLIPVisionModelWithProjection(CLIPVisionConfig(**CLIP_CONFIG)).eval().requires_grad_(False)
        self.tower.load_state_dict(read_clip(file), strict=False)
        self.tower = self.tower.to(torch.bfloat16)
        self.follow, self.text = nn.Linear(256, 512), TwoLayers(384, 1024, 512)
        self.scale = nn.Parameter(torch.tensor(15.0).log())
        self.register_buffer("mean", torch.zeros(512))
        mean, deviation = (torch.tensor(x)[:, None, None] for x in CLIP_MEAN_DEVIATION)
        own_mean, own_deviation = (torch.tensor(x)[:, None, None] for x in IMAGENET)
        self.register_buffer("gain", own_deviation / deviation)
        self.register_buffer("offset", (own_mean - mean) / deviation)

    @torch.no_grad()
    def see(self, pictures: Tensor) -> Tensor:
        """Pictures normalised for DINOv2 to unit vectors (N, 512), centred by the mean of the first ones."""
        vectors = self.tower(pixel_values=(pictures * self.gain + self.offset).bfloat16()).image_embeds.float()
        vectors = F.normalize(vectors, dim=-1)
        if not self.mean.any():
            self.mean.copy_(vectors.mean(0))
        return F.normalize(vectors - self.mean, dim=-1)

    def compare(self, texts: Tensor, seen: Tensor) -> Tensor:
        """Logits (Q, N) of MiniLM's vectors of texts and CLIP's vectors of pictures."""
        return self.scale.exp().clamp(max=MAX_SCALE) * F.normalize(self.text.raw(texts), dim=-1) @ seen.T


def read_clip(file: Path) -> dict[str, Tensor]:
    """The weights of CLIP ViT-B/16's image tower in single precision, out of the 8-bit ONNX file."""
    import onnx

    graph = onnx.load(file).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    out = {name: array for name, array in arrays.items() if name.startswith(("vision_model.", "visual_projection."))}
    for node in graph.node:
        if node.op_type == "MatMulInteger":
            layer = node.name.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
            stem = node.input[1].removesuffix("_quantized")
            zero, scale = arrays[stem + "_zero_point"].astype(np.float32), arrays[stem + "_scale"]
            out[f"{layer}.weight"] = ((arrays[node.input[1]].astype(np.float32) - zero) * scale).T
    return {name: torch.from_numpy(np.array(array, dtype=np.float32)) for name, array in out.items()}
