"""Pooling and upsampling give what the release gives."""

from __future__ import annotations

import pytest

from hiero.model.pooling import pool, upsample, upsample_by_time
from tests.conftest import close, load, pad


@pytest.mark.parametrize("case", ["even", "odd", "batch", "one", "two"])
def test_pool_and_upsample_match_the_release(case):
    data = {name.split("/")[1]: value for name, value in load("pooling").items() if name.startswith(f"{case}/")}
    x, mask = pad(data["x"], data["batch"])
    times, _ = pad(data["pos"], data["batch"])
    coarse, coarse_mask = pad(data["coarse"], data["pooled_batch"])
    close(pool(x, mask)[mask[:, ::2]], data["pooled_x"])
    close(times[:, ::2][coarse_mask], data["pooled_pos"])
    close(upsample(coarse, mask)[mask], data["upsampled"])
    close(upsample_by_time(coarse, times, mask)[mask], data["upsampled"])
