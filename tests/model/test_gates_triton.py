"""All gates at once against the plain gates: on a GPU, or without one with TRITON_INTERPRET=1 and
Triton installed.
"""

from __future__ import annotations

import copy

import pytest
import torch

from hiero.config import ModelConfig
from hiero.model import gates_triton
from hiero.model.hiero import HiERO
from hiero.model.tdgc import GATE_SLOPE, Gate
from tests.model.triton_device import DEVICE, TRITON_MARKS

pytestmark = TRITON_MARKS


def parameters_of(gates):
    return [parameter for gate in gates for parameter in gate.parameters()]


def random_gates(num_gates, size, hidden_size, num_offsets, seed=0):
    torch.manual_seed(seed)
    gates = [Gate(size, hidden_size).to(DEVICE) for _ in range(num_gates)]
    return gates, 3 * torch.rand(num_gates, num_offsets, device=DEVICE)


@pytest.mark.parametrize(
    ("num_gates", "size", "hidden_size", "num_offsets"),
    [(1, 1, 1, 1), (3, 24, 8, 2), (2, 70, 5, 1), (4, 5, 256, 3), (18, 768, 256, 1)],
)
def test_the_kernels_are_the_plain_gates(num_gates, size, hidden_size, num_offsets):
    gates, distances = random_gates(num_gates, size, hidden_size, num_offsets)
    result = gates_triton.uniform_gates_triton(parameters_of(gates), distances.tolist(), GATE_SLOPE)
    exact_gates = [copy.deepcopy(gate).double() for gate in gates]
    expected = torch.stack([gate(row) for gate, row in zip(exact_gates, distances.double(), strict=True)])
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-6)
    weight = torch.randn_like(result)
    gradients = torch.autograd.grad(result, parameters_of(gates), weight)
    expected_gradients = torch.autograd.grad(expected, parameters_of(exact_gates), weight.double())
    for one, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5 * size**0.5)


def test_small_values_keep_their_digits():
    gates, distances = random_gates(1, 64, 4, 1)
    with torch.no_grad():
        for parameter in gates[0].out.parameters():
            parameter *= 1e-4
    result = gates_triton.uniform_gates_triton(parameters_of(gates), distances.tolist(), GATE_SLOPE)
    expected = copy.deepcopy(gates[0]).double()(distances[0].double())
    torch.testing.assert_close(
        result[0].double(), expected, rtol=1e-5, atol=1e-6 * float(expected.detach().abs().max())
    )


def test_results_repeat_and_second_derivatives_are_refused():
    gates, distances = random_gates(3, 40, 16, 2)
    parameters = parameters_of(gates)

    def run(**options):
        out = gates_triton.uniform_gates_triton(parameters, distances.tolist(), GATE_SLOPE)
        return torch.autograd.grad(out.square().sum(), parameters, **options)

    assert all(a.equal(b) for a, b in zip(run(), run(), strict=True))
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        run(create_graph=True)


def test_the_operator_is_registered_as_it_behaves():
    gates, distances = random_gates(2, 6, 4, 2)
    torch.library.opcheck(gates_triton._gates, (parameters_of(gates), distances.flatten().tolist(), GATE_SLOPE))


@pytest.mark.parametrize("length", [1, 2, 3, 40])
@pytest.mark.parametrize("cut", [False, True])
def test_a_network_is_the_same_with_and_without_the_kernels(monkeypatch, length, cut):
    """Also where levels have different numbers of neighbours, or none."""
    torch.manual_seed(0)
    config = ModelConfig(
        6, 16, embedding_size=8, gate_size=8, dropout=0.0, radius_s=1.7, thread_radius=1.5, num_threads=3
    )
    network = HiERO(config).to(DEVICE)
    x = torch.randn(2, length, 6, device=DEVICE)
    results = []
    for is_available in (True, False):
        monkeypatch.setattr(gates_triton, "is_available", lambda *_, is_available=is_available: is_available)
        network.zero_grad(set_to_none=True)
        features = [level.features for level in network(x, spacing_s=0.5, threads=cut)]
        sum(f.square().sum() for f in features).backward()
        results.append((features, [torch.zeros_like(p) if p.grad is None else p.grad for p in network.parameters()]))
    for ones, others in zip(*results, strict=True):
        for one, other in zip(ones, others, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4 * float(other.detach().abs().max()) + 1e-7)
