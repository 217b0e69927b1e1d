"""The training step: it learns, and the captured one does the same on a GPU."""

from __future__ import annotations

import copy

import pytest
import torch

from benchmarks.step import EdgeListStep, make_inputs
from hiero.config import LossConfig, ModelConfig
from hiero.model import jacobi
from hiero.model.hiero import HiERO
from hiero.training.fast import CapturedStep, TrainStep, make_adam, parameter_groups
from tests.conftest import close

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
SPACING_S = 16 / 30


def small(device="cpu", **changes) -> HiERO:
    torch.manual_seed(0)
    config = ModelConfig(input_size=12, hidden_size=32, embedding_size=16, gate_size=16, **changes)
    return HiERO(config).to(device).train()


def inputs(device="cpu", seed=0):
    return make_inputs(2, device, num_nodes=120, num_texts=24, width=12, seed=seed)


def test_one_step_equals_the_edge_list_step():
    """Forward, both losses, backward, clipping and Adam, from the same weights."""
    ours, theirs = small(dropout=0.0), small(dropout=0.0)
    a = TrainStep(ours, make_adam(ours), LossConfig(), SPACING_S)(inputs())
    b = EdgeListStep(theirs, make_adam(theirs), LossConfig(), SPACING_S)(inputs())
    close(a.total, b.total, rtol=1e-4)
    close(a.threads, b.threads, rtol=1e-4)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")


def test_it_learns():
    model = small(dropout=0.0)
    step = TrainStep(model, make_adam(model, lr=1e-3), LossConfig(), SPACING_S)
    losses = [step(inputs()).alignment.item() for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]


def test_weight_decay_spares_vectors():
    free, decayed = parameter_groups(small(), 1e-5)
    assert all(p.ndim == 1 for p in free["params"])
    assert all(p.ndim > 1 for p in decayed["params"])
    assert len(free["params"]) + len(decayed["params"]) == len(list(small().parameters()))


@pytest.mark.gpu
@needs_gpu
def test_jacobi_decomposes():
    x = torch.nn.functional.normalize(torch.randn(50, 32, 16, device="cuda"), dim=-1)
    matrix = torch.exp((x @ x.mT - 1) / 0.05)
    matrix[0] = 0.5
    matrix[1] = 0
    values, vectors = jacobi.eigh(matrix)
    torch.testing.assert_close(values.sort().values.double(), torch.linalg.eigvalsh(matrix.double()), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(matrix @ vectors, vectors * values[:, None], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(vectors.mT @ vectors, torch.eye(32, device="cuda").expand_as(vectors), rtol=0, atol=1e-4)


@pytest.mark.gpu
@needs_gpu
def test_the_captured_step_is_the_plain_one():
    plain_model = small("cuda", dropout=0.0)
    fast_model = copy.deepcopy(plain_model)
    plain = TrainStep(plain_model, make_adam(plain_model, lr=1e-3), LossConfig(), SPACING_S)
    fast = CapturedStep(fast_model, make_adam(fast_model, lr=1e-3), LossConfig(), SPACING_S, inputs("cuda"), precision=None)
    for a, b in zip(plain_model.parameters(), fast_model.parameters(), strict=True):
        assert a.equal(b)  # recording left no trace
    for seed in range(5):
        a, b = plain(inputs("cuda", seed)), fast(inputs("cuda", seed))
        torch.testing.assert_close(a.total, b.total, rtol=1e-3, atol=1e-3)
    half = CapturedStep(fast_model, make_adam(fast_model), LossConfig(), SPACING_S, inputs("cuda"))
    a, b = plain.compute_losses(inputs("cuda", 9)), half(inputs("cuda", 9))
    torch.testing.assert_close(a.alignment, b.alignment, rtol=0.02, atol=0.02)
