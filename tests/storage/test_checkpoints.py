"""Weights in 8 bits."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from hiero.storage.checkpoints import MIN_INT8_SIZE, dequantise, quantise


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 90))
def test_values_move_by_at_most_half_a_step_of_their_row(seed, rows):
    rng = np.random.default_rng(seed)
    columns = MIN_INT8_SIZE // rows + 1
    weights = torch.from_numpy(rng.normal(size=(rows, columns)) * rng.lognormal(size=(rows, 1), sigma=3)).float()
    weights[rng.integers(rows)] = 0
    stored = quantise({"a.weight": weights, "a.bias": torch.ones(3), "count": torch.tensor(7)})
    assert stored["a.weight#int8"].dtype == torch.int8
    for values in (stored, {name: value.numpy() for name, value in stored.items()}):
        out = dequantise(values)
        assert set(out) == {"a.weight", "a.bias", "count"}
        step = np.abs(weights.numpy()).max(1, keepdims=True) / 127
        assert (np.abs(np.asarray(out["a.weight"]) - weights.numpy()) <= 0.501 * step + 1e-12).all()
        assert int(out["count"]) == 7


def test_what_does_not_belong_together_stays_as_it_is():
    weights = {
        "a#int8": np.ones((2, 3), np.int8),
        "a#scale": np.ones((4, 1), np.float32),
        "b#scale": np.ones(1),
        "c": np.ones(2),
    }
    assert set(dequantise(weights)) == {"a#int8", "b#scale", "c"}
