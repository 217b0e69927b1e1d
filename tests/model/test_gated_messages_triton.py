"""The kernels of TDGC's sum against the plain version: on a GPU, or without one with
TRITON_INTERPRET=1 and Triton installed.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.model import gated_messages_triton, tdgc
from hiero.model.gated_messages import SLOPE, sum_messages
from hiero.model.gated_messages_triton import sum_messages_triton
from hiero.model.tdgc import uniform_neighbours
from hiero.model.unet import Stage
from tests.model.triton_device import DEVICE, INTERPRETED, TRITON_MARKS

NUM_STAGES = 9 if INTERPRETED else 41  # on a GPU the medians of nine differ by a factor of three
pytestmark = TRITON_MARKS
# Of one rounding; the interpreter of Triton cuts bf16 off.
PRECISION = {torch.float32: 2e-6, torch.bfloat16: 2**-7 if INTERPRETED else 2**-8}


def random_inputs(num_videos, length, size, num_offsets, dtype, seed=0):
    """Product (B, T, 2D), bias (2D,), gates (O, D), inverse degrees (B, T, 1), links (B, T − o) for each offset."""
    torch.manual_seed(seed)
    product = torch.randn(num_videos, length, 2 * size, device=DEVICE).to(dtype).requires_grad_()
    bias = torch.randn(2 * size, device=DEVICE).to(dtype).requires_grad_()
    gates = torch.randn(num_offsets, size, device=DEVICE, requires_grad=True)
    group = torch.randint(3, (num_videos, length), device=DEVICE).sort(-1).values - 1  # padding, and two threads
    neighbours = uniform_neighbours(group, 1.0, num_offsets + 0.5)
    return product, bias, gates, neighbours.inverse_degree, neighbours.linked


def doubled(inputs):
    """The same numbers in double precision, for the plain version."""
    product, bias, gates, inverse_degree, linked = inputs
    leaves = [x.detach().double().requires_grad_() for x in (product, bias, gates)]
    return *leaves, inverse_degree.double(), [link.double() for link in linked]


def plain(product, bias, gates, inverse_degree, linked, *, activate):
    out = sum_messages(product + bias, list(gates), inverse_degree, linked)
    return F.leaky_relu(out, SLOPE) if activate else out


@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_videos", "length", "size", "num_offsets"),
    [(1, 2, 1, 1), (3, 7, 5, 2), (2, 33, 64, 1), (5, 40, 72, 3), (2, 70, 130, 2), (1, 4, 16, 3), (1, 4200, 3, 1)],
)
def test_the_kernels_are_the_plain_sum(num_videos, length, size, num_offsets, dtype, activate):
    inputs = random_inputs(num_videos, length, size, num_offsets, dtype)
    exact = doubled(inputs)
    result, expected = sum_messages_triton(*inputs, activate=activate), plain(*exact, activate=activate)
    assert result.dtype == dtype
    tolerance = PRECISION[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=8 * 2e-6)
    # Where rounding decides the sign, so does it the slope of the gradient: such nodes get none.
    weight = torch.randn_like(result) * (expected.abs() > 1e-5)
    gradients = torch.autograd.grad(result, inputs[:3], weight)
    expected_gradients = torch.autograd.grad(expected, exact[:3], weight.double())
    scale = (num_videos * length) ** 0.5  # of a sum over nodes
    for name, a, b, sums in zip(
        ("product", "bias", "gates"), gradients, expected_gradients, (1, scale, scale), strict=True
    ):
        own = PRECISION[a.dtype]
        torch.testing.assert_close(a.double(), b, rtol=own, atol=2e-5 * sums, msg=lambda m, name=name: f"{name}: {m}")


def test_results_repeat():
    inputs = random_inputs(2, 100, 16, 1, torch.bfloat16)
    weight = torch.randn(2, 100, 16, device=DEVICE).bfloat16()
    first, second = (
        torch.autograd.grad(sum_messages_triton(*inputs, activate=True), inputs[:3], weight) for _ in range(2)
    )
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


def test_gradients_that_are_not_contiguous():
    inputs = random_inputs(2, 10, 6, 1, torch.float32)
    result = sum_messages_triton(*inputs)
    expanded, filled = (
        torch.autograd.grad(result, inputs[:3], g, retain_graph=True)
        for g in (torch.ones((), device=DEVICE).expand_as(result), torch.ones_like(result))
    )
    assert all(a.equal(b) for a, b in zip(expanded, filled, strict=True))


def test_second_derivatives_are_refused():
    inputs = random_inputs(1, 4, 2, 1, torch.float32)
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.autograd.grad(sum_messages_triton(*inputs).sum(), inputs[0], create_graph=True)


@pytest.mark.parametrize("activate", [False, True])
def test_the_operator_is_registered_as_it_behaves(activate):
    """Shapes, precisions and aliasing that the compiler assumes are those of the kernels."""
    product, bias, gates, inverse_degree, linked = random_inputs(2, 6, 4, 1, torch.bfloat16)
    arguments = (product, bias, gates, inverse_degree, linked[0].flatten(), activate)
    torch.library.opcheck(gated_messages_triton._sum_messages, arguments)


@pytest.mark.filterwarnings("ignore")  # of torch's own tracing
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_stage_is_the_same_with_and_without_the_kernels(monkeypatch, compiled, precision):
    """Under autocast: as close to single precision as without them, over several random stages.

    In a single one a rounded number on the other side of a LeakyReLU decides between the two.
    """
    group = torch.arange(20, device=DEVICE).repeat(2, 1) // 18  # a thread of 18 nodes and one of 2

    def run(stage, x, weight, precision, *, kernels):
        monkeypatch.setattr(tdgc, "is_available", lambda _: kernels)
        layers, nodes = copy.deepcopy(stage), x.clone().requires_grad_()
        network = (
            torch.compile(layers, fullgraph=True, dynamic=False, backend="aot_eager")
            if kernels and compiled
            else layers
        )
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == torch.bfloat16):
            out = network(nodes, uniform_neighbours(group, 1.0, 2.5))
        (out * weight).sum().backward()
        return {"out": out.detach(), "x": nodes.grad, **{name: p.grad for name, p in layers.named_parameters()}}

    errors: dict[str, list[list[float]]] = {}
    for seed in range(1 if precision == torch.float32 else NUM_STAGES):
        torch.manual_seed(seed)
        stage = Stage(ModelConfig(1, 24, num_layers=3, gate_size=8, dropout=0.0)).to(DEVICE).train()
        for parameter in stage.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        data = torch.randn(2, 2, 20, 24, device=DEVICE)
        exact = run(stage, *data, torch.float32, kernels=False)
        results = [run(stage, *data, precision, kernels=kernels) for kernels in (True, False)]
        for name, expected in exact.items():
            norms = [float((result[name] - expected).norm() / expected.norm()) for result in results]
            errors.setdefault(name, []).append(norms)
    for name, values in errors.items():
        error, plain_error = torch.tensor(values).median(0).values
        assert error < 1.5 * plain_error + 1e-5, (name, error, plain_error)
