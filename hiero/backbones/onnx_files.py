"""Networks that come as ONNX files: their weights, and sessions of onnxruntime that run them on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from hiero.errors import InputError


def read_weights(model: bytes, prefix: str) -> dict[str, np.ndarray]:
    """The weights of an ONNX file that torch wrote, under the names of the torch module; `prefix` is left out.

    The file keeps matrices of linear layers transposed, and names them after the layer's MatMul alone.
    """
    onnx = _import_onnx()
    from google.protobuf.message import DecodeError

    try:
        graph = onnx.load_model_from_string(model).graph
        arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"not an ONNX file that can be read ({error})") from error
    if not graph.node:
        raise InputError("not an ONNX file: it holds no network")
    weights = {name.removeprefix(prefix): array for name, array in arrays.items()}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in arrays:
            layer = node.name.removesuffix("/MatMul").strip("/").replace("/", ".")
            weights[f"{layer}.weight"] = arrays[node.input[1]].T
    return weights


def add_output(model: bytes, name: str) -> bytes:
    """An ONNX file with one more output, a value inside the network."""
    onnx = _import_onnx()
    output = onnx.GraphProto(output=[onnx.ValueInfoProto(name=name)])
    extra: bytes = onnx.ModelProto(graph=output).SerializeToString()
    return model + extra  # protobuf merges the second graph into the first


def cpu_session(model: bytes) -> Any:
    """A session of onnxruntime on the CPU, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # another thread decodes
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _import_onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise InputError("networks of ONNX files need onnx; run: pip install 'hiero-video[video]'") from None
    return onnx
