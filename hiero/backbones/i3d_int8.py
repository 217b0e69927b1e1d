"""I3D in integers of 8 bits, for CPUs: an ONNX graph that onnxruntime runs, about twice as fast as half precision.

Every channel of every layer has a scale of its own, and none of them is learned from data: batch
normalisation brought each channel to a mean β and a deviation of 1 over the videos that the network
was trained on, so that β + RANGE holds nearly all that comes after the ReLU. The scales of a
layer's inputs are multiplied into its weights; its sums are divided by those of its outputs.

Frames lie as (T, H, W, C). A convolution in time, too, is one over the frames that its kernel sees,
stacked as channels, as in `hiero.backbones.i3d`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import erf, pi, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hiero.backbones.i3d import I3D, MIXED, SIZE, Mixed, Pool, convert, read_means, same_padding
from hiero.backbones.onnx_files import cpu_session
from hiero.errors import InputError
from hiero.storage.checkpoints import INT8_MAX
from hiero.storage.files import write_bytes

# beside the weights; hidden, since it is made of them. Its number is that of what is built here
FILE = ".i3d-int8-1.onnx"
# Flags of CPUs with products of integers that are summed without overflow. Without these
# onnxruntime's sums may saturate.
CPU_FLAGS = frozenset({"asimddp", "avx512_vnni", "avx_vnni"})
# deviations above its mean that a channel's range ends at: with 8 what is cut off costs more than
# finer steps give
RANGE = 14.0
MIN_RANGE = 0.5
NUM_LEVELS = 255  # above 0
ZERO = -128  # what 0 is after a ReLU: integers −128 … 127 for 0 … 255 scales
DOMAIN = "com.microsoft"  # of onnxruntime's operations on (N, H, W, C)
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
        """The graph, up to the mean over each frame."""
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

    def _mix(self, x: _Value, name: str, module: Mixed) -> _Value:
        """An Inception module. The convolutions that only mix channels of its input are one."""
        _, b0, b1a, _, b2a, _, _ = MIXED[name]
        first = self._convolve(x, [f"{name}.Branch_{i}.Conv3d_0a_1x1" for i in range(3)])
        parts = self._split(first, [b0, b1a, b2a])
        branches = [
            parts[0],
            self._convolve(parts[1], [f"{name}.Branch_1.Conv3d_0b_3x3"]),
            self._convolve(parts[2], [f"{name}.Branch_2.Conv3d_0b_3x3"]),
            self._convolve(self._pool(x, module.pool), [f"{name}.Branch_3.Conv3d_0b_1x1"]),
        ]
        scales, means = (
            np.concatenate(values) for values in zip(*((b.scales, b.means) for b in branches), strict=True)
        )
        return _Value(self._add("Concat", [branch.name for branch in branches], axis=3), x.shape, scales, means)

    def _convolve(self, x: _Value, names: list[str], stride: int = 1) -> _Value:
        """A convolution with SAME padding and a ReLU; several with the same input, side by side, are one."""
        weight = np.concatenate([self.state[f"layers.{name}.weight"] for name in names]).astype(np.float64)
        bias = np.concatenate([self.state[f"layers.{name}.bias"] for name in names]).astype(np.float64)
        beta = np.concatenate([self.means[name] for name in names]).astype(np.float64)
        scales = np.maximum(beta + RANGE, MIN_RANGE) / NUM_LEVELS
        kernel, (length, height, width) = weight.shape[2], x.shape
        num_out = -(-length // stride)
        stacked = self._stack_frames(x, kernel, stride, num_out)
        weight = weight * x.scales[:, None, None, None]
        # a kernel's frames as channels
        weight = weight.transpose(0, 2, 1, 3, 4).reshape(len(weight), -1, kernel, kernel)
        weight_scales = np.maximum(np.abs(weight).max((1, 2, 3)), 1e-12) / INT8_MAX
        quantised = np.rint(weight / weight_scales[:, None, None, None]).astype(np.int8)
        # What rounding the weights adds on average is taken off again.
        rounding = (quantised * weight_scales[:, None, None, None] - weight).sum((2, 3))
        bias = bias - rounding @ np.tile(x.means / x.scales, kernel)
        (top, bottom), (left, right) = same_padding(height, kernel, stride), same_padding(width, kernel, stride)
        out = self._add(
            "QLinearConv",
            [
                stacked,
                self._constant(np.float32(1)),
                self._constant(np.int8(x.zero)),
                self._constant(quantised),
                self._constant((weight_scales / scales).astype(np.float32)),
                self._constant(np.zeros(len(weight), np.int8)),
                self._constant(np.float32(1)),
                self._constant(np.int8(ZERO)),
                self._constant(np.rint(bias / weight_scales).astype(np.int32)),
            ],
            domain=DOMAIN,
            channels_last=1,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[top, left, bottom, right],
        )
        return _Value(out, (num_out, -(-height // stride), -(-width // stride)), scales, _rectified_mean(beta))

    def _stack_frames(self, x: _Value, kernel: int, stride: int, num_out: int) -> str:
        """The frames that a kernel in time sees, as channels, (num_out, H, W, kernel · C)."""
        if kernel == 1 and stride == 1:
            return x.name
        before, after = same_padding(x.shape[0], kernel, stride)
        name = x.name
        if before or after:
            parts = [name]
            for num, at in ((before, 0), (after, 2)):
                if num:
                    empty = np.full((num, *x.shape[1:], len(x.scales)), x.zero, np.int8)
                    parts.insert(at, self._constant(empty))
            name = self._add("Concat", parts, axis=0)
        slices = []
        for i in range(kernel):
            bounds = [self._constant(np.array([value])) for value in (i, i + (num_out - 1) * stride + 1, 0, stride)]
            slices.append(self._add("Slice", [name, *bounds]))
        return self._add("Concat", slices, axis=3)

    def _pool(self, x: _Value, pool: Pool) -> _Value:
        """A maximum over space, then over time. Padding never is the maximum."""
        length, height, width = x.shape
        strides = (pool.time_stride, pool.space_stride, pool.space_stride)
        shape = tuple(-(-size // stride) for size, stride in zip(x.shape, strides, strict=True))
        (top, bottom), (left, right) = (same_padding(n, pool.space, pool.space_stride) for n in (height, width))
        space = {
            "kernel_shape": [pool.space, pool.space],
            "strides": [pool.space_stride, pool.space_stride],
            "pads": [top, left, bottom, right],
        }
        name = self._add("NhwcMaxPool", [x.name], domain=DOMAIN, **space)
        if pool.time > 1:
            before, after = same_padding(length, pool.time, pool.time_stride)
            time = {
                "kernel_shape": [pool.time, 1],
                "strides": [pool.time_stride, 1],
                "pads": [before, 0, after, 0],
            }
            flat = self._constant(np.array([1, length, shape[1] * shape[2], len(x.scales)]))
            name = self._add("NhwcMaxPool", [self._add("Reshape", [name, flat])], domain=DOMAIN, **time)
            name = self._add("Reshape", [name, self._constant(np.array([*shape, len(x.scales)]))])
        return _Value(name, (shape[0], shape[1], shape[2]), x.scales, x.means)

    def _split(self, x: _Value, sizes: list[int]) -> list[_Value]:
        """Channels in groups."""
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
    """The mean of max(0, x) for normal x with mean β and deviation 1: β Φ(β) + φ(β)."""
    density = np.exp(-(beta**2) / 2) / sqrt(2 * pi)
    return beta * np.array([0.5 * (1 + erf(value / sqrt(2))) for value in beta]) + density


def has_integer_products() -> bool:
    """Whether this CPU has fast and exact sums of products of 8-bit integers, and onnxruntime is here."""
    try:
        import onnxruntime  # noqa: F401

        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except (ImportError, OSError):
        return False
    return platform.system() == "Linux" and not CPU_FLAGS.isdisjoint(flags)


def use_integers(network: I3D, num_frames: int) -> None:
    """Let a network compute clips of this length in integers from now on, on a CPU."""
    checkpoint = network.checkpoint
    if checkpoint is None:
        raise InputError("only I3D with its published weights computes in integers")

    def make() -> bytes:
        state = {name: value.numpy() for name, value in convert(checkpoint).items()}
        return GraphBuilder(state, read_means(checkpoint)).build(num_frames, SIZE)

    network.integer = IntegerI3D(make, checkpoint.with_name(FILE), num_frames, SIZE)


class IntegerI3D:
    """I3D in integers up to its pooled features, by onnxruntime."""

    def __init__(self, make: Callable[[], bytes], path: Path, num_frames: int, size: int) -> None:
        self.shape = (num_frames, 3, size, size)
        for graph in self._graphs(make, path):
            try:
                session = cpu_session(graph)
                shape = [num_frames, size, size, 3]
                if session.get_inputs()[0].shape != shape:
                    raise InputError(f"clips of {session.get_inputs()[0].shape} in place of {shape}")
                self.session = session
                return
            # onnxruntime has errors of many kinds, of a damaged file or an operation that it lacks
            except Exception as error:
                reason = str(error)
        raise InputError(f"I3D does not run in integers here ({reason})")

    @staticmethod
    def _graphs(make: Callable[[], bytes], path: Path) -> Iterator[bytes]:
        """The graph that is stored; then, where that does not run, one that is built and stored."""
        with suppress(OSError):
            yield path.read_bytes()
        try:
            graph = make()
        except ImportError as error:
            raise InputError(f"I3D in integers needs the package onnx ({error})") from error
        with suppress(OSError):  # a full disk or a folder that cannot be written: made again the next time
            write_bytes(path, graph)
        yield graph

    def __call__(self, clips: Tensor) -> Tensor:
        """Clips (B, T, 3, H, W) in [−1, 1] → pooled features (B, T', 1024)."""
        frames = (clips.float() * INT8_MAX).round_().to(torch.int8).permute(0, 1, 3, 4, 2).contiguous().numpy()
        return torch.stack([torch.from_numpy(self.session.run(None, {"frames": clip})[0]) for clip in frames])
