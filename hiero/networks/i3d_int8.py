"""I3D with 8-bit integers for CPUs: an ONNX graph for onnxruntime, on ARM about twice as fast as half precision.

Every channel of every layer has its own scale, which is not learned from data. Batch normalisation
gives each channel a mean β and a deviation of 1 over the training videos, so that β + RANGE covers
nearly all values after the ReLU. The scales of the inputs of a layer are multiplied into its
weights, and its sums are divided by the scales of its outputs.

Frames are (T, H, W, C). A convolution in time stacks the frames of its kernel as channels, as in
`hiero.networks.i3d`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from math import erf, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hiero.errors import InputError
from hiero.networks.dinov2 import cpu_session
from hiero.networks.i3d import I3D, MIXED, SIZE, Mixed, Pool, convert, read_means, same_padding
from hiero.storage.checkpoints import INT8_MAX
from hiero.storage.files import write_bytes

FILE = ".i3d-int8-1.onnx"  # beside the weights; the number is the version of the graph
# CPU flags for integer products that are summed without overflow (without them, the sums of onnxruntime may
# saturate); and for those that are faster than other precisions. On a Xeon, they take 3 times as long.
EXACT_FLAGS = frozenset({"asimddp", "avx512_vnni", "avx_vnni"})
FAST_FLAGS = frozenset({"asimddp"})
RANGE = 14.0  # deviations above the mean that the range of a channel covers
MIN_RANGE = 0.5
NUM_LEVELS = 255
ZERO = -128  # integer that stands for 0 after a ReLU
DOMAIN = "com.microsoft"  # onnxruntime's operations on (N, H, W, C)
OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True)
class _Value:
    """A tensor (T, H, W, C) of the graph."""

    name: str
    shape: tuple[int, int, int]
    scales: np.ndarray
    means: np.ndarray
    zero: int = ZERO


class GraphBuilder:
    """Builds the graph of I3D for clips of one size."""

    def __init__(self, state: Mapping[str, np.ndarray], means: Mapping[str, np.ndarray]) -> None:
        import onnx

        self.onnx: Any = onnx
        self.state, self.means = state, means
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}

    def build(self, num_frames: int, size: int) -> bytes:
        """The graph up to the mean over each frame, as an ONNX file."""
        helper, int8, float32 = self.onnx.helper, self.onnx.TensorProto.INT8, self.onnx.TensorProto.FLOAT
        x = _Value("frames", (num_frames, size, size), np.full(3, 1 / INT8_MAX), np.zeros(3), zero=0)
        with torch.device("meta"):
            layers: Any = I3D().layers
        for name, layer in layers.items():
            if isinstance(layer, Pool):
                x = self._pool(x, layer)
            elif isinstance(layer, Mixed):
                x = self._mix(x, name, layer)
            else:
                x = self._convolve(x, [name], layer.stride[0])
        inputs = [helper.make_tensor_value_info("frames", int8, [num_frames, size, size, 3])]
        zeros = self._constant(np.full(len(x.scales), x.zero, np.int8))
        values = self._add("DequantizeLinear", [x.name, self._constant(x.scales.astype(np.float32)), zeros], axis=3)
        pooled = self._add("ReduceMean", [values], axes=[1, 2], keepdims=0)
        outputs = [helper.make_tensor_value_info(pooled, float32, [x.shape[0], len(x.scales)])]
        constants = [self.onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "i3d", inputs, outputs, constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=IR_VERSION)
        content: bytes = model.SerializeToString()
        return content

    def _mix(self, x: _Value, name: str, module: Any) -> _Value:
        """An Inception module. The 1×1 convolutions of its input are computed as one."""
        _, b0, b1a, _, b2a, _, _ = MIXED[name]
        first = self._convolve(x, [f"{name}.Branch_{i}.Conv3d_0a_1x1" for i in range(3)])
        parts = self._split(first, [b0, b1a, b2a])
        branches = [
            parts[0],
            self._convolve(parts[1], [f"{name}.Branch_1.Conv3d_0b_3x3"]),
            self._convolve(parts[2], [f"{name}.Branch_2.Conv3d_0b_3x3"]),
            self._convolve(self._pool(x, module.Branch_3["pool"]), [f"{name}.Branch_3.Conv3d_0b_1x1"]),
        ]
        scales = np.concatenate([branch.scales for branch in branches])
        means = np.concatenate([branch.means for branch in branches])
        return _Value(self._add("Concat", [branch.name for branch in branches], axis=3), x.shape, scales, means)

    def _convolve(self, x: _Value, names: list[str], stride: int = 1) -> _Value:
        """Convolutions of the same input with SAME padding and a ReLU, computed as one."""
        weight = np.concatenate([self.state[f"layers.{name}.weight"] for name in names]).astype(np.float64)
        bias = np.concatenate([self.state[f"layers.{name}.bias"] for name in names]).astype(np.float64)
        beta = np.concatenate([self.means[name] for name in names]).astype(np.float64)
        scales = np.maximum(beta + RANGE, MIN_RANGE) / NUM_LEVELS
        kernel, (length, height, width) = weight.shape[2], x.shape
        num_out = -(-length // stride)
        stacked = self._stack_frames(x, kernel, stride, num_out)
        weight = weight * x.scales[:, None, None, None]
        # Stack the frames of a kernel as channels.
        weight = weight.transpose(0, 2, 1, 3, 4).reshape(len(weight), -1, kernel, kernel)
        weight_scales = np.maximum(np.abs(weight).max((1, 2, 3)), 1e-12) / INT8_MAX
        quantised = np.rint(weight / weight_scales[:, None, None, None]).astype(np.int8)
        # Correct the bias by the mean error of rounding the weights.
        rounding = (quantised * weight_scales[:, None, None, None] - weight).sum((2, 3))
        bias = bias - rounding @ np.tile(x.means / x.scales, kernel)
        (top, bottom), (left, right) = same_padding(height, kernel, stride), same_padding(width, kernel, stride)
        constants = (
            np.float32(1),
            np.int8(x.zero),
            quantised,
            (weight_scales / scales).astype(np.float32),
            np.zeros(len(weight), np.int8),
            np.float32(1),
            np.int8(ZERO),
            np.rint(bias / weight_scales).astype(np.int32),
        )
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [top, left, bottom, right]}
        inputs = [stacked, *map(self._constant, constants)]
        out = self._add("QLinearConv", inputs, domain=DOMAIN, channels_last=1, **window)
        return _Value(out, (num_out, -(-height // stride), -(-width // stride)), scales, _rectified_mean(beta))

    def _stack_frames(self, x: _Value, kernel: int, stride: int, num_out: int) -> str:
        """The frames of a kernel in time stacked as channels, (num_out, H, W, kernel · C)."""
        if kernel == 1 and stride == 1:
            return x.name
        before, after = same_padding(x.shape[0], kernel, stride)
        name = x.name
        if before or after:
            empty = [np.full((num, *x.shape[1:], len(x.scales)), x.zero, np.int8) for num in (before, after)]
            first, last = ([self._constant(frames)] if len(frames) else [] for frames in empty)
            name = self._add("Concat", [*first, name, *last], axis=0)
        slices = []
        for i in range(kernel):
            bounds = [self._constant(np.array([value])) for value in (i, i + (num_out - 1) * stride + 1, 0, stride)]
            slices.append(self._add("Slice", [name, *bounds]))
        return self._add("Concat", slices, axis=3)

    def _pool(self, x: _Value, pool: Pool) -> _Value:
        """Maximum over space, then over time. Padding is never the maximum."""
        length, height, width = x.shape
        strides = (pool.time_stride, pool.space_stride, pool.space_stride)
        shape = tuple(-(-size // stride) for size, stride in zip(x.shape, strides, strict=True))
        (top, bottom), (left, right) = (same_padding(n, pool.space, pool.space_stride) for n in (height, width))
        name = self._add_pool(x.name, [pool.space] * 2, [pool.space_stride] * 2, [top, left, bottom, right])
        if pool.time > 1:
            before, after = same_padding(length, pool.time, pool.time_stride)
            flat = self._constant(np.array([1, length, shape[1] * shape[2], len(x.scales)]))
            name = self._add("Reshape", [name, flat])
            name = self._add_pool(name, [pool.time, 1], [pool.time_stride, 1], [before, 0, after, 0])
            name = self._add("Reshape", [name, self._constant(np.array([*shape, len(x.scales)]))])
        return _Value(name, (shape[0], shape[1], shape[2]), x.scales, x.means)

    def _add_pool(self, name: str, kernel: list[int], strides: list[int], pads: list[int]) -> str:
        return self._add("NhwcMaxPool", [name], domain=DOMAIN, kernel_shape=kernel, strides=strides, pads=pads)

    def _split(self, x: _Value, sizes: list[int]) -> list[_Value]:
        """Split the channels into groups."""
        ends = np.cumsum(sizes)
        names = [f"value{len(self.nodes)}_{i}" for i in range(len(sizes))]
        inputs = [x.name, self._constant(np.array(sizes))]
        self.nodes.append(self.onnx.helper.make_node("Split", inputs, names, axis=3))
        return [
            _Value(name, x.shape, x.scales[end - size : end], x.means[end - size : end])
            for name, end, size in zip(names, ends, sizes, strict=True)
        ]

    def _add(self, op: str, inputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = f"value{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def _constant(self, value: np.ndarray | np.generic) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name


def _rectified_mean(beta: np.ndarray) -> np.ndarray:
    """Mean of max(0, x) for normal x with mean β and deviation 1: β Φ(β) + φ(β)."""
    density = np.exp(-(beta**2) / 2) / sqrt(2 * pi)
    return beta * np.array([0.5 * (1 + erf(value / sqrt(2))) for value in beta]) + density


def has_integer_products(flags: Set[str] = EXACT_FLAGS) -> bool:
    """Whether this CPU has exact 8-bit products (`FAST_FLAGS`: also fast ones) and onnxruntime is installed."""
    try:
        import onnxruntime  # noqa: F401

        known = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except (ImportError, OSError):
        return False
    return platform.system() == "Linux" and not flags.isdisjoint(known)


def use_fast_integers(network: Any, num_frames: int) -> bool:
    """Compute clips of this length with 8-bit integers if the network is I3D and this CPU is fast at it."""
    if not isinstance(network, I3D) or not has_integer_products(FAST_FLAGS):
        return False
    try:
        use_integers(network, num_frames)
    except InputError:  # other weights, or onnxruntime cannot run it
        return False
    return True


def use_integers(network: I3D, num_frames: int) -> None:
    """Make a network compute clips of this length with integers on a CPU."""
    checkpoint = network.checkpoint
    if checkpoint is None:
        raise InputError("8-bit I3D needs the published weights")

    def make() -> bytes:
        state = {name: value.numpy() for name, value in convert(checkpoint).items()}
        return GraphBuilder(state, read_means(checkpoint)).build(num_frames, SIZE)

    network.integer = IntegerI3D(make, checkpoint.with_name(FILE), num_frames, SIZE)


class IntegerI3D:
    """8-bit I3D up to its pooled features, run by onnxruntime."""

    def __init__(self, make: Callable[[], bytes], path: Path, num_frames: int, size: int) -> None:
        """Use the graph at `path`, or a new one, which is stored there."""
        self.shape = (num_frames, 3, size, size)
        # onnxruntime raises many kinds of errors, for damaged files or unsupported operations.
        try:
            self.session = self._open(path.read_bytes())
        except Exception:  # not stored yet, damaged, or for clips of another shape
            try:
                graph = make()
                with suppress(OSError):  # no space or permission: it is built again next time
                    write_bytes(path, graph)
                self.session = self._open(graph)
            except Exception as error:  # without the package onnx, too
                raise InputError(f"8-bit I3D cannot run on this machine ({error})") from error

    def _open(self, graph: bytes) -> Any:
        """A session of a graph for clips of this shape."""
        session = cpu_session(graph)
        (frames,), (num_frames, _, height, width) = session.get_inputs(), self.shape
        if frames.shape != [num_frames, height, width, 3]:
            raise InputError(f"it expects clips of shape {frames.shape}")
        return session

    def __call__(self, clips: Tensor) -> Tensor:
        """Clips (B, T, 3, H, W) in [−1, 1] → pooled features (B, T', 1024)."""
        frames = (clips.float() * INT8_MAX).round_().to(torch.int8).permute(0, 1, 3, 4, 2).contiguous().numpy()
        return torch.stack([torch.from_numpy(self.session.run(None, {"frames": clip})[0]) for clip in frames])
