"""A seed determines the simulated world, which follows its settings."""

from __future__ import annotations

import pytest
import torch

from examples.simulation import World, WorldConfig, bag_of_words, write_sessions
from hiero.errors import InputError
from hiero.training.narrations import read_narrations


def test_a_seed_fixes_everything():
    a, b = World(seed=3).session(5), World(seed=3).session(5)
    assert torch.equal(a.features, b.features)
    assert a.narrations == b.narrations
    assert not torch.equal(a.features, World(seed=4).session(5).features)
    assert not torch.equal(a.features, World(seed=3).session(6).features)


def test_ground_truth_is_one_story():
    world = World()
    for seed in range(5):
        session = world.session(seed)
        busy = session.steps >= 0
        # steps of the goal
        assert set(session.steps[busy].tolist()) <= set(range(6 * session.goal, 6 * session.goal + 6))
        assert torch.equal(session.actions[busy] // 4, session.steps[busy])  # actions of the step
        assert bool((session.actions[~busy] == -1).all())
        assert abs(float((~busy).float().mean()) - 0.1) < 0.1
        covered = torch.zeros(len(session.steps), dtype=torch.bool)
        for run in session.runs():
            covered[int(run.start_s) : int(run.end_s)] = True
        assert torch.equal(covered, busy)
        assert [span.text for span in session.spans()] == list(dict.fromkeys(run.text for run in session.runs()))


def test_interleaving_is_a_setting():
    def count_returns(interleave):
        """Number of times that a step is interrupted by another one and continued."""
        sessions = [World(WorldConfig(interleave=interleave)).session(i) for i in range(5)]
        texts = [[run.text for run in session.runs()] for session in sessions]
        merged = [[t for i, t in enumerate(names) if not i or names[i - 1] != t] for names in texts]
        return sum(len(names) - len(set(names)) for names in merged)

    assert count_returns(0.0) == 0
    assert count_returns(0.5) > 50


def test_narrations_say_the_function():
    world = World(WorldConfig(jitter_s=0.0, omission=0.0))
    session = world.session(0)
    for narration in session.narrations:
        step = int(session.steps[min(int(narration.time_s), len(session.steps) - 1)])
        assert narration.text in world.texts[step]
    few = World(WorldConfig(omission=0.8)).session(0)
    assert 0 < len(few.narrations) < 0.4 * len(session.narrations)


def test_shared_actions_look_alike_in_every_step():
    """A shared action has one appearance whatever the step; its text still tells the step."""
    world = World(WorldConfig(shared_actions=1.0, actions_per_step=2))
    by_verb: dict[str, list[torch.Tensor]] = {}
    for step in range(world.num_steps):
        for action, text in enumerate(world.texts[step]):
            by_verb.setdefault(text.rsplit(" the ", 1)[0], []).append(torch.from_numpy(world.appearances[step, action]))
    assert all(torch.equal(appearance, same[0]) for same in by_verb.values() for appearance in same)
    assert len({text for texts in world.texts for text in texts}) > len(by_verb)


def test_without_noise_features_are_appearances_and_places():
    world = World(WorldConfig(noise=0.0, drift=0.0, pause=0.0))
    session = world.session(1)
    step, action = int(session.steps[0]), int(session.actions[0]) % 4
    expected = 0.7 * world.appearances[step, action] + 0.7 * world.place_appearances[world.step_places[step]]
    torch.testing.assert_close(session.features[0], torch.from_numpy(expected).float())


def test_sessions_as_files(tmp_path):
    sessions = [World().session(i) for i in range(2)]
    features, narrations = write_sessions(sessions, tmp_path)
    assert len(list(features.iterdir())) == 2
    assert len(read_narrations(narrations)) == sum(len(session.narrations) for session in sessions)


def test_words_bring_texts_close():
    cut_onion, peel_onion, cut_bread, tie_rope = bag_of_words(
        ["cuts the onion", "peels the onion", "cuts the bread", "ties the rope"]
    )
    assert cut_onion @ peel_onion > 0.3
    assert cut_onion @ cut_bread > 0.3
    assert abs(cut_onion @ tie_rope) < 0.3


def test_impossible_settings():
    with pytest.raises(InputError, match="omission is a share"):
        WorldConfig(omission=2)
    with pytest.raises(InputError, match="pause is a share"):
        WorldConfig(pause=1.0)
