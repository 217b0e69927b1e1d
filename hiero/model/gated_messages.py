"""The sum inside TDGC: gated, signed messages from neighbours, as shifts along time.

    outᵢ = rootᵢ + dᵢ Σₒ linkᵢ,ᵢ₊ₒ gₒ ⊙ φ(messageᵢ₊ₒ) − linkᵢ₋ₒ,ᵢ gₒ ⊙ φ(messageᵢ₋ₒ)

`sum_messages` is the plain version for any gates. `sum_messages_uniform` has one gate for each offset
(uniform times) and a hand-written gradient, with about half the passes over memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def refuse_second_derivative() -> None:
    """Raise an error if a hand-written backward pass is differentiated, which would give a wrong result."""
    # Gradients are enabled in the backward pass only with create_graph.
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("second derivatives are not supported; call backward without create_graph")


SLOPE = 0.2  # slope of φ = LeakyReLU and of every LeakyReLU between TDGC layers


def sum_messages(mixed: Tensor, gates: Sequence[Tensor], inverse_degree: Tensor, linked: Sequence[Tensor]) -> Tensor:
    """The plain version."""
    root, messages = mixed.chunk(2, dim=-1)
    messages = F.leaky_relu(messages, SLOPE)
    total = torch.zeros_like(messages)
    for offset, (gate, link) in enumerate(zip(gates, linked, strict=True), start=1):
        gate = gate * link[..., None].to(gate.dtype)
        total = total + F.pad(gate * messages[:, offset:], (0, 0, 0, offset))  # from later nodes
        total = total - F.pad(gate * messages[:, :-offset], (0, 0, offset, 0))  # from earlier nodes
    return root + total * inverse_degree.to(total.dtype)


def sum_messages_uniform(mixed: Tensor, gates: Tensor, inverse_degree: Tensor, linked: Sequence[Tensor]) -> Tensor:
    """`sum_messages` with one gate for each offset, (O, D)."""
    return _SumMessages.apply(mixed, gates, inverse_degree.to(mixed.dtype), *linked)


class _SumMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mixed, gates, inverse_degree, *linked):  # type: ignore[no-untyped-def]
        size = gates.shape[1]
        messages = F.leaky_relu(mixed[..., size:], SLOPE)
        out = mixed[..., :size].clone()
        for offset, link in enumerate(linked, start=1):
            gated = messages.mul_(gates[0]) if len(linked) == 1 else messages * gates[offset - 1]
            weight = link[..., None].to(mixed.dtype)
            out[:, :-offset].addcmul_(weight * inverse_degree[:, :-offset], gated[:, offset:])
            out[:, offset:].addcmul_(weight * inverse_degree[:, offset:], gated[:, :-offset], value=-1)
        ctx.save_for_backward(mixed, gates, inverse_degree, *linked)
        return out

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        refuse_second_derivative()
        mixed, gates, inverse_degree, *linked = ctx.saved_tensors
        size = gates.shape[1]
        messages = F.leaky_relu(mixed[..., size:], SLOPE)  # cheaper to compute again than to store
        grad_messages, grad_gates = None, []
        for offset, link in enumerate(linked, start=1):
            weight = link[..., None].to(grad.dtype)
            grad_gated = torch.zeros_like(grad)
            grad_gated[:, offset:].addcmul_(weight * inverse_degree[:, :-offset], grad[:, :-offset])
            grad_gated[:, :-offset].addcmul_(weight * inverse_degree[:, offset:], grad[:, offset:], value=-1)
            last = offset == len(linked)
            grad_gates.append((messages.mul_(grad_gated) if last else messages * grad_gated).sum((0, 1)))
            grad_gated.mul_(gates[offset - 1])
            grad_messages = grad_gated if grad_messages is None else grad_messages.add_(grad_gated)
        grad_messages = torch.ops.aten.leaky_relu_backward(grad_messages, mixed[..., size:], SLOPE, False)
        return torch.cat([grad, grad_messages], -1), torch.stack(grad_gates), None, *([None] * len(linked))
