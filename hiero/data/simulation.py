"""Simulated narrated activity: goals made of steps made of actions, seen through noisy features, with narrations and ground truth.

A `World` fixes what exists: what each action looks like, where each step happens, what is said. `World.session(seed)` is one
recording. Everything follows from seeds. It is a test bed, not a model of kitchens; its knobs, all in `WorldConfig`, decide what
can be learned:

- A segment shows its action (`look`), the place of its step (`place`), a slow drift (`drift`, like light and camera) and `noise`.
  All four are lengths of random directions in feature space; noise and drift are drawn anew.
- *Confounders.* With fewer places than steps, steps of different function share a place. A share of the actions
  (`shared_actions`: washing, reaching, waiting) looks the same in every step, so that only what happens around them tells the
  step. With `shared_actions` 0 and one place a step, a single segment says it all and context can add nothing.
- *Interleaving.* `interleave` is the chance, after each action, of going over to another step that is open at the time
  (up to `open_steps`). At 0 steps follow each other; at 0.5 they are as mixed as in a busy kitchen.
- *Narrations* name the action and the object of its step, at the middle of the action, moved by `jitter_s` (deviation) and left
  out with chance `omission`. So the words, unlike the looks, always tell the function.
- Pauses take the share `pause` of the time: noise and drift alone, ground truth −1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hiero.config import Config
from hiero.errors import InputError
from hiero.storage.files import save_tensors
from hiero.types import Clock, Narration

VERBS = (
    "cuts", "stirs", "pours", "peels", "opens", "closes", "lifts", "turns", "wipes", "presses", "folds", "measures", "shakes",
    "rolls", "scoops", "grates", "ties", "drills", "sands", "screws",
)  # fmt: skip
SHARED = ("washes hands near", "looks for", "reaches for", "waits beside", "moves")
OBJECTS = (
    "onion", "dough", "rice", "egg", "bread", "soup", "sauce", "tomato", "potato", "carrot", "pan", "kettle", "board", "bracket",
    "shelf", "drawer", "wheel", "chain", "brake", "pump", "sample", "tube", "filter", "label", "bandage", "bottle", "pillow",
    "sheet", "towel", "jar",
)  # fmt: skip
GOALS = ("meal", "repair", "experiment", "visit", "bakery order", "furniture")


@dataclass(frozen=True)
class WorldConfig(Config):
    """The knobs. Lengths of directions are in units of a look of length 1 unless given."""

    num_goals: int = 3
    steps_per_goal: int = 6
    actions_per_step: int = 4
    shared_actions: float = 0.5
    """Share of a step's actions that look the same in every step."""
    num_places: int = 6
    """Fewer than all steps together: different functions in the same place."""
    look: float = 0.7
    place: float = 0.7
    drift: float = 0.5
    noise: float = 1.5
    width: int = 64
    action_s: float = 6.0
    """Mean duration of an action; each is between a half and twice as long."""
    session_s: float = 600.0
    interleave: float = 0.4
    open_steps: int = 3
    pause: float = 0.1
    jitter_s: float = 1.0
    omission: float = 0.2
    clock: Clock = field(default_factory=lambda: Clock(1.0, 1.0))

    def __post_init__(self) -> None:
        for name in ("shared_actions", "interleave", "omission"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share between 0 and 1, got {getattr(self, name)}")
        if not 0 <= self.pause < 1:
            raise InputError(f"pause is a share of the time below 1, got {self.pause}")
        if self.num_goals * self.steps_per_goal > len(OBJECTS) * len(VERBS):
            raise InputError("more steps than the simulator has words for")


class AnnotatedStep(NamedTuple):
    """A span of one step (or action) in the ground truth."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Session:
    """One recording: features (T, F), narrations in time order, and for each segment its goal, step and action (−1 in pauses)."""

    video: str
    features: Tensor
    clock: Clock
    narrations: list[Narration]
    goal: int
    steps: Tensor
    actions: Tensor
    step_texts: dict[int, str]

    def spans(self) -> list[AnnotatedStep]:
        """Each step from its first segment to its last (interleaved steps overlap), in order of appearance."""
        out = []
        for step in dict.fromkeys(self.steps.tolist()):
            if step >= 0:
                at = (self.steps == step).nonzero().flatten()
                start, end = (self.clock.start_s + int(i) * self.clock.spacing_s for i in (at[0], at[-1] + 1))
                out.append(AnnotatedStep(start, end, self.step_texts[step]))
        return out

    def runs(self) -> list[AnnotatedStep]:
        """Each uninterrupted stretch of a step."""
        out: list[AnnotatedStep] = []
        change = (self.steps[1:] != self.steps[:-1]).nonzero().flatten() + 1
        for start, end in pairwise([0, *change.tolist(), len(self.steps)]):
            if (step := int(self.steps[start])) >= 0:
                start_s, end_s = (self.clock.start_s + i * self.clock.spacing_s for i in (start, end))
                out.append(AnnotatedStep(start_s, end_s, self.step_texts[step]))
        return out


class World:
    """What exists in a simulated world: looks, places and words, drawn from a seed."""

    def __init__(self, config: WorldConfig | None = None, seed: int = 0) -> None:
        self.config = config = config or WorldConfig()
        self.seed = seed
        rng = np.random.default_rng([seed, 0])
        num_steps = config.num_goals * config.steps_per_goal
        self.num_steps = num_steps
        num_shared = round(config.shared_actions * config.actions_per_step)
        shared_looks = _directions(rng, len(SHARED), config.width)
        self.appearances = _directions(rng, num_steps * config.actions_per_step, config.width).reshape(num_steps, -1, config.width)
        self.place_looks = _directions(rng, config.num_places, config.width)
        self.place_of = rng.permutation(np.arange(num_steps) % config.num_places)
        pairs = rng.permutation(len(OBJECTS) * len(VERBS))[:num_steps]
        objects = [OBJECTS[i % len(OBJECTS)] for i in (rng.permutation(num_steps) if num_steps <= len(OBJECTS) else pairs)]
        self.texts: list[list[str]] = []
        self.step_texts: dict[int, str] = {}
        for step in range(num_steps):
            verbs = rng.permutation(len(VERBS))
            shared = rng.permutation(len(SHARED))[:num_shared]
            says = []
            for action in range(config.actions_per_step):
                if action < len(shared):
                    self.appearances[step, action] = shared_looks[shared[action]]
                    says.append(f"{SHARED[shared[action]]} the {objects[step]}")
                else:
                    says.append(f"{VERBS[verbs[action]]} the {objects[step]}")
            self.texts.append(says)
            goal = GOALS[step // config.steps_per_goal % len(GOALS)]
            self.step_texts[step] = f"prepare the {objects[step]} for the {goal}"

    def session(self, seed: int) -> Session:
        """One recording of one goal. The same seed gives the same recording."""
        config = self.config
        rng = np.random.default_rng([self.seed, 1, seed])
        goal = int(rng.integers(config.num_goals))
        num = max(1, round(config.session_s / config.clock.spacing_s))
        steps, actions, narrations = self._script(goal, num, rng)
        features = config.noise * rng.standard_normal((num, config.width)) / config.width**0.5
        features += config.drift * _drift(rng, num, config.width)
        busy = steps >= 0
        features[busy] += config.look * self.appearances[steps[busy], actions[busy]]
        features[busy] += config.place * self.place_looks[self.place_of[steps[busy]]]
        video = f"session{seed:04d}"
        return Session(
            video=video,
            features=torch.from_numpy(features).float(),
            clock=config.clock,
            narrations=[Narration(video, time_s, text) for time_s, text in sorted(narrations)],
            goal=goal,
            steps=torch.from_numpy(steps),
            actions=torch.from_numpy(np.where(busy, steps * config.actions_per_step + actions, -1)),
            step_texts={step: text for step, text in self.step_texts.items() if (steps == step).any()},
        )

    def _script(self, goal: int, num: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, list[tuple[float, str]]]:
        """Who does what when: steps and actions of each segment, and the narrations."""
        config = self.config
        steps, actions = np.full(num, -1), np.zeros(num, dtype=int)
        narrations: list[tuple[float, str]] = []
        waiting = [int(s) for s in goal * config.steps_per_goal + rng.permutation(config.steps_per_goal)]
        shares = rng.uniform(0.7, 1.3, len(waiting))  # of the session's time, so that the goal's steps fill it
        left = dict(zip(waiting, num * (1 - config.pause) * shares / shares.sum(), strict=True))
        opened: list[int] = []
        at = 0.0
        current = -1
        while at < num and (waiting or opened):
            if current not in opened or rng.random() < config.interleave:
                if waiting and (not opened or (config.interleave > 0 and len(opened) < config.open_steps)):
                    opened.append(waiting.pop(0))
                current = opened[int(rng.integers(len(opened)))] if config.interleave > 0 else opened[0]
            length = config.action_s / config.clock.spacing_s * rng.uniform(0.5, 2.0) / 1.25
            action = int(rng.integers(config.actions_per_step))
            start, end = round(at), min(num, round(at + length))
            steps[start:end], actions[start:end] = current, action
            if end > start and rng.random() >= config.omission:
                middle = config.clock.start_s + (start + end) / 2 * config.clock.spacing_s + config.jitter_s * rng.standard_normal()
                last = config.clock.start_s + num * config.clock.spacing_s
                narrations.append((float(np.clip(middle, 0, last - 1e-3)), self.texts[current][action]))
            at += length
            left[current] -= length
            if left[current] <= 0:
                opened.remove(current)
            if config.pause and rng.random() < 0.5:
                at += 2 * config.pause / (1 - config.pause) * length * rng.uniform(0.5, 1.5)
        return steps, actions, narrations


def _directions(rng: np.random.Generator, num: int, width: int) -> np.ndarray:
    x = rng.standard_normal((num, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _drift(rng: np.random.Generator, num: int, width: int, memory: float = 0.98) -> np.ndarray:
    """A slow random walk that stays of length about 1."""
    from scipy.signal import lfilter

    steps = rng.standard_normal((num, width)) * ((1 - memory**2) / width) ** 0.5
    steps[0] /= (1 - memory**2) ** 0.5
    return np.asarray(lfilter([1.0], [1.0, -memory], steps, axis=0))


def bag_of_words(texts: Sequence[str], size: int = 64) -> Tensor:
    """Vectors of texts (n, size), normalised: the sum of a fixed random direction for each word. Shared words bring texts close."""
    out = np.zeros((len(texts), size))
    for i, text in enumerate(texts):
        for word in text.lower().split():
            if word not in ("the", "for", "near", "beside"):
                out[i] += np.random.default_rng(list(word.encode())).standard_normal(size)
    return torch.nn.functional.normalize(torch.from_numpy(out).float(), dim=-1)


def write_sessions(sessions: Sequence[Session], folder: Path) -> tuple[Path, Path]:
    """Sessions as a user has them: a folder of feature files and a csv of narrations. → the paths of both"""
    import csv

    for session in sessions:
        save_tensors(folder / "features" / f"{session.video}.safetensors", {"features": session.features})
    table = folder / "narrations.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["video", "time_s", "text"])
        for session in sessions:
            writer.writerows([n.video, f"{n.time_s:.3f}", n.text] for n in session.narrations)
    return folder / "features", table
