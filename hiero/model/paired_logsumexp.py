"""Log-sums of a large similarity matrix along both of its sides, without storing it.

The matrix between all nodes and all narrations of a batch is processed in blocks of rows, which are
not stored for the gradient if there are several. The plain version is two `logsumexp` of the whole
matrix (`tests/oracle/losses.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hiero.model.gated_messages import refuse_second_derivative

BLOCK_SIZE = 2**26  # entries of the similarity matrix per block


def to_single(x: Tensor) -> Tensor:
    """Convert to single precision unless it is double."""
    return x if x.dtype == torch.float64 else x.float()


def paired_logsumexp(
    nodes: Tensor,
    texts: Tensor,
    temperature: float,
    node_used: Tensor,
    text_used: Tensor,
    excluded: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """log Σ exp(v·n/τ) over all used narrations for each node, and over all used nodes for each narration.

    Products have the precision of the inputs, sums at least single precision.
    """
    return _PairedLogSumExp.apply(nodes, texts, temperature, node_used, text_used, excluded)


def _video_blocks(num_videos: int, length: int, num_texts: int) -> list[slice]:
    """Slices of videos whose rows fit into a block, at least one video each."""
    num_in_block = max(1, BLOCK_SIZE // max(1, length * num_texts))
    return [slice(i, min(i + num_in_block, num_videos)) for i in range(0, num_videos, num_in_block)]


def _block_logits(
    nodes: Tensor, texts: Tensor, temperature: float, text_used: Tensor, excluded: Tensor | None, block: slice
) -> Tensor:
    """Similarities (rows of the block, B·M), −∞ if a narration is not a candidate for a node."""
    rows = nodes[block]
    logits = to_single(rows.flatten(0, 1) @ texts.flatten(0, 1).mT) / temperature
    logits = logits.masked_fill(~text_used.flatten(), -torch.inf)
    if excluded is not None:
        video = torch.arange(len(nodes), device=nodes.device)
        same_video = video[block, None] == video  # (b, B)
        drop = excluded[block][:, :, None, :] & same_video[:, None, :, None]  # (b, T, B, M)
        logits = logits.masked_fill(drop.flatten(0, 1).flatten(1), -torch.inf)
    return logits


class _PairedLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, nodes, texts, temperature, node_used, text_used, excluded):  # type: ignore[no-untyped-def]
        batch, length, _ = nodes.shape
        over_texts = []
        over_nodes = to_single(nodes.new_full((texts.shape[0] * texts.shape[1],), -torch.inf))
        blocks = _video_blocks(batch, length, over_nodes.numel())
        for block in blocks:
            logits = _block_logits(nodes, texts, temperature, text_used, excluded, block)
            over_texts.append(logits.logsumexp(1))
            logits = logits.masked_fill(~node_used[block].flatten()[:, None], -torch.inf)
            over_nodes = torch.logaddexp(over_nodes, logits.logsumexp(0))
        # An unused row may have no candidates; a finite value keeps exp() in the gradient finite.
        per_node = torch.where(node_used, torch.cat(over_texts).view(batch, length), 0.0)
        per_text = torch.where(text_used, over_nodes.view(text_used.shape), 0.0)
        stored_logits = logits if len(blocks) == 1 else None  # a single block is small enough
        ctx.save_for_backward(nodes, texts, node_used, text_used, excluded, per_node, per_text, stored_logits)
        ctx.temperature = temperature
        return per_node, per_text

    @staticmethod
    def backward(ctx, grad_node, grad_text):  # type: ignore[no-untyped-def]
        refuse_second_derivative()
        nodes, texts, node_used, text_used, excluded, per_node, per_text, stored_logits = ctx.saved_tensors
        grad_node = torch.where(node_used, grad_node, 0.0)
        grad_text = torch.where(text_used, grad_text, 0.0).flatten()
        flat_texts = texts.flatten(0, 1)
        grad_nodes, grad_texts = [], to_single(torch.zeros_like(flat_texts))
        for block in _video_blocks(nodes.shape[0], nodes.shape[1], len(flat_texts)):
            logits = stored_logits
            if logits is None:
                logits = _block_logits(nodes, texts, ctx.temperature, text_used, excluded, block)
            # The gradient of a logsumexp is the softmax, here along each side of the matrix.
            used = node_used[block].flatten()[:, None]
            softmax = torch.where(used, (logits - per_node[block].flatten()[:, None]).exp(), 0.0)
            weight = softmax * grad_node[block].flatten()[:, None]
            softmax = torch.where(used, (logits - per_text.flatten()).exp(), 0.0)
            weight = ((weight + softmax * grad_text) / ctx.temperature).to(nodes.dtype)
            grad_nodes.append(weight @ flat_texts)
            grad_texts = grad_texts + weight.mT @ nodes[block].flatten(0, 1)
        return torch.cat(grad_nodes).view_as(nodes), grad_texts.to(texts.dtype).view_as(texts), None, None, None, None
