"""The losses against dense sums over masks, their gradients, and batches where nothing matches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.config import LossConfig, ModelConfig
from hiero.model import losses, paired_logsumexp
from hiero.model.hiero import HiERO
from hiero.model.losses import Timed, alignment_loss, compute_losses, gather_reachable, thread_loss
from tests.conftest import close
from tests.oracle import losses as oracle


def random_batch(num_videos, length, num_texts, seed, dtype=torch.float64):
    torch.manual_seed(seed)
    node_mask = torch.arange(length) < torch.randint(1, length + 1, (num_videos, 1))
    text_mask = torch.arange(num_texts) < torch.randint(0, num_texts + 1, (num_videos, 1))
    nodes = torch.randn(num_videos, length, 4, dtype=dtype, requires_grad=True)
    texts = torch.randn(num_videos, num_texts, 4, dtype=dtype, requires_grad=True)
    times = (torch.rand(num_videos, length, dtype=dtype) * length).sort(1).values
    text_times = torch.rand(num_videos, num_texts, dtype=dtype) * length
    return nodes, times, node_mask, texts, text_times, text_mask


def flat_alignment(batch, config, level=0):
    nodes, times, node_mask, texts, text_times, text_mask = batch
    video = torch.arange(len(nodes))
    level = torch.as_tensor(level).expand(node_mask.shape)[node_mask]
    return oracle.alignment(
        nodes[node_mask],
        times[node_mask],
        video[:, None].expand_as(node_mask)[node_mask],
        texts[text_mask],
        text_times[text_mask],
        video[:, None].expand_as(text_mask)[text_mask],
        config,
        level,
    )


def pair(*batch: torch.Tensor) -> tuple[Timed, Timed]:
    """Nodes and narrations, of three tensors each."""
    return Timed(*batch[:3]), Timed(*batch[3:])


configs = st.builds(
    LossConfig,
    alpha=st.sampled_from([0.5, 1.0, 2.0]),
    beta=st.sampled_from([-1.0, 0.1, 2.0, 16.0]),
    mode=st.sampled_from(["v2t", "t2v", "sym"]),
    temperature=st.sampled_from([0.05, 0.5]),
    inside=st.sampled_from([0.0, 0.3, 1.0]),
)
seeds = st.integers(0, 2**31)


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 6), configs, st.integers(0, 2), st.booleans(), seeds)
def test_alignment_and_its_gradient(num_videos, length, num_texts, config, level, in_blocks, seed):
    batch = random_batch(num_videos, length, num_texts, seed)
    block_size = paired_logsumexp.BLOCK_SIZE
    try:
        paired_logsumexp.BLOCK_SIZE = 1 if in_blocks else block_size  # one video at a time, or everything at once
        loss = alignment_loss(*pair(*batch), config, level)
        gradients = torch.autograd.grad(loss, (batch[0], batch[3]))
    finally:
        paired_logsumexp.BLOCK_SIZE = block_size
    expected = flat_alignment(batch, config, level)
    close(loss, expected.to(loss), rtol=1e-7, atol=1e-9)
    for a, b in zip(gradients, torch.autograd.grad(expected, (batch[0], batch[3])), strict=True):
        close(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("mode", ["v2t", "t2v", "sym"])
@pytest.mark.parametrize("beta", [-1.0, 4.0])
@pytest.mark.parametrize("texts_masked", [False, True])
def test_no_positives_is_zero_with_zero_gradient(mode, beta, texts_masked):
    nodes, times, node_mask, texts, text_times, text_mask = random_batch(3, 6, 4, 0, torch.float32)
    text_mask = torch.zeros_like(text_mask) if texts_masked else torch.ones_like(text_mask)
    batch = pair(nodes, times, node_mask, texts, text_times + 1000, text_mask)
    loss = alignment_loss(*batch, LossConfig(mode=mode, beta=beta))
    loss.backward()
    assert loss.item() == 0
    assert nodes.grad.eq(0).all()
    assert texts.grad.eq(0).all()


def test_extreme_temperatures_stay_finite():
    batch = random_batch(2, 8, 5, 3, torch.float32)
    loss = alignment_loss(*pair(*batch), LossConfig(temperature=1e-4, alpha=0.2))
    loss.backward()
    assert loss.isfinite()
    assert batch[0].grad.isfinite().all()


@pytest.mark.parametrize("mode", ["v2t", "t2v", "sym"])
def test_a_single_candidate_costs_nothing_in_half_precision(mode):
    """Positives and all candidates must be the same numbers, whatever their precision."""
    nodes, texts = torch.randn(1, 1, 64, requires_grad=True), torch.randn(1, 1, 64)
    times, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert alignment_loss(*pair(nodes, times, mask, texts, times, mask), LossConfig(mode=mode)).item() == 0
        assert thread_loss([(torch.randn(1, 5, 64), torch.zeros(1, 5, dtype=torch.long))]).item() == 0


def test_half_precision_is_close():
    batch = random_batch(3, 40, 12, 5, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = alignment_loss(*pair(*batch), LossConfig())
    close(half, alignment_loss(*pair(*batch), LossConfig()), rtol=0.01, atol=0.01)
    assert half.dtype == torch.float32


def test_gradients_of_gradients_are_refused():
    batch = random_batch(2, 5, 4, 1)
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.autograd.grad(alignment_loss(*pair(*batch), LossConfig()), batch[0], create_graph=True)


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 6), seeds)
def test_leaving_out_nodes_without_positives_changes_nothing(num_videos, length, num_texts, seed):
    nodes, texts = pair(*random_batch(num_videos, length, num_texts, seed))
    config = LossConfig()
    reachable = gather_reachable(nodes, texts, config)
    assert reachable.vectors.shape[1] <= length
    close(alignment_loss(reachable, texts, config), alignment_loss(nodes, texts, config))


@given(st.integers(1, 3), st.integers(1, 9), st.sampled_from([0.05, 0.5]), st.booleans(), seeds)
def test_threads_and_their_gradient(num_videos, length, temperature, in_blocks, seed):
    torch.manual_seed(seed)
    levels = [
        (torch.randn(num_videos, n, 4, dtype=torch.float64, requires_grad=True), torch.randint(-1, 3, (num_videos, n)))
        for n in (length, (length + 1) // 2)
    ]
    block_size = losses.BLOCK_SIZE
    try:
        losses.BLOCK_SIZE = 2 * num_videos * length if in_blocks else block_size  # two rows at a time
        loss = thread_loss(levels, temperature)
        gradients = torch.autograd.grad(loss, [x for x, _ in levels])
    finally:
        losses.BLOCK_SIZE = block_size
    x = torch.cat([x.flatten(0, 1) for x, _ in levels])
    thread = torch.cat([t.flatten() for _, t in levels])
    video = torch.cat([torch.arange(num_videos).repeat_interleave(t.shape[1]) for _, t in levels])
    level = torch.cat([torch.full((t.numel(),), i) for i, (_, t) in enumerate(levels)])
    expected = oracle.threads(x, video, level, thread, temperature)
    close(loss, expected, rtol=1e-7, atol=1e-9)
    for a, b in zip(gradients, torch.autograd.grad(expected, [x for x, _ in levels]), strict=True):
        close(a, b, rtol=1e-6, atol=1e-9)


def test_the_model_s_losses_with_and_without_the_head():
    config = ModelConfig(
        input_size=6, hidden_size=8, embedding_size=5, text_size=4, gate_size=7, sample_points=8, num_threads=3
    )
    model = HiERO(config).double().eval()
    x = torch.randn(2, 24, 6, dtype=torch.float64)
    texts = Timed(torch.randn(2, 7, 4, dtype=torch.float64), torch.rand(2, 7) * 12, torch.ones(2, 7, dtype=torch.bool))
    levels = model(x, threads=True)
    plain = compute_losses(model, levels, texts, LossConfig())
    projected = compute_losses(model, levels, texts, LossConfig(projected_threads=True))
    close(plain.total, plain.alignment + plain.threads)
    close(plain.alignment, projected.alignment)
    expected = thread_loss([(model.video_head(level.features), level.threads) for level in levels[1:]])
    close(projected.threads, expected)
    assert not torch.allclose(plain.threads, projected.threads)
    assert compute_losses(model, model(x, threads=False), texts, LossConfig()).threads == 0
    assert compute_losses(model, levels, texts, LossConfig(thread_weight=0)).total == plain.alignment


def test_rubbish_in_the_padding_of_texts():
    config = ModelConfig(input_size=6, hidden_size=8, embedding_size=5, text_size=4, gate_size=7)
    model = HiERO(config).eval()
    texts = torch.cat([torch.randn(2, 3, 4), torch.full((2, 2, 4), torch.nan)], 1)
    mask = torch.tensor([[True, True, True, False, False]] * 2)
    levels = model(torch.randn(2, 24, 6))
    compute_losses(model, levels, Timed(texts, torch.rand(2, 5) * 12, mask), LossConfig()).total.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
