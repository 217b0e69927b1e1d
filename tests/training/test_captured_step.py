"""The training step: it learns, and the captured one does the same on a GPU."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

import examples.custom_operator  # noqa: F401  registers mean-neighbours
from benchmarks.step import EdgeListObjective, make_inputs
from hiero.config import Behaviour, LossConfig, ModelConfig
from hiero.errors import InputError
from hiero.model import normalised_cut_triton
from hiero.model.hiero import HiERO
from hiero.model.normalised_cut import NUM_ITERATIONS, NUM_RESTARTS, cut_samples, log_similarity, normalise_similarity
from hiero.training import captured_step
from hiero.training.captured_step import CapturedStep, check_capturable
from hiero.training.step import Objective, TrainStep, make_adam, parameter_groups, set_learning_rate
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
    a = TrainStep(Objective(ours, LossConfig(), SPACING_S), make_adam(ours))(inputs())
    b = TrainStep(EdgeListObjective(theirs, LossConfig(), SPACING_S), make_adam(theirs))(inputs())
    close(a.total, b.total, rtol=1e-4)
    close(a.threads, b.threads, rtol=1e-4)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=2e-5, msg=lambda m, name=name: f"{name}: {m}")


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
        ({"num_threads": 17}, SPACING_S, "num_threads <= 16"),
        ({"operator": "mean-neighbours"}, SPACING_S, "mean-neighbours"),
    ],
)
def test_what_cannot_be_captured_says_so(monkeypatch, changes, spacing_s, message):
    monkeypatch.setattr(captured_step, "HAS_TRITON", True)
    objective = Objective(small(**changes), LossConfig(), spacing_s)
    on_gpu = SimpleNamespace(features=SimpleNamespace(is_cuda=True))
    with pytest.raises(InputError, match=message):
        check_capturable(objective, on_gpu)
    with pytest.raises(InputError, match="needs a CUDA GPU"):
        check_capturable(objective, inputs())


def test_inputs_of_another_shape_are_not_broadcast():
    smaller = make_inputs(1, "cpu", num_nodes=120, num_texts=24, width=12)
    with pytest.raises(InputError, match=r"features has shape \(1, 120, 12\), but the first batch had \(2, 120, 12\)"):
        inputs().copy_(smaller)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's own tracing
def test_the_step_compiles_without_a_break():
    """The whole computation is one graph, as capturing needs (traced here, without generating code or
    the graph of gradients).

    One layer a stage and two stages: further ones are the same code, and each takes seconds to trace.
    """
    model = small(dropout=0.0, num_layers=1, depth=2)
    objective = Objective(model, LossConfig(), SPACING_S, precision=torch.bfloat16)
    compiled = torch.compile(objective, fullgraph=True, dynamic=False, backend="eager")
    losses, expected = compiled(inputs()), objective(inputs())
    close(losses.alignment, expected.alignment, rtol=0.01, atol=0.01)
    losses.total.backward()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("num_threads", [1, 2, 3, 4, 7])
def test_the_cut_kernel_is_the_plain_cut(num_threads):
    """Eigenpairs to rounding, and the same threads as the chain of torch operations."""
    torch.manual_seed(0)
    centres = torch.nn.functional.normalize(torch.randn(50, num_threads, 40), dim=-1)
    which = torch.randint(num_threads, (50, 32))
    x = centres.gather(1, which[..., None].expand(-1, -1, 40)) + 0.05 * torch.randn(50, 32, 40)
    x[0] = 1.0  # all alike
    x[1] = 0.0
    labels, values, vectors = normalised_cut_triton.cut_samples_triton(
        x.cuda(), num_threads, 0.05, 0, NUM_RESTARTS, NUM_ITERATIONS
    )
    matrix, _ = normalise_similarity(log_similarity(x.double(), 0.05, "training"), 0.05)
    torch.testing.assert_close(values.cpu().double().sort().values, torch.linalg.eigvalsh(matrix), rtol=1e-4, atol=1e-5)
    basis = vectors.cpu().double()
    torch.testing.assert_close(basis.mT @ basis, torch.eye(num_threads).double().expand(50, -1, -1), rtol=0, atol=1e-4)
    leading = values.cpu().double().sort(descending=True).values[:, :num_threads]
    torch.testing.assert_close(matrix @ basis, basis * leading[:, None], rtol=0, atol=1e-4)
    # the first two have no threads
    torch.testing.assert_close(labels.cpu()[2:], cut_samples(x, num_threads, 0.05, 0)[2:])


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("default")  # what torch's compiler warns itself about
def test_the_captured_step_is_the_plain_one():
    plain_model = small("cuda", dropout=0.0)
    fast_model = copy.deepcopy(plain_model)
    plain = TrainStep(Objective(plain_model, LossConfig(), SPACING_S), make_adam(plain_model, lr=1e-3))
    fast = CapturedStep(Objective(fast_model, LossConfig(), SPACING_S), make_adam(fast_model, lr=1e-3), inputs("cuda"))
    for a, b in zip(plain_model.parameters(), fast_model.parameters(), strict=True):
        assert a.equal(b)  # recording left no trace
    differences = []
    for seed in range(9):
        a, b = plain(inputs("cuda", seed)), fast(inputs("cuda", seed))
        differences.append(abs(float(a.total / b.total) - 1))
        with torch.no_grad():
            for p, q in zip(plain_model.parameters(), fast_model.parameters(), strict=True):
                q.copy_(p)  # the graph works on these tensors
    # In one of forty random batches rounding decides which thread a node is in.
    assert sorted(differences)[len(differences) // 2] < 1e-4
    assert max(differences) < 0.2
    set_learning_rate(fast.optimizer, 0.0)  # a schedule changes the rate in place, and the graph sees it
    before = [p.clone() for p in fast_model.parameters()]
    fast(inputs("cuda", 6))
    assert all(a.equal(b) for a, b in zip(before, fast_model.parameters(), strict=True))
    half = CapturedStep(
        Objective(fast_model, LossConfig(), SPACING_S, precision=torch.bfloat16), make_adam(fast_model), inputs("cuda")
    )
    batch = inputs("cuda", 9)
    batch.mask[1, 70:] = False
    batch.text_mask[0, 5:] = False
    a, b = Objective(fast_model, LossConfig(), SPACING_S)(batch), half(batch)
    torch.testing.assert_close(a.alignment, b.alignment, rtol=0.02, atol=0.02)
    torch.testing.assert_close(a.threads, b.threads, rtol=0.1, atol=0.02)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("default")  # what torch's compiler warns itself about
def test_dropout_is_drawn_again_at_each_replay():
    model = small("cuda", dropout=0.5)
    optimizer = make_adam(model, lr=0.0)
    step = CapturedStep(Objective(model, LossConfig(), SPACING_S), optimizer, inputs("cuda"))
    assert len({step(inputs("cuda")).alignment.item() for _ in range(4)}) == 4


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("clip", [0.1, 1e6])
def test_clipped_adam_is_torchs_adam_after_clipping(kind, clip):
    """With gradients in single precision and, for some parameters, in a copy in half precision; and without any."""
    from hiero.training.adam_triton import ClippedAdam

    torch.manual_seed(0)
    expected = torch.nn.Sequential(torch.nn.Linear(70, 90), torch.nn.Linear(90, 5), torch.nn.Linear(3, 3)).cuda()
    module = copy.deepcopy(expected)
    copies = {id(p): torch.nn.Parameter(p.detach().bfloat16()) for p in (module[0].weight, module[1].bias)}
    plain, fused = make_adam(expected, 1e-2, 0.1, kind), make_adam(module, 1e-2, 0.1, kind)
    adam = ClippedAdam(fused, copies, clip)
    for _ in range(5):
        for a, b in zip(expected[:2].parameters(), module[:2].parameters(), strict=True):
            gradient = torch.randn_like(a).bfloat16()
            a.grad = gradient.float()
            if id(b) in copies:
                copies[id(b)].grad = gradient
            else:
                b.grad = gradient.float()
        torch.nn.utils.clip_grad_norm_(expected.parameters(), clip)
        plain.step()
        adam.step()
    for a, b in zip(expected.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)  # corrections of the first steps are in single precision
    for p in (module[0].weight, module[1].bias):
        assert copies[id(p)].equal(p.bfloat16())
    for a, b in zip(expected[:2].parameters(), module[:2].parameters(), strict=True):
        torch.testing.assert_close(plain.state[a]["exp_avg_sq"], fused.state[b]["exp_avg_sq"], rtol=1e-4, atol=1e-8)
