from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.model.pooling import nearest_sample, pool, resample, upsample, upsample_by_time
from tests.conftest import close
from tests.oracle import edgelist
from tests.oracle import pooling as oracle

lengths = st.lists(st.integers(1, 17), min_size=1, max_size=4)
seeds = st.integers(0, 2**31)


def batch(lengths: list[int], seed: int, width: int = 3):
    """Random padded videos, with rubbish in the padding."""
    torch.manual_seed(seed)
    length = max(lengths) + seed % 3
    mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    return torch.randn(len(lengths), length, width, dtype=torch.float64), mask


def flat(lengths: list[int]):
    video = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])
    index = torch.cat([torch.arange(n) for n in lengths])
    return video, index


@given(lengths, seeds)
def test_pool(lengths, seed):
    x, mask = batch(lengths, seed)
    video, index = flat(lengths)
    close(pool(x, mask)[mask[:, ::2]], edgelist.pool(x[mask], video, index))
    close(edgelist.pool_edges(x[mask], video, index), edgelist.pool(x[mask], video, index))


@given(lengths, seeds)
def test_upsample_on_a_uniform_clock(lengths, seed):
    x, mask = batch(lengths, seed)
    video, index = flat(lengths)
    coarse, kept = x[:, ::2], index % 2 == 0
    expected = edgelist.upsample(coarse[mask[:, ::2]], index[kept].double(), video[kept], index.double(), video)
    close(upsample(coarse, mask)[mask], expected)


@given(lengths, seeds, st.booleans())
def test_upsample_at_any_times(lengths, seed, duplicates):
    x, mask = batch(lengths, seed)
    video, index = flat(lengths)
    gaps = torch.rand(mask.shape, dtype=torch.float64) * 3
    times = (gaps.round() if duplicates else gaps).cumsum(1)
    coarse, kept = x[:, ::2], index % 2 == 0
    expected = edgelist.upsample(coarse[mask[:, ::2]], times[mask][kept], video[kept], times[mask], video)
    if duplicates:  # among equally near nodes any choice is right; only weights and range can be compared
        found = upsample_by_time(torch.ones_like(coarse), times, mask)[mask]
        close(found, torch.ones_like(found))
    else:
        close(upsample_by_time(coarse, times, mask)[mask], expected)


@given(lengths, st.integers(2, 12), seeds)
def test_resample(lengths, num, seed):
    x, mask = batch(lengths, seed)
    found = resample(x, mask, num)
    for i, n in enumerate(lengths):
        place = torch.linspace(0, 1, num, dtype=torch.float64) * (n - 1)
        away = (place - place.round()).abs()
        clear = (away < 1e-9) | ((away > 1e-3) & (away < 0.499))  # elsewhere the third nearest is a tie
        close(found[i][clear], oracle.resample(x[i, :n], num)[clear], rtol=1e-4, atol=1e-5)


@given(st.integers(1, 40), st.integers(2, 12))
def test_nearest_sample(length, num):
    mask = torch.ones(1, length, dtype=torch.bool)
    found = nearest_sample(mask, num)[0]
    place = torch.arange(length) / max(1, length - 1)
    distance = (place[:, None] - torch.linspace(0, 1, num)).abs()
    close(distance.gather(1, found[:, None])[:, 0], distance.amin(1), atol=1e-6)
