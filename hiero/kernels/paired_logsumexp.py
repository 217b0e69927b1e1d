"""Log-sums of a large similarity matrix along both of its sides, without holding it.

The matrix between all nodes and all narrations of a batch is walked in row blocks; unless one block holds it all, none is kept
for the gradient. The plain version is two `logsumexp` of the whole matrix (`tests/oracle/losses.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from hiero.kernels.autograd import refuse_second_derivative

BLOCK = 2**26  # entries of the similarity matrix held at once


def to_single(x: Tensor) -> Tensor:
    """In single precision, or double if it is."""
    return x if x.dtype == torch.float64 else x.float()


def paired_logsumexp(
    nodes: Tensor, texts: Tensor, temperature: float, node_used: Tensor, text_used: Tensor, excluded: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """log Σ exp(v·n/τ) over all used narrations for each node (B, T), and over all used nodes for each narration (B, M).

    excluded (B, T, M): same-video pairs to leave out. Rows that are not used give 0. Products are taken in the precision
    of the inputs, sums in single precision or better.
    """
    return _PairedLogSumExp.apply(nodes, texts, temperature, node_used, text_used, excluded)


def _blocks(num_videos: int, length: int, num_texts: int) -> list[slice]:
    """Videos whose rows together stay within a block."""
    step = max(1, BLOCK // max(1, length * num_texts))
    return [slice(i, min(i + step, num_videos)) for i in range(0, num_videos, step)]


def _logits(nodes: Tensor, texts: Tensor, temperature: float, used: Tensor, excluded: Tensor | None, block: slice) -> Tensor:
    """(rows of the block, B·M) similarities, −∞ where a narration is not a candidate for a node."""
    rows = nodes[block]
    logits = to_single(rows.flatten(0, 1) @ texts.flatten(0, 1).mT) / temperature
    logits = logits.masked_fill(~used.flatten(), -torch.inf)
    if excluded is not None:
        video = torch.arange(len(nodes), device=nodes.device)
        same = video[block, None] == video  # (b, B)
        drop = excluded[block][:, :, None, :] & same[:, None, :, None]  # (b, T, B, M)
        logits = logits.masked_fill(drop.flatten(0, 1).flatten(1), -torch.inf)
    return logits


class _PairedLogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, nodes, texts, temperature, node_used, text_used, excluded):  # type: ignore[no-untyped-def]
        batch, length, _ = nodes.shape
        per_node = []
        per_text = to_single(nodes.new_full((texts.shape[0] * texts.shape[1],), -torch.inf))
        blocks = _blocks(batch, length, per_text.numel())
        for block in blocks:
            logits = _logits(nodes, texts, temperature, text_used, excluded, block)
            per_node.append(logits.logsumexp(1))
            logits = logits.masked_fill(~node_used[block].flatten()[:, None], -torch.inf)
            per_text = torch.logaddexp(per_text, logits.logsumexp(0))
        over_texts = torch.cat(per_node).view(batch, length)
        over_nodes = per_text.view(text_used.shape)
        # An unused row may have no candidate at all; a finite stand-in keeps exp() in the gradient finite.
        over_texts = torch.where(node_used, over_texts, 0.0)
        over_nodes = torch.where(text_used, over_nodes, 0.0)
        whole = logits if len(blocks) == 1 else None  # a single block is small enough to keep
        ctx.save_for_backward(nodes, texts, node_used, text_used, excluded, over_texts, over_nodes, whole)
        ctx.temperature = temperature
        return over_texts, over_nodes

    @staticmethod
    def backward(ctx, grad_node, grad_text):  # type: ignore[no-untyped-def]
        refuse_second_derivative()
        nodes, texts, node_used, text_used, excluded, over_texts, over_nodes, whole = ctx.saved_tensors
        grad_node = torch.where(node_used, grad_node, 0.0)
        grad_text = torch.where(text_used, grad_text, 0.0).flatten()
        flat_texts = texts.flatten(0, 1)
        to_nodes, to_texts = [], to_single(torch.zeros_like(flat_texts))
        for block in _blocks(nodes.shape[0], nodes.shape[1], len(flat_texts)):
            logits = _logits(nodes, texts, ctx.temperature, text_used, excluded, block) if whole is None else whole
            used = node_used[block].flatten()[:, None]
            share = torch.where(used, (logits - over_texts[block].flatten()[:, None]).exp(), 0.0)
            weight = share * grad_node[block].flatten()[:, None]
            share = torch.where(used, (logits - over_nodes.flatten()).exp(), 0.0)
            weight = ((weight + share * grad_text) / ctx.temperature).to(nodes.dtype)
            to_nodes.append(weight @ flat_texts)
            to_texts = to_texts + weight.mT @ nodes[block].flatten(0, 1)
        return torch.cat(to_nodes).view_as(nodes), to_texts.to(texts.dtype).view_as(texts), None, None, None, None
