"""Networks that come as ONNX files: run by onnxruntime on a CPU, and by torch on any other device.

An ONNX file says which operations on which arrays make the network. `OnnxNetwork` does them one by
one with torch, so no network is written out again here, and no second runtime is needed for a GPU.
Only the operations of the networks that hiero uses are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}  # of TensorProto
FLOAT_KINDS = (1, 10, 11)
END = 2**31 - 1  # ONNX means the end of an axis by any number that is at least its length


@dataclass(frozen=True)
class Node:
    """One operation: names of its inputs and outputs, and its settings."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """A network: its operations in the order in which they can run, its weights by name, what goes in
    and what comes out.
    """

    nodes: list[Node]
    weights: dict[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def read_graph(model: bytes) -> Graph:
    """The graph of an ONNX file. Raises InputError where the bytes are none."""
    onnx = _import_onnx()
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load_model_from_string(model).graph
        weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
        nodes = [
            Node(
                node.op_type,
                tuple(node.input),
                tuple(node.output),
                {attribute.name: _read_setting(onnx, attribute) for attribute in node.attribute},
            )
            for node in graph.node
        ]
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not an ONNX file that can be read ({error})") from error
    if not nodes or not graph.output:
        raise InputError("not an ONNX file: no network in it")
    inputs = tuple(value.name for value in graph.input if value.name not in weights)
    return Graph(nodes, weights, inputs, tuple(value.name for value in graph.output))


def _read_setting(onnx: Any, attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value


def add_output(model: bytes, name: str) -> bytes:
    """An ONNX file with one more output, a value inside the network."""
    onnx = _import_onnx()
    output = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name)])
    extra: bytes = onnx.ModelProto(graph=output).SerializeToString()
    return model + extra  # protobuf merges the second graph into the first


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError("networks of ONNX files need onnx; run: pip install 'hiero-video[video]'") from None
    return onnx


def cpu_session(model: bytes) -> Any:
    """A session of onnxruntime on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # another thread decodes
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class OnnxNetwork(nn.Module):
    """A network of an ONNX file with one input: (N, …) → its last output."""

    def __init__(self, model: bytes, cpu_model: Callable[[], bytes] | None = None) -> None:
        super().__init__()
        self.cpu_model = cpu_model or (lambda: model)
        self.graph = read_graph(model)
        if unknown := sorted({node.op for node in self.graph.nodes} - OPERATIONS.keys()):
            raise InputError(f"this ONNX file has operations that are not known here: {', '.join(unknown)}")
        # Says where and in which precision the network computes; weights stay in single precision (see `run`).
        self.anchor = nn.Parameter(torch.zeros(1), requires_grad=False)
        self._session: Any = None
        self._weights: tuple[torch.device, dict[str, Tensor]] | None = None

    def forward(self, x: Tensor) -> Tensor:
        return self._run_on_cpu(x) if x.device.type == "cpu" else self.run(x)

    def _run_on_cpu(self, x: Tensor) -> Tensor:
        if self._session is None:
            self._session = cpu_session(self.cpu_model())
        (out,) = self._session.run([self.graph.outputs[-1]], {self.graph.inputs[0]: x.float().numpy()})
        return torch.from_numpy(out)

    def run(self, x: Tensor) -> Tensor:
        """By torch, on the device of x. In half precision only products of matrices and convolutions
        are: sums overflow.
        """
        if self._weights is None or self._weights[0] != x.device:
            self._weights = x.device, {name: _place(value, x.device) for name, value in self.graph.weights.items()}
        values = self._weights[1] | {self.graph.inputs[0]: x.float()}
        half = x.dtype in (torch.float16, torch.bfloat16)
        last_use = {name: i for i, node in enumerate(self.graph.nodes) for name in node.inputs}
        with torch.autocast(x.device.type, x.dtype if half else torch.float16, enabled=half):
            for i, node in enumerate(self.graph.nodes):
                arguments = [values[name] if name else None for name in node.inputs]
                results = OPERATIONS[node.op](node.settings, *arguments)
                values.update(zip(node.outputs, results if isinstance(results, tuple) else (results,), strict=False))
                for name in node.inputs:  # so that memory is that of a few layers
                    if name and last_use[name] == i and name not in self._weights[1] and name not in self.graph.outputs:
                        values.pop(name, None)
        return values[self.graph.outputs[-1]]


def _place(value: np.ndarray, device: torch.device) -> Tensor:
    """Weights to the device; integers, which are shapes and indices, stay where Python reads them."""
    tensor = torch.from_numpy(value.copy())
    return tensor.to(device) if tensor.is_floating_point() else tensor


def _together(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two operands on one device: constants wait on the CPU."""
    if a.device != b.device:
        a, b = (a.to(b.device), b) if a.device.type == "cpu" else (a, b.to(a.device))
    return a, b


def _integer_list(value: Tensor) -> list[int]:
    return [int(v) for v in value.reshape(-1).tolist()]


def _divide(_: dict[str, Any], a: Tensor, b: Tensor) -> Tensor:
    a, b = _together(a, b)
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _constant(settings: dict[str, Any]) -> Tensor:
    return torch.from_numpy(np.array(settings["value"]))


def _unsqueeze(_: dict[str, Any], x: Tensor, axes: Tensor) -> Tensor:
    for axis in sorted(axis % (x.ndim + axes.numel()) for axis in _integer_list(axes)):
        x = x.unsqueeze(axis)
    return x


def _gather(settings: dict[str, Any], x: Tensor, index: Tensor) -> Tensor:
    axis = settings.get("axis", 0)
    index = torch.where(index < 0, index + x.shape[axis], index).to(x.device)
    return x.index_select(axis, index.reshape(-1)).reshape((*x.shape[:axis], *index.shape, *x.shape[axis:][1:]))


def _reshape(_: dict[str, Any], x: Tensor, shape: Tensor) -> Tensor:
    return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(_integer_list(shape))])


def _slice(
    _: dict[str, Any], x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    bounds = list(zip(_integer_list(starts), _integer_list(ends), strict=True))
    strides = _integer_list(steps) if steps is not None else [1] * len(bounds)
    index = [slice(None)] * x.ndim
    for axis, bound, stride in zip(
        _integer_list(axes) if axes is not None else range(len(bounds)), bounds, strides, strict=True
    ):
        index[axis] = slice(bound[0], None if bound[1] >= END else bound[1], stride)
    return x[tuple(index)]


def _split(settings: dict[str, Any], x: Tensor, sizes: Tensor) -> tuple[Tensor, ...]:
    return x.split(_integer_list(sizes), settings.get("axis", 0))


def _same_on_both_sides(padding: list[int]) -> list[int]:
    half = len(padding) // 2
    if padding[:half] != padding[half:]:
        raise InputError(f"this ONNX file pads differently on both sides: {padding}")
    return padding[:half]


def _convolve(settings: dict[str, Any], x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    num_axes = weight.ndim - 2
    padding = _same_on_both_sides(settings.get("pads", [0] * 2 * num_axes))
    stride, dilation = (settings.get(name, [1] * num_axes) for name in ("strides", "dilations"))
    return torch.convolution(
        x, weight, bias, stride, padding, dilation, False, [0] * num_axes, settings.get("group", 1)
    )


def _average_pool(settings: dict[str, Any], x: Tensor) -> Tensor:
    padding = _same_on_both_sides(settings.get("pads", [0, 0, 0, 0]))
    return F.avg_pool2d(x, settings["kernel_shape"], settings.get("strides"), padding, count_include_pad=False)


def _pad(_: dict[str, Any], x: Tensor, pads: Tensor, value: Tensor | None = None) -> Tensor:
    amounts, half = _integer_list(pads), pads.numel() // 2
    order = [amount for axis in reversed(range(half)) for amount in (amounts[axis], amounts[half + axis])]
    return F.pad(x, order, value=0.0 if value is None else float(value)) if any(order) else x


def _resize(settings: dict[str, Any], x: Tensor, _: Tensor | None, scales: Tensor) -> Tensor:
    if settings.get("mode") != "linear" or settings.get("coordinate_transformation_mode", "half_pixel") != "half_pixel":
        raise InputError("this ONNX file scales in another way than linear")
    factors = scales.tolist()[2:]  # of height and width; the factors count, not the sizes that come out
    return F.interpolate(x, scale_factor=factors, mode="bilinear", align_corners=False, recompute_scale_factor=False)


def _cast(settings: dict[str, Any], x: Tensor) -> Tensor:
    kind = settings["to"]
    return x.float() if kind in FLOAT_KINDS else x.to(torch.from_numpy(np.zeros(0, DTYPES[kind])).dtype)


def _mean(settings: dict[str, Any], x: Tensor) -> Tensor:
    return x.mean(settings["axes"], keepdim=bool(settings.get("keepdims", 1)))


def _constant_of_shape(settings: dict[str, Any], shape: Tensor) -> Tensor:
    value = torch.from_numpy(np.array(settings["value"])).reshape(()) if "value" in settings else torch.tensor(0.0)
    return value.expand(_integer_list(shape))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, a, b: torch.add(*_together(a, b)),
    "AveragePool": _average_pool,
    "Cast": _cast,
    "Concat": lambda settings, *parts: torch.cat(parts, settings["axis"]),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _convolve,
    "Div": _divide,
    "Equal": lambda _, a, b: torch.eq(*_together(a, b)),
    "Erf": lambda _, x: torch.erf(x),
    "Expand": lambda _, x, shape: x * torch.ones(_integer_list(shape), dtype=x.dtype, device=x.device),
    "Flatten": lambda settings, x: x.flatten(settings.get("axis", 1)),
    "Gather": _gather,
    "GlobalAveragePool": lambda _, x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "Identity": lambda _, x: x,
    "MatMul": lambda _, a, b: a @ b,
    "Mod": lambda _, a, b: torch.remainder(*_together(a, b)),
    "Mul": lambda _, a, b: torch.mul(*_together(a, b)),
    "Pad": _pad,
    "Pow": lambda _, a, b: torch.pow(*_together(a, b)),
    "ReduceMean": _mean,
    "Reshape": _reshape,
    "Resize": _resize,
    "Shape": lambda _, x: torch.tensor(x.shape),
    "Slice": _slice,
    "Softmax": lambda settings, x: x.softmax(settings.get("axis", -1)),
    "Split": _split,
    "Sqrt": lambda _, x: x.sqrt(),
    "Sub": lambda _, a, b: torch.sub(*_together(a, b)),
    "Transpose": lambda settings, x: x.permute(settings["perm"]),
    "Unsqueeze": _unsqueeze,
    "Where": lambda _, condition, a, b: torch.where(condition.to(a.device), *_together(a, b)),
}
