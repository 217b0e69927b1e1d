"""The training step: it learns, and the captured one does the same on a GPU."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

from benchmarks.step import EdgeListStep, make_inputs
from hiero.config import Behaviour, LossConfig, ModelConfig
from hiero.errors import InputError
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


@pytest.mark.parametrize(
    ("changes", "spacing_s", "message"),
    [
        ({}, None, "uniform clock"),
        ({"behaviour": Behaviour(mixed_threads=True)}, SPACING_S, "as the release does"),
        ({"sample_points": 16}, SPACING_S, "sample_points=32"),
    ],
)
def test_what_cannot_be_captured_says_so(monkeypatch, changes, spacing_s, message):
    monkeypatch.setattr(jacobi, "HAS_TRITON", True)
    step = CapturedStep.__new__(CapturedStep)
    step.model, step.spacing_s = small(**changes), spacing_s
    on_gpu = SimpleNamespace(features=SimpleNamespace(is_cuda=True))
    with pytest.raises(InputError, match=message):
        step._check(on_gpu)
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        step._check(inputs())


def test_inputs_of_another_shape_are_not_broadcast():
    one = make_inputs(1, "cpu", num_nodes=120, num_texts=24, width=12)
    with pytest.raises(InputError, match=r"features is \(1, 120, 12\), the step was captured with \(2, 120, 12\)"):
        inputs().copy_(one)


@pytest.mark.filterwarnings("ignore")  # of torch's own tracing
def test_the_step_compiles_without_a_break():
    """The whole computation is one graph, as capturing needs (traced here, without generating code)."""
    model = small(dropout=0.0)
    step = TrainStep(model, make_adam(model), LossConfig(), SPACING_S, precision=torch.bfloat16)
    compiled = torch.compile(step.compute_losses, fullgraph=True, dynamic=False, backend="aot_eager")
    found, expected = compiled(inputs()), step.compute_losses(inputs())
    close(found.alignment, expected.alignment, rtol=0.01, atol=0.01)
    found.total.backward()


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
    for group in fast.optimizer.param_groups:
        group["lr"].fill_(0)  # a schedule changes the rate in place, and the graph sees it
    before = [p.clone() for p in fast_model.parameters()]
    fast(inputs("cuda", 6))
    assert all(a.equal(b) for a, b in zip(before, fast_model.parameters(), strict=True))
    half = CapturedStep(fast_model, make_adam(fast_model), LossConfig(), SPACING_S, inputs("cuda"))
    batch = inputs("cuda", 9)
    batch.mask[1, 70:] = False
    batch.text_mask[0, 5:] = False
    a, b = TrainStep(fast_model, make_adam(fast_model), LossConfig(), SPACING_S).compute_losses(batch), half(batch)
    torch.testing.assert_close(a.alignment, b.alignment, rtol=0.02, atol=0.02)
    torch.testing.assert_close(a.threads, b.threads, rtol=0.1, atol=0.02)


@pytest.mark.gpu
@needs_gpu
def test_dropout_is_drawn_anew_at_each_replay():
    model = small("cuda", dropout=0.5)
    optimizer = make_adam(model, lr=0.0)
    step = CapturedStep(model, optimizer, LossConfig(), SPACING_S, inputs("cuda"))
    assert len({step(inputs("cuda")).alignment.item() for _ in range(4)}) == 4
