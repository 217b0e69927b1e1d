"""What the video towers compute, against plain versions; divided attention against a loop over tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.networks.video_kernels import add_norm, divided_attention, quick_gelu
from tests.conftest import close


def token_by_token(qkv: torch.Tensor, num_frames: int, num_heads: int, along: str) -> torch.Tensor:
    batch, length, width = qkv.shape
    num_patches = (length - 1) // num_frames
    size = width // 3 // num_heads
    out = torch.zeros(batch, length, num_heads * size, dtype=qkv.dtype)
    q, k, v = qkv.chunk(3, dim=-1)
    for token in range(length):
        if token == 0:  # the class token attends to everything
            keys = list(range(length))
        else:
            frame, patch = divmod(token - 1, num_patches)
            if along == "time":
                members = [(other, patch) for other in range(num_frames)]
            else:
                members = [(frame, other) for other in range(num_patches)]
            keys = [0, *(1 + f * num_patches + p for f, p in members)]
        for head in range(num_heads):
            channels = slice(head * size, (head + 1) * size)
            scores = (k[:, keys, channels] @ q[:, token, channels, None])[..., 0] / size**0.5
            out[:, token, channels] = (scores.softmax(-1)[..., None] * v[:, keys, channels]).sum(1)
    return out


@pytest.mark.parametrize("along", ["time", "space"])
@given(st.integers(1, 2), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**31))
def test_divided_attention_equals_a_loop_over_tokens(along, batch, num_frames, num_patches, num_heads, seed):
    torch.manual_seed(seed)
    qkv = torch.randn(batch, 1 + num_frames * num_patches, 3 * num_heads * 4, dtype=torch.float64)
    expected = token_by_token(qkv, num_frames, num_heads, along)
    close(divided_attention(qkv, num_frames, num_heads, along), expected, rtol=1e-9, atol=1e-9)


def test_add_norm_returns_the_sum_and_its_norm():
    x, y = torch.randn(2, 3, 8), torch.randn(2, 3, 8)
    norm = torch.nn.LayerNorm(8)
    torch.nn.init.normal_(norm.weight)
    total, normalised = add_norm(x, y, norm)
    close(total, x + y)
    close(normalised, norm(x + y))
    same, normalised = add_norm(x, None, norm)
    close(same, x)
    close(normalised, norm(x))


def test_quick_gelu_approximates_gelu():
    x = torch.linspace(-4, 4, 50)
    close(quick_gelu(x.clone()), x / (1 + torch.exp(-1.702 * x)))
    close(quick_gelu(x.clone()), torch.nn.functional.gelu(x), rtol=0, atol=0.03)  # which it approximates
