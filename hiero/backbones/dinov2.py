"""DINOv2 (ViT-S/14) with a head that brings pictures into one space with words: assets/dinov2-text,
see its README.

DINOv2 says what is where in a picture: a vector of the whole, and 16 × 16 patches. The head
projects the whole, and 8 × 8 patches, since what a hand holds is small. The patches of a frame are
then put together into 8 vectors: a text that chooses among them finds what it found among 64, in an
eighth of the space.

On a CPU onnxruntime runs the network with weights of 8 bits, which is twice as fast; elsewhere
torch does (`OnnxNetwork`).
"""

from __future__ import annotations

import logging
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.backbones.onnx_graph import OnnxNetwork, add_output
from hiero.backbones.preprocessing import IMAGENET, normalise
from hiero.errors import InputError
from hiero.storage.files import ASSETS, load_arrays, write_bytes

FILE, INT8_FILE = "dinov2_vits14.onnx", "dinov2_vits14_int8.onnx"
TOKENS = "/norm/Add_1_output_0"  # the value inside the network that holds all tokens, (N, 1 + 16 · 16, 384)
HEAD_FILE = ASSETS / "dinov2-text" / "model.safetensors"
SIZE = 224
GRID = 16  # patches of a side
NUM_PATCHES = 8  # vectors that the patches of a frame become
K_MEANS_ROUNDS = 6
# What hands do is in the middle of a first-person frame: a box of this shape, and this share of the
# largest one that fits. Shape and share are those of the pictures that the head learned from, and
# of `python -m benchmarks.words score`.
BOX_ASPECT, BOX_SHARE = 1.4, 0.76


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

    def __init__(self, network: nn.Module, head: PictureHead) -> None:
        super().__init__()
        self.network, self.head = network, head

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.network(pictures).to(next(self.head.parameters()).dtype)
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
        network = OnnxNetwork(model, cpu_model=lambda: int8_model(model, folder / INT8_FILE))
    except (OSError, InputError) as error:
        raise InputError(f"{path}: not the DINOv2 file ({error})") from error
    return JointPictures(network, load_head()).eval()


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
    """As fast as the network with its weights: one of the same size, with random ones."""
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=SIZE, patch_size=14)

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Dinov2Model(config)

        def forward(self, pictures: Tensor) -> Tensor:
            tokens: Tensor = self.model(pictures).last_hidden_state
            return tokens

    return JointPictures(Tokens(), PictureHead())


def prepare(frames: Tensor) -> Tensor:
    """RGB frames (N, H, W, 3) uint8 → (N, 3, 224, 224): the middle of each, squashed to a square and normalised."""
    height, width = frames.shape[1:3]
    box_height = min(height, width / BOX_ASPECT)
    rows, columns = max(1, round(BOX_SHARE * box_height)), max(1, round(BOX_SHARE * box_height * BOX_ASPECT))
    top, left = (height - rows) // 2, (width - columns) // 2
    x = frames[:, top : top + rows, left : left + columns].permute(0, 3, 1, 2).float()
    x = F.interpolate(x, size=(SIZE, SIZE), mode="bicubic", antialias=True, align_corners=False).clamp(0, 255)
    return normalise(x / 255, *IMAGENET)
