from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.errors import InputError
from hiero.model.batches import collate, uniform_spacing
from hiero.types import Clock


@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=4),
    st.sampled_from([(30, 16), (29.97, 16), (25, 8), (1, 1)]),
    st.floats(0, 40_000),
)
def test_clocks_are_recognised_whatever_their_rounding(lengths, rate, start_s):
    clock = Clock(*rate, start_s=start_s)
    batch = collate([torch.zeros(n, 2) for n in lengths], clock)
    assert batch.spacing_s == clock.spacing_s
    spacing_s = uniform_spacing(batch.times, batch.mask)
    assert spacing_s is not None
    if max(lengths) > 1:
        rounding = 2**-23 * float(batch.times.max())
        assert spacing_s == pytest.approx(clock.spacing_s, abs=2 * rounding / (max(lengths) - 1))


@pytest.mark.parametrize("start_s", [0.0, 1.7, 10.1, 35_999.9])
@pytest.mark.parametrize("length", [2, 3, 50, 101])
def test_simple_spacings_are_found_exactly(start_s, length):
    for clock in (Clock(1, 1, start_s), Clock(2, 1, start_s), Clock(30, 16, start_s)):
        batch = collate([torch.zeros(length, 2)], clock)
        assert uniform_spacing(batch.times, batch.mask) == pytest.approx(clock.spacing_s, rel=1e-12)


def test_irregular_times_are_not():
    mask = torch.ones(1, 4, dtype=torch.bool)
    jitter = 36_000 + torch.tensor([[0.0, 1.008, 2.0, 3.0]], dtype=torch.float64)
    assert uniform_spacing(jitter, mask) is None
    assert uniform_spacing(torch.tensor([[0.0, 1.0, 2.0, 3.5]]), mask) is None
    assert uniform_spacing(torch.tensor([[1.0, 1.0, 1.0, 1.0]]), mask) is None
    mixed = collate([torch.zeros(5, 2), torch.zeros(5, 2)], [Clock(30), Clock(24)])
    assert mixed.spacing_s is None
    assert uniform_spacing(mixed.times, mixed.mask) is None


def test_collate_pads():
    batch = collate([torch.ones(3, 2), torch.ones(1, 2)], Clock(1, 1))
    assert batch.mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.features[1, 1:].eq(0).all()
    assert batch.times[0].tolist() == [0.5, 1.5, 2.5]
    with pytest.raises(InputError, match="videos is empty"):
        collate([], Clock())
