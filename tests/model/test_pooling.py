"""Pooling, upsampling and resampling of padded batches against versions that go node by node."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from examples import hiero_in_150_lines as plain
from hiero.model.pooling import nearest_sample, resample, upsample_by_time
from tests.conftest import close

lengths = st.lists(st.integers(1, 17), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)


def random_batch(lengths: list[int], seed: int, width: int = 3):
    """Random padded videos, with rubbish in the padding."""
    torch.manual_seed(seed)
    length = max(lengths) + seed % 3
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    return torch.randn(len(lengths), length, width, dtype=torch.float64), mask


def flat_video(lengths: list[int]):
    """The video of each node of concatenated videos."""
    return torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])


def upsampled(coarse, times, lengths):
    """Each video alone, from every second node to all."""
    return torch.cat(
        [plain.interpolate(coarse[i, : (n + 1) // 2], times[i, :n:2], times[i, :n], 2) for i, n in enumerate(lengths)]
    )


@given(lengths, seeds, st.booleans())
def test_upsample_at_any_times(lengths, seed, duplicates):
    x, mask = random_batch(lengths, seed)
    gaps = torch.rand(mask.shape, dtype=torch.float64) * 3
    times = (gaps.round() if duplicates else gaps).cumsum(1)
    coarse = x[:, ::2]
    if duplicates:  # among equally near nodes any choice is right; only weights and range can be compared
        total_weight = upsample_by_time(torch.ones_like(coarse), times, mask)[mask]
        close(total_weight, torch.ones_like(total_weight))
    else:
        close(upsample_by_time(coarse, times, mask)[mask], upsampled(coarse, times, lengths))


@given(lengths, st.integers(2, 12), seeds)
def test_resample(lengths, num_samples, seed):
    x, mask = random_batch(lengths, seed)
    samples = resample(x, mask, num_samples)
    for i, n in enumerate(lengths):
        position = torch.linspace(0, 1, num_samples, dtype=torch.float64) * (n - 1)
        distance = (position - position.round()).abs()
        clear = (distance < 1e-9) | ((distance > 1e-3) & (distance < 0.499))  # elsewhere the third nearest is a tie
        nodes = torch.arange(n, dtype=torch.float64) / max(1, n - 1)
        expected = plain.interpolate(x[i, :n], nodes, torch.linspace(0, 1, num_samples, dtype=torch.float64), 3)
        close(samples[i][clear], expected[clear], rtol=1e-4, atol=1e-5)


@given(st.integers(1, 40), st.integers(2, 12))
def test_nearest_sample(length, num_samples):
    mask = torch.ones(1, length, dtype=torch.bool)
    nearest = nearest_sample(mask, num_samples)[0]
    position = torch.arange(length) / max(1, length - 1)
    distance = (position[:, None] - torch.linspace(0, 1, num_samples)).abs()
    close(distance.gather(1, nearest[:, None])[:, 0], distance.amin(1), atol=1e-6)
