"""A stage inside threads computes what the release computes."""

from __future__ import annotations

import pytest
import torch

from hiero.config import Behaviour
from hiero.model.unet import reason_in_threads, sort_positions
from tests.conftest import close, load


@pytest.mark.parametrize("case", ["case0", "case1", "case2"])
def test_a_stage_inside_known_threads(case, released):
    data = {name.split("/")[1]: value for name, value in load("threads").items() if name.startswith(f"{case}/")}
    threads = data["thread"][None]
    config = released.config.replace(num_threads=int(threads.max()) + 1, behaviour=Behaviour.corrected())
    stage = released.model().decoder.stages[int(data["stage"])]
    with torch.no_grad():
        close(reason_in_threads(stage, data["x"][None], threads, config)[0], data["out"])
    _, rank = sort_positions(threads, config.num_threads)
    assert rank[0].float().equal(data["rank"])
