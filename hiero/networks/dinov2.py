"""DINOv2 (ViT-S/14) with a head into a space shared with text (assets/dinov2-text, see its README).

DINOv2 gives a vector of the whole picture and 16 × 16 patches. The head projects the whole and
8 × 8 patches, because objects in hands are small. The patches of a frame are then grouped into 8
vectors: a text that selects among them finds as much as among 64, in an eighth of the space. The
file of a head may also contain additions of low rank to DINOv2's linear layers.

On a CPU, onnxruntime runs the network with 8-bit weights, which is twice as fast; elsewhere torch
runs it (`VisionTransformer`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.networks.joint_text import HEAD_FILES, RESEARCH
from hiero.networks.registry import IMAGENET, normalise
from hiero.storage.cache import content_key
from hiero.storage.files import load_arrays, write_bytes
from hiero.vectors import K_MEANS_ROUNDS

FILE = "dinov2_vits14.onnx"
TOKENS = "/norm/Add_1_output_0"  # value inside the ONNX network that holds all tokens, (N, 1 + 16 · 16, 384)
SIZE = 224
GRID = 16  # patches per side
TRAINED_GRID = 37  # patches per side of the trained position embeddings
PATCH_PIXELS = 14
WIDTH, NUM_HEADS, NUM_BLOCKS = 384, 6, 12  # ViT-S
NUM_PATCHES = 8  # groups of patches per frame
# The hands are in the middle of a first-person frame: a box of this aspect, and this share of the
# largest one that fits. The head was trained with both, and `python -m benchmarks.words score` uses them.
BOX_ASPECT, BOX_SHARE = 1.4, 0.76


def read_weights(model: bytes, prefix: str) -> dict[str, np.ndarray]:
    """The weights of an ONNX file by the names of the torch module, without `prefix`.

    The file stores matrices of linear layers transposed, named after the MatMul of the layer.
    """
    onnx = _import_onnx()
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load_model_from_string(model).graph
        arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not a readable ONNX file ({error})") from error
    if not graph.node:
        raise InputError("not an ONNX file: it has no network")
    weights = {name.removeprefix(prefix): array for name, array in arrays.items()}
    return weights | {f"{layer}.weight": arrays[name].T for layer, name in _linear_layers(graph, arrays)}


def add_to_weights(model: bytes, additions: Mapping[str, np.ndarray]) -> bytes:
    """Add matrices (out, in) to the weights of linear layers in an ONNX file, by the names of the layers."""
    onnx = _import_onnx()
    network = onnx.load_model_from_string(model)
    tensors = {tensor.name: tensor for tensor in network.graph.initializer}
    for layer, name in _linear_layers(network.graph, tensors):
        if layer in additions:
            weight = onnx.numpy_helper.to_array(tensors[name]) + additions[layer].T
            tensors[name].CopyFrom(onnx.numpy_helper.from_array(weight, name))
    out: bytes = network.SerializeToString()
    return out


def _linear_layers(graph: Any, arrays: Container[str]) -> Iterator[tuple[str, str]]:
    """The linear layers of an ONNX graph, and the names of the arrays with their transposed weights."""
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            yield node.name.removesuffix("/MatMul").strip("/").replace("/", "."), node.input[1]


def add_output(model: bytes, name: str) -> bytes:
    """Add a value inside the network to the outputs of an ONNX file."""
    onnx = _import_onnx()
    output = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name)])
    extra: bytes = onnx.ModelProto(graph=output).SerializeToString()
    return model + extra  # protobuf merges the second graph into the first


def cpu_session(model: bytes) -> Any:
    """A session of onnxruntime on the CPU, with as many threads as torch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # another thread decodes
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError("ONNX files need the package onnx; run: pip install 'hiero-video[video]'") from None
    return onnx


class Block(nn.Module):
    """Transformer block with scaled branches: x + γ₁ attn(norm(x)), then x + γ₂ mlp(norm(x))."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-6), nn.LayerNorm(WIDTH, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(WIDTH, 3 * WIDTH), "proj": nn.Linear(WIDTH, WIDTH)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(WIDTH, 4 * WIDTH), "fc2": nn.Linear(4 * WIDTH, WIDTH)})
        self.ls1, self.ls2 = (nn.ParameterDict({"gamma": torch.ones(WIDTH)}) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.attn["qkv"](self.norm1(x)).unflatten(2, (3, NUM_HEADS, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.ls1["gamma"] * self.attn["proj"](attended)
        return x + self.ls2["gamma"] * self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


class VisionTransformer(nn.Module):
    """ViT-S/14: pictures (N, 3, 224, 224) → tokens (N, 1 + 16 · 16, 384), the class token first.

    Modules are named as in the code of DINOv2.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, WIDTH, PATCH_PIXELS, PATCH_PIXELS)})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.zeros(1, GRID**2, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(NUM_BLOCKS)))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def forward(self, pictures: Tensor) -> Tensor:
        patches = self.patch_embed["proj"](pictures).flatten(2).transpose(1, 2) + self.positions
        # The file adds the class token to itself, instead of its position.
        whole = 2 * self.cls_token.expand(len(patches), -1, -1)
        tokens: Tensor = self.norm(self.blocks(torch.cat([whole, patches], 1)))
        return tokens

    @classmethod
    def from_onnx(cls, model: bytes) -> VisionTransformer:
        """The network with the weights of DINOv2's ONNX file."""
        network = cls()
        arrays = read_weights(model, "model.")
        trained = next((array for array in arrays.values() if array.shape == (1, TRAINED_GRID**2, WIDTH)), None)
        if trained is None or not arrays.keys() >= network.state_dict().keys() - {"positions"}:
            raise InputError("the weights are not those of a ViT-S/14")
        grid = torch.from_numpy(trained.copy()).unflatten(1, (TRAINED_GRID, TRAINED_GRID)).permute(0, 3, 1, 2)
        # DINOv2 interpolates by this factor instead of the size, which shifts the pixels.
        scaled = F.interpolate(grid, scale_factor=(GRID + 0.1) / TRAINED_GRID, mode="bilinear")
        weights = {name: torch.from_numpy(arrays[name].copy()) for name in network.state_dict() if name != "positions"}
        network.load_state_dict({**weights, "positions": scaled.flatten(2).transpose(1, 2)})
        return network


class TwoLayers(nn.Module):
    """Two layers with a skip connection, (…, inputs) → unit vectors (…, outputs)."""

    dropout = 0.1

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.out = nn.Linear(hidden, outputs)
        self.skip = nn.Linear(inputs, outputs)

    def raw(self, x: Tensor) -> Tensor:
        """Unnormalised embedding."""
        y: Tensor = self.out(F.dropout(F.gelu(self.hidden(x)), self.dropout, self.training)) + self.skip(x)
        return y

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.raw(x), dim=-1)


class PictureHead(nn.Module):
    """Tokens (N, 257, 384) → unit vectors of the whole picture (N, 256) and of 8 × 8 patches (N, 64, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.picture = TwoLayers(2 * WIDTH, 1024, 256)
        self.patch = TwoLayers(WIDTH, 768, 256)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        patches = tokens[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2)
        patches = F.avg_pool2d(patches, 2).flatten(2).transpose(1, 2)
        return self.picture(torch.cat([tokens[:, 0], patches.mean(1)], 1)), self.patch(patches)


class JointPictures(nn.Module):
    """Normalised pictures (N, 3, 224, 224) → vectors of the whole and of 8 groups of patches, (N, 9 · 256)."""

    def __init__(
        self, network: VisionTransformer, head: PictureHead, cpu_model: Callable[[], bytes] | None = None
    ) -> None:
        super().__init__()
        self.network, self.head, self.cpu_model = network, head, cpu_model
        self._session: Any = None

    def _tokens(self, pictures: Tensor) -> Tensor:
        if self.cpu_model is None or pictures.device.type != "cpu":
            tokens: Tensor = self.network(pictures)
            return tokens
        if self._session is None:
            self._session = cpu_session(self.cpu_model())
        (out,) = self._session.run([TOKENS], {"input": pictures.float().numpy()})
        return torch.from_numpy(out)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self._tokens(pictures).to(next(self.head.parameters()).dtype)
        whole, patches = self.head(tokens)
        return torch.cat([whole[:, None], group_patches(patches, NUM_PATCHES)], 1).flatten(1)


def group_patches(patches: Tensor, num: int) -> Tensor:
    """K-Means of the patches of each picture: unit vectors (N, P, D) → unit vectors (N, num, D).

    The seeds are the first patch, then repeatedly the patch least similar to the seeds so far.
    """
    each = torch.arange(len(patches), device=patches.device)
    centres = patches[:, :1]
    for _ in range(num - 1):
        least_alike = (patches @ centres.transpose(1, 2)).amax(2).argmin(1)
        centres = torch.cat([centres, patches[each, least_alike][:, None]], 1)
    for _ in range(K_MEANS_ROUNDS):
        group = F.one_hot((patches @ centres.transpose(1, 2)).argmax(2), num).to(patches.dtype)
        # An empty group keeps its centre.
        centres = F.normalize(group.transpose(1, 2) @ patches + 1e-6 * centres, dim=-1)
    return centres


def load_head(file: Path) -> PictureHead:
    arrays = load_arrays(file, "picture.") | load_arrays(file, "patch.")
    head = PictureHead()
    head.load_state_dict({name: torch.from_numpy(value).float() for name, value in arrays.items()})
    return head


def load_additions(head: Path) -> dict[str, np.ndarray]:
    """What the file of a head adds to the weights of DINOv2's layers: LAYER.b @ LAYER.a."""
    arrays = {name.removeprefix("dinov2."): x.astype(np.float32) for name, x in load_arrays(head, "dinov2.").items()}
    layers = [name.removesuffix(".a") for name in arrays if name.endswith(".a")]
    return {layer: arrays[f"{layer}.b"] @ arrays[f"{layer}.a"] for layer in layers}


def load_tower(folder: Path) -> VisionTransformer:
    """DINOv2 as its authors trained it, from the ONNX file in a folder."""
    path = folder / FILE
    try:
        return VisionTransformer.from_onnx(path.read_bytes())
    except (OSError, InputError) as error:
        raise InputError(f"{path}: not the DINOv2 file ({error})") from error


def load(folder: Path, head: str = RESEARCH) -> JointPictures:
    """Load the ONNX file in a folder, and a head with its additions."""
    network, file = load_tower(folder), HEAD_FILES[head]
    with torch.no_grad():
        for layer, addition in load_additions(file).items():
            network.get_parameter(f"{layer}.weight").add_(torch.from_numpy(addition))
    return JointPictures(network, load_head(file), partial(int8_model, folder, file)).eval()


def int8_model(folder: Path, head: Path) -> bytes:
    """The network with the additions of a head and 8-bit weights, stored in `folder`.

    Without onnx's quantisation, the weights keep single precision and nothing is stored.
    """
    path = folder / f"dinov2_vits14_int8-{content_key(head)[:12]}.onnx"
    if path.is_file():
        return path.read_bytes()
    model = add_to_weights(add_output((folder / FILE).read_bytes(), TOKENS), load_additions(head))
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:  # slower, with the same result
        return model
    with tempfile.TemporaryDirectory() as scratch:
        single, quantised = Path(scratch) / "single.onnx", Path(scratch) / "int8.onnx"
        single.write_bytes(model)
        logging.disable(logging.WARNING)  # it recommends a step that this network does not need
        try:
            options = {"op_types_to_quantize": ["MatMul"], "per_channel": True, "weight_type": QuantType.QInt8}
            quantize_dynamic(single, quantised, **options)
        finally:
            logging.disable(logging.NOTSET)
        data = quantised.read_bytes()
    with suppress(OSError):  # no space or permission: it is quantised again next time
        write_bytes(path, data)
    return data


def untrained() -> JointPictures:
    return JointPictures(VisionTransformer(), PictureHead())


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 → (N, 3, 224, 224): the middle of each, squashed to a square and normalised."""
    height, width = frames.shape[1:3]
    box_height = min(height, width / BOX_ASPECT)
    rows = max(1, round(BOX_SHARE * box_height))
    columns = max(1, round(BOX_SHARE * box_height * BOX_ASPECT))
    top, left = (height - rows) // 2, (width - columns) // 2
    x = frames[:, top : top + rows, left : left + columns].permute(0, 3, 1, 2).float()
    x = F.interpolate(x, size=(SIZE, SIZE), mode="bicubic", antialias=True, align_corners=False).clamp(0, 255)
    return normalise(x / 255, *IMAGENET)
