"""Log-sums along both sides of a matrix in blocks against those of the whole matrix."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.model import paired_logsumexp as module
from hiero.model.paired_logsumexp import paired_logsumexp
from tests.conftest import close


def random_inputs(num_videos, length, num_texts, seed):
    torch.manual_seed(seed)
    nodes = torch.randn(num_videos, length, 3, dtype=torch.float64, requires_grad=True)
    texts = torch.randn(num_videos, num_texts, 3, dtype=torch.float64, requires_grad=True)
    return nodes, texts, torch.rand(num_videos, length) < 0.7, torch.rand(num_videos, num_texts) < 0.7


def of_the_whole_matrix(nodes, texts, temperature, node_used, text_used, excluded):
    logits = torch.einsum("bte,cme->btcm", nodes, texts) / temperature
    candidate = (node_used[:, :, None, None] & text_used).clone()
    if excluded is not None:
        for video in range(len(nodes)):
            candidate[video, :, video] &= ~excluded[video]
    logits = logits.masked_fill(~candidate, -1e9)  # finite, so that rows without a candidate have a gradient
    per_node = torch.where(node_used, logits.flatten(2).logsumexp(2), 0.0)
    per_text = torch.where(text_used, logits.flatten(0, 1).logsumexp(0), 0.0)
    return per_node, per_text, candidate


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_values_and_gradients(num_videos, length, num_texts, in_blocks, with_excluded, seed):
    nodes, texts, node_used, text_used = random_inputs(num_videos, length, num_texts, seed)
    excluded = torch.rand(num_videos, length, num_texts) < 0.3 if with_excluded else None
    *_, candidate = of_the_whole_matrix(nodes, texts, 0.5, node_used, text_used, excluded)
    # What is used has a candidate in the loss, its positive; only there are the sums defined.
    node_used = node_used & candidate.any(3).any(2)
    text_used = text_used & candidate.any(1).any(0)
    expected_node, expected_text, _ = of_the_whole_matrix(nodes, texts, 0.5, node_used, text_used, excluded)
    block_size = module.BLOCK_SIZE
    try:
        module.BLOCK_SIZE = 1 if in_blocks else block_size  # one video at a time, or everything at once
        per_node, per_text = paired_logsumexp(nodes, texts, 0.5, node_used, text_used, excluded)
        weights = torch.randn_like(per_node), torch.randn_like(per_text)
        gradients = torch.autograd.grad([per_node, per_text], (nodes, texts), weights)
    finally:
        module.BLOCK_SIZE = block_size
    close(per_node, expected_node, rtol=1e-9, atol=1e-9)
    close(per_text, expected_text, rtol=1e-9, atol=1e-9)
    for a, b in zip(
        gradients, torch.autograd.grad([expected_node, expected_text], (nodes, texts), weights), strict=True
    ):
        close(a, b, rtol=1e-8, atol=1e-9)


def test_second_derivatives_are_refused():
    inputs = random_inputs(2, 3, 4, 0)
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.autograd.grad(
            paired_logsumexp(inputs[0], inputs[1], 0.5, *inputs[2:])[0].sum(), inputs[0], create_graph=True
        )
