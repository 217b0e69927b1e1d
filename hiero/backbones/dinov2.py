"""DINOv2 (ViT-S/14) with a head that brings pictures into one space with words: assets/dinov2-text,
see its README.

DINOv2 says what is where in a picture: a vector of the whole, and 16 × 16 patches. The head
projects the whole, and 8 × 8 patches, since what a hand holds is small. The patches of a frame are
then put together into 8 vectors: a text that chooses among them finds what it found among 64, in an
eighth of the space.

On a CPU onnxruntime runs the network with weights of 8 bits, which is twice as fast; elsewhere
torch runs it (`VisionTransformer`).
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.backbones.onnx_files import add_output, cpu_session, read_weights
from hiero.backbones.preprocessing import IMAGENET, normalise
from hiero.errors import InputError
from hiero.storage.files import ASSETS, load_arrays, write_bytes

FILE, INT8_FILE = "dinov2_vits14.onnx", "dinov2_vits14_int8.onnx"
TOKENS = "/norm/Add_1_output_0"  # the value inside the network that holds all tokens, (N, 1 + 16 · 16, 384)
HEAD_FILE = ASSETS / "dinov2-text" / "model.safetensors"
SIZE = 224
GRID = 16  # patches of a side
TRAINED_GRID, PATCH_PIXELS = 37, 14  # of the positions that it learned, and of a patch
WIDTH, NUM_HEADS, NUM_BLOCKS = 384, 6, 12  # of ViT-S
NUM_PATCHES = 8  # vectors that the patches of a frame become
K_MEANS_ROUNDS = 6
# What hands do is in the middle of a first-person frame: a box of this shape, and this share of the
# largest one that fits. Shape and share are those of the pictures that the head learned from, and
# of `python -m benchmarks.words score`.
BOX_ASPECT, BOX_SHARE = 1.4, 0.76


class Block(nn.Module):
    """A block of a vision transformer whose branches are scaled: x + γ₁ attn(norm(x)), then x + γ₂ mlp(norm(x))."""

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
    """DINOv2's ViT-S/14: pictures (N, 3, 224, 224) → tokens (N, 1 + 16 · 16, 384), that of the whole first.

    Modules are named as in DINOv2's code.
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
        # The file adds the token of the whole to itself, in the place of its position.
        whole = 2 * self.cls_token.expand(len(patches), -1, -1)
        tokens: Tensor = self.norm(self.blocks(torch.cat([whole, patches], 1)))
        return tokens

    @classmethod
    def from_onnx(cls, model: bytes) -> VisionTransformer:
        """The network with the weights of DINOv2's ONNX file."""
        network, arrays = cls(), read_weights(model, "model.")
        trained = next((array for array in arrays.values() if array.shape == (1, TRAINED_GRID**2, WIDTH)), None)
        if trained is None or not arrays.keys() >= network.state_dict().keys() - {"positions"}:
            raise InputError("its weights are not those of a ViT-S/14")
        grid = torch.from_numpy(trained.copy()).unflatten(1, (TRAINED_GRID, TRAINED_GRID)).permute(0, 3, 1, 2)
        # As DINOv2 scales them: the factor, not the size that comes out, says where pixels are.
        scaled = F.interpolate(grid, scale_factor=(GRID + 0.1) / TRAINED_GRID, mode="bilinear")
        weights = {name: torch.from_numpy(arrays[name].copy()) for name in network.state_dict() if name != "positions"}
        network.load_state_dict({**weights, "positions": scaled.flatten(2).transpose(1, 2)})
        return network


class TwoLayers(nn.Module):
    """Two layers with a shortcut, (…, inputs) → unit vectors (…, outputs)."""

    dropout = 0.1  # of hidden units, in training

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden, self.out, self.skip = (
            nn.Linear(inputs, hidden),
            nn.Linear(hidden, outputs),
            nn.Linear(inputs, outputs),
        )

    def raw(self, x: Tensor) -> Tensor:
        """Before it is brought to length 1."""
        y: Tensor = self.out(F.dropout(F.gelu(self.hidden(x)), self.dropout, self.training)) + self.skip(x)
        return y

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(self.raw(x), dim=-1)


class PictureHead(nn.Module):
    """Tokens of DINOv2 (N, 257, 384) → unit vectors of the whole picture (N, 256) and of 8 × 8
    patches (N, 64, 256).
    """

    def __init__(self, size: int = 384, outputs: int = 256) -> None:
        super().__init__()
        self.picture, self.patch = TwoLayers(2 * size, 1024, outputs), TwoLayers(size, 768, outputs)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        patches = tokens[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2)
        patches = F.avg_pool2d(patches, 2).flatten(2).transpose(1, 2)
        return self.picture(torch.cat([tokens[:, 0], patches.mean(1)], 1)), self.patch(patches)


class JointPictures(nn.Module):
    """Pictures (N, 3, 224, 224), normalised → (N, 256 + 8 · 256): the vector of the whole, then those
    of groups of patches.
    """

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
    """k-means of the patches of each picture: unit vectors (N, P, D) → the groups' mean directions,
    unit vectors (N, num, D).

    Begins with the first patch, then each time with the patch that is least like those chosen: the
    same for the same picture.
    """
    each = torch.arange(len(patches), device=patches.device)
    centres = patches[:, :1]
    for _ in range(num - 1):
        least_alike = (patches @ centres.transpose(1, 2)).amax(2).argmin(1)
        centres = torch.cat([centres, patches[each, least_alike][:, None]], 1)
    for _ in range(K_MEANS_ROUNDS):
        group = F.one_hot((patches @ centres.transpose(1, 2)).argmax(2), num).to(patches.dtype)
        # an empty group stays where it is
        centres = F.normalize(group.transpose(1, 2) @ patches + 1e-6 * centres, dim=-1)
    return centres


def load_head() -> PictureHead:
    """The head that ships with hiero."""
    arrays = load_arrays(HEAD_FILE, "picture.") | load_arrays(HEAD_FILE, "patch.")
    head = PictureHead()
    head.load_state_dict({name: torch.from_numpy(value).float() for name, value in arrays.items()})
    return head


def load(folder: Path) -> JointPictures:
    """The network of an ONNX file in a folder, and the head. Raises InputError where the file is another."""
    path = folder / FILE
    try:
        model = add_output(path.read_bytes(), TOKENS)
        network = VisionTransformer.from_onnx(model)
    except (OSError, InputError) as error:
        raise InputError(f"{path}: not the DINOv2 file ({error})") from error
    return JointPictures(network, load_head(), lambda: int8_model(model, folder / INT8_FILE)).eval()


def int8_model(model: bytes, path: Path) -> bytes:
    """The network with weights of matrix products in 8 bits, made once and stored at `path`; as it is
    where onnx is missing.
    """
    if path.is_file():
        return path.read_bytes()
    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError:  # slower, but the same
        return model
    with tempfile.TemporaryDirectory() as folder:
        single, quantised = Path(folder) / "single.onnx", Path(folder) / "int8.onnx"
        single.write_bytes(model)
        logging.disable(logging.WARNING)  # it advises a step that this network does not need
        try:
            quantize_dynamic(
                single, quantised, op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8
            )
        finally:
            logging.disable(logging.NOTSET)
        data = quantised.read_bytes()
    with suppress(OSError):  # a full disk or a folder that cannot be written: made again the next time
        write_bytes(path, data)
    return data


def untrained() -> JointPictures:
    """The network with random weights, to measure its speed."""
    return JointPictures(VisionTransformer(), PictureHead())


def prepare(frames: Tensor) -> Tensor:
    """RGB frames (N, H, W, 3) uint8 → (N, 3, 224, 224): the middle of each, squashed to a square and normalised."""
    height, width = frames.shape[1:3]
    box_height = min(height, width / BOX_ASPECT)
    rows, columns = max(1, round(BOX_SHARE * box_height)), max(1, round(BOX_SHARE * box_height * BOX_ASPECT))
    top, left = (height - rows) // 2, (width - columns) // 2
    x = frames[:, top : top + rows, left : left + columns].permute(0, 3, 1, 2).float()
    x = F.interpolate(x, size=(SIZE, SIZE), mode="bicubic", antialias=True, align_corners=False).clamp(0, 255)
    return normalise(x / 255, *IMAGENET)
