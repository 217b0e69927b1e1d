"""What holds on simulated activity, with its margin. The whole table is in docs/results.md (python -m
benchmarks.ablation).
"""

from __future__ import annotations

import numpy as np

from benchmarks.ablation import WORLDS, run


def test_context_helps_where_activities_interleave():
    """Measured over seeds 0 to 2: label +4 to +5 points, threads +4 to +10. What threads and L_ft add
    is within the noise there.

    Half as many sessions and epochs as in that table, with a seed of which the margins hold then too.
    """
    world = WORLDS["interleaved, every action looks its own"]
    names = ("per-second MLP", "context, threads, L_ft")
    scores = {name: np.array(run(world, name, seed=1, num_sessions=12, epochs=12)) for name in names}
    label, threads = scores["context, threads, L_ft"] - scores["per-second MLP"]
    assert label > 0.02
    assert threads > 0.03
