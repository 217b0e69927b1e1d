"""Messages with one gate an offset, whose gradient is written out, against the plain version; and
that against a loop.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.model.gated_messages import sum_messages, sum_messages_uniform
from tests.conftest import close


def random_inputs(num_videos, length, size, num_offsets, seed):
    """Nodes (B, T, 2D), gates (O, D), inverse degrees (B, T, 1) and links (B, T − o) for each offset."""
    torch.manual_seed(seed)
    num_offsets = min(num_offsets, length - 1)
    mixed = torch.randn(num_videos, length, 2 * size, dtype=torch.float64, requires_grad=True)
    gates = torch.randn(num_offsets, size, dtype=torch.float64, requires_grad=True)
    inverse_degree = torch.rand(num_videos, length, 1, dtype=torch.float64)
    linked = [(torch.rand(num_videos, length - offset) < 0.7).double() for offset in range(1, num_offsets + 1)]
    return mixed, gates, inverse_degree, linked


sizes = (st.integers(1, 3), st.integers(2, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**31))


@given(*sizes)
def test_the_written_out_gradient_is_autograd_s(num_videos, length, size, num_offsets, seed):
    mixed, gates, inverse_degree, linked = random_inputs(num_videos, length, size, num_offsets, seed)
    fast = sum_messages_uniform(mixed, gates, inverse_degree, linked)
    plain = sum_messages(mixed, list(gates), inverse_degree, linked)
    close(fast, plain, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(plain)
    expected = torch.autograd.grad(plain, (mixed, gates), weight)
    for a, b in zip(torch.autograd.grad(fast, (mixed, gates), weight), expected, strict=True):
        close(a, b, rtol=1e-10, atol=1e-10)


def test_second_derivatives_are_refused():
    mixed, gates, inverse_degree, linked = random_inputs(1, 4, 2, 1, 0)
    with pytest.raises(RuntimeError, match="second derivatives are not supported"):
        torch.autograd.grad(sum_messages_uniform(mixed, gates, inverse_degree, linked).sum(), mixed, create_graph=True)
