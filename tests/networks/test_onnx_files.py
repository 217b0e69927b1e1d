"""Weights of ONNX files under the names that torch gives them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hiero.errors import InputError
from hiero.networks.dinov2 import add_output, add_to_weights, cpu_session, read_weights

onnx = pytest.importorskip("onnx", reason="needs onnx, to write files to read")
pytest.importorskip("onnxruntime", reason="needs onnxruntime, to run them")


def linear_file(inside="s"):
    """y = relu(x W + b), as torch writes a linear layer: the matrix has a name of its own."""
    rng = np.random.default_rng(0)
    arrays = {
        "onnx::MatMul_7": rng.normal(size=(4, 3)).astype(np.float32),
        "net.head.bias": rng.normal(size=3).astype(np.float32),
    }
    node, value = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        node("MatMul", ["x", "onnx::MatMul_7"], ["p"], name="/head/MatMul"),
        node("Add", ["p", "net.head.bias"], [inside]),
        node("Relu", [inside], ["y"]),
    ]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, ("N", 4))], [value("y", 1, None)], initializers)
    opset = [onnx.helper.make_opsetid("", 14)]
    return onnx.helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def test_the_weights_fit_a_torch_module():
    weights = read_weights(linear_file(), "net.")
    head = torch.nn.Linear(4, 3)
    head.load_state_dict({name: torch.tensor(weights[f"head.{name}"]) for name in ("weight", "bias")})
    x = torch.randn(5, 4)
    session = cpu_session(add_output(linear_file(), "s"))
    (inside, out) = session.run(["s", "y"], {"x": x.numpy()})
    torch.testing.assert_close(head(x).detach(), torch.from_numpy(inside))
    np.testing.assert_array_equal(out, inside.clip(0))


def test_additions_change_the_weights_of_their_layer():
    addition = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    before = read_weights(linear_file(), "net.")
    after = read_weights(add_to_weights(linear_file(), {"head": addition, "another": addition}), "net.")
    np.testing.assert_array_equal(after["head.weight"], before["head.weight"] + addition)
    np.testing.assert_array_equal(after["head.bias"], before["head.bias"])


@pytest.mark.parametrize("data", [b"", b"no protobuf at all", b"\x3a\xff\xff\xff\x7f", linear_file()[:60]])
def test_other_files_are_refused(data):
    with pytest.raises(InputError, match="ONNX"):
        read_weights(data, "")
