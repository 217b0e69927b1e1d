"""Training on simulated activity learns what texts mean. What context, threads and L_ft each add is within the noise of
runs this small; docs/results.md has it for larger ones (python -m benchmarks.ablation).
"""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ablation import FIRST_TEST_SESSION, NUM_TEST_SESSIONS, WORLDS, World, run


@pytest.mark.slow
def test_training_learns_the_names_of_steps():
    """Seeds 0 to 3 name 42 to 53 % of the seconds of new sessions; chance names one in six."""
    config = WORLDS["interleaved, every action looks its own"]
    world = World(config, seed=0)
    sessions = [world.session(FIRST_TEST_SESSION + i) for i in range(NUM_TEST_SESSIONS)]
    chance = np.mean([1 / len(session.step_texts) for session in sessions])
    assert run(config, "context, threads, L_ft", seed=0, num_sessions=12, epochs=6).label > 2 * chance
