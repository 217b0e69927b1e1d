"""Networks that come as ONNX files: run by onnxruntime on a CPU, and by torch on any other device.

An ONNX file says which operations on which arrays make the network. `OnnxNetwork` does them one by
one with torch, so no network is written out again here, and no second runtime is needed for a GPU.
Only the operations of the networks that hiero uses are known. The file is protobuf: messages of
numbered fields. Reading it takes a few lines, which run no code of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hiero.errors import InputError

DTYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16, 11: np.float64}  # of TensorProto
FLOAT_KINDS = (1, 10, 11)
GRAPH, GRAPH_OUTPUT, VALUE_NAME = 7, 12, 1  # fields of ModelProto, GraphProto and ValueInfoProto
FIXED_SIZES = {1: 8, 5: 4}  # bytes, by the wire type of a field
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


# Reading


def read_graph(model: bytes) -> Graph:
    """The graph of an ONNX file. Raises InputError where the bytes are none."""
    try:
        # A field that comes twice is merged: its repeated fields follow each other (see `add_output`).
        fields = [field for number, body in _fields(model) if number == GRAPH for field in _fields(body)]
        nodes = [_node(body) for number, body in fields if number == 1]
        weights = dict(_tensor(body) for number, body in fields if number == 5)
        inputs, outputs = (
            tuple(_text(dict(_fields(body))[VALUE_NAME]) for number, body in fields if number == kind)
            for kind in (11, GRAPH_OUTPUT)
        )
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"not an ONNX file that can be read ({error})") from error
    if not nodes or not outputs:
        raise InputError("not an ONNX file: no network in it")
    return Graph(nodes, weights, tuple(name for name in inputs if name not in weights), outputs)


def add_output(model: bytes, name: str) -> bytes:
    """An ONNX file with one more output, a value inside the network: protobuf merges a second graph
    into the first.
    """

    def field(number: int, body: bytes) -> bytes:
        return _varint(number << 3 | 2) + _varint(len(body)) + body

    return model + field(GRAPH, field(GRAPH_OUTPUT, field(VALUE_NAME, name.encode())))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message: an int, or the bytes of anything else."""
    view, position = memoryview(data), 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = view[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(view):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
            continue
        size = varint() if kind == 2 else FIXED_SIZES[kind]
        if position + size > len(view):
            raise ValueError("it ends too early")
        yield number, view[position : position + size]
        position += size


def _text(value: Any) -> str:
    return bytes(value).decode()


def _integers(values: list[Any]) -> list[int]:
    """A repeated field of integers: one by one, or packed."""
    out: list[int] = []
    for value in values:
        out += (
            [value]
            if isinstance(value, int)
            else [v for _, v in _fields(b"".join(b"\x08" + v for v in _split_varints(value)))]
        )
    return [value - 2**64 if value >= 2**63 else value for value in out]


def _split_varints(packed: Any) -> Iterator[bytes]:
    begin = 0
    for i, byte in enumerate(packed):
        if byte < 128:
            yield bytes(packed[begin : i + 1])
            begin = i + 1


def _tensor(body: Any) -> tuple[str, np.ndarray]:
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(body):
        fields.setdefault(number, []).append(value)
    dtype = np.dtype(DTYPES[fields[2][0]])
    shape = _integers(fields.get(1, []))
    if 9 in fields:
        values = np.frombuffer(bytes(fields[9][0]), dtype)
    elif 4 in fields:
        values = np.frombuffer(b"".join(bytes(value) for value in fields[4]), np.float32)
    else:
        values = np.array(_integers(fields.get(7, fields.get(5, []))), dtype)
    return _text(fields.get(8, [b""])[0]), values.reshape(shape).astype(dtype)


def _node(body: Any) -> Node:
    inputs, outputs, op, settings = [], [], "", {}
    for number, value in _fields(body):
        if number == 1:
            inputs.append(_text(value))
        elif number == 2:
            outputs.append(_text(value))
        elif number == 4:
            op = _text(value)
        elif number == 5:
            name, setting = _setting(value)
            settings[name] = setting
    return Node(op, tuple(inputs), tuple(outputs), settings)


def _setting(body: Any) -> tuple[str, Any]:
    fields: dict[int, list[Any]] = {}
    for number, value in _fields(body):
        fields.setdefault(number, []).append(value)
    name = _text(fields[1][0])
    if 5 in fields:
        return name, _tensor(fields[5][0])[1]
    if 8 in fields:
        return name, _integers(fields[8])
    if 7 in fields:
        return name, np.frombuffer(b"".join(bytes(value) for value in fields[7]), np.float32).tolist()
    if 4 in fields:
        return name, _text(fields[4][0])
    if 2 in fields:
        return name, float(np.frombuffer(bytes(fields[2][0]), np.float32)[0])
    return name, _integers(fields[3])[0] if 3 in fields else None


# Running


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
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # another thread decodes
            self._session = onnxruntime.InferenceSession(self.cpu_model(), options, providers=["CPUExecutionProvider"])
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
