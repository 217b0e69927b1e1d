"""Networks of ONNX files: run by torch as onnxruntime runs them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hiero.backbones.onnx_graph import OPERATIONS, OnnxNetwork, add_output, read_graph
from hiero.errors import InputError

onnx = pytest.importorskip("onnx", reason="needs onnx, to write files to read")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, to compare with")


def onnx_file(nodes, weights, shape=("N", 3, 8, 8)):
    """A file with one input x and one output y."""
    value = onnx.helper.make_tensor_value_info
    initializers = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", [value("x", 1, shape)], [value("y", 1, None)], initializers)
    return onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 14)], ir_version=8
    ).SerializeToString()


def small_network():
    """A patch embedding, an attention of one head over patches, a layer norm and a pool: what the real
    files are made of.
    """
    rng = np.random.default_rng(0)

    def array(*shape):
        return rng.normal(0, 0.5, shape).astype(np.float32)

    node = onnx.helper.make_node
    nodes = [
        node("Conv", ["x", "kernel", "bias"], ["c"], strides=[2, 2], kernel_shape=[2, 2], pads=[0, 0, 0, 0]),
        node("Resize", ["c", "", "scales"], ["r"], mode="linear"),
        node("Shape", ["r"], ["shape"]),
        node("Gather", ["shape", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axis0"], ["n1"]),
        node("Concat", ["n1", "flat"], ["flat_shape"], axis=0),
        node("Reshape", ["r", "flat_shape"], ["f"]),
        node("Transpose", ["f"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["t", "qkv"], ["p"]),
        node("Split", ["p", "sizes"], ["q", "k", "v"], axis=2),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["a"], axis=-1),
        node("MatMul", ["a", "v"], ["o"]),
        node("ReduceMean", ["o"], ["m"], axes=[-1]),
        node("Sub", ["o", "m"], ["d"]),
        node("Pow", ["d", "two"], ["d2"]),
        node("ReduceMean", ["d2"], ["var"], axes=[-1]),
        node("Sqrt", ["var"], ["sd"]),
        node("Div", ["d", "sd"], ["h"]),
        node("Erf", ["h"], ["e"]),
        node("Slice", ["e", "one", "end", "one"], ["y"]),
    ]
    weights = {
        "kernel": array(4, 3, 2, 2),
        "bias": array(4),
        "scales": np.array([1, 1, 0.75, 0.75], np.float32),
        "zero": np.int64(0),
        "axis0": np.array([0]),
        "flat": np.array([4, -1]),
        "qkv": array(4, 12),
        "sizes": np.array([4, 4, 4]),
        "two": np.float32(2),
        "one": np.array([1]),
        "end": np.array([2**62]),
    }
    return onnx_file(nodes, weights)


def test_torch_runs_it_as_onnxruntime_does():
    network = OnnxNetwork(small_network())
    x = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(network.run(x), network(x), rtol=1e-4, atol=1e-5)


def test_a_value_inside_becomes_the_output():
    network = OnnxNetwork(add_output(small_network(), "s"))
    x = torch.randn(2, 3, 8, 8)
    assert network(x).shape == (2, 9, 9)
    torch.testing.assert_close(network.run(x), network(x), rtol=1e-4, atol=1e-5)


def test_weights_are_read_as_onnx_reads_them():
    model = onnx.load_model_from_string(small_network())
    graph = read_graph(small_network())
    assert [node.op for node in graph.nodes] == [node.op_type for node in model.graph.node]
    for tensor in model.graph.initializer:
        np.testing.assert_array_equal(graph.weights[tensor.name], onnx.numpy_helper.to_array(tensor))
    assert (graph.inputs, graph.outputs) == (("x",), ("y",))


@pytest.mark.parametrize("data", [b"", b"no protobuf at all", b"\x3a\xff\xff\xff\x7f", small_network()[:500]])
def test_other_files_are_refused(data):
    with pytest.raises(InputError, match="ONNX"):
        OnnxNetwork(data)


def test_unknown_operations_are_named():
    assert "Loop" not in OPERATIONS
    file = onnx_file([onnx.helper.make_node("Gelu", ["x"], ["y"])], {})
    with pytest.raises(InputError, match="not known here: Gelu"):
        OnnxNetwork(file)
