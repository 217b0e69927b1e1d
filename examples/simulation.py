"""Simulated narrated activity: goals made of steps made of actions, seen through noisy features, with
narrations and ground truth.

A `World` fixes what exists: the appearance of each action, the place of each step, the texts of
narrations. `World.session(seed)` is one recording. Everything follows from seeds. It is a test bed,
not a model of kitchens; its settings, all in `WorldConfig`, decide what can be learned:

- The feature of a segment is the sum of the appearance of its action (`look`), that of its place
  (`place`), a slow drift (`drift`, like light and camera) and `noise`. All four are lengths of
  random directions in feature space; noise and drift are drawn again for each session.
- *Confounders.* With fewer places than steps, steps of different function share a place. A share of the actions
  (`shared_actions`: washing, reaching, waiting) looks the same in every step, so that only what
  happens around them tells the step. With `shared_actions` 0 and one place a step, a single segment
  says it all and context can add nothing.
- *Interleaving.* `interleave` is the chance, after each action, of going over to another step that is open at the time
  (up to `open_steps`). At 0 steps follow each other; at 0.5 they are as mixed as in a busy kitchen.
- *Narrations* name the action and the object of its step, at the middle of the action, moved by
  `jitter_s` (deviation) and left out with chance `omission`. So texts, unlike appearances, always
  tell the function.
- Pauses take the share `pause` of the time: noise and drift alone, ground truth −1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hiero.config import Config
from hiero.errors import InputError
from hiero.storage.files import save_tensors
from hiero.types import AnnotatedStep, Clock, Narration

VERBS = (
    "cuts",
    "stirs",
    "pours",
    "peels",
    "opens",
    "closes",
    "lifts",
    "turns",
    "wipes",
    "presses",
    "folds",
    "measures",
    "shakes",
    "rolls",
    "scoops",
    "grates",
    "ties",
    "drills",
    "sands",
    "screws",
)
SHARED_VERBS = ("washes hands near", "looks for", "reaches for", "waits beside", "moves")
OBJECTS = (
    "onion",
    "dough",
    "rice",
    "egg",
    "bread",
    "soup",
    "sauce",
    "tomato",
    "potato",
    "carrot",
    "pan",
    "kettle",
    "board",
    "bracket",
    "shelf",
    "drawer",
    "wheel",
    "chain",
    "brake",
    "pump",
    "sample",
    "tube",
    "filter",
    "label",
    "bandage",
    "bottle",
    "pillow",
    "sheet",
    "towel",
    "jar",
)
STOP_WORDS = ("the", "for", "near", "beside")
DRIFT_MEMORY = 0.98  # of the drift, what is left of it after a segment
GOALS = ("meal", "repair", "experiment", "visit", "bakery order", "furniture")


@dataclass(frozen=True)
class WorldConfig(Config):
    """Settings of a simulated world; the text of the module says what they are for.

    `look`, `place`, `drift` and `noise` are the lengths of what a feature is the sum of.
    """

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
    """Chance, after each action, of going over to another open step."""
    open_steps: int = 3
    """Most steps that are begun and not finished at a time."""
    pause: float = 0.1
    """Share of the time in which nothing happens."""
    jitter_s: float = 1.0
    """Standard deviation of narrations from the middle of their actions."""
    omission: float = 0.2
    """Chance that an action is not narrated."""
    clock: Clock = field(default_factory=lambda: Clock(1.0, 1.0))

    def __post_init__(self) -> None:
        for name in ("shared_actions", "interleave", "omission"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is a share between 0 and 1, got {getattr(self, name)}")
        if not 0 <= self.pause < 1:
            raise InputError(f"pause is a share of the time below 1, got {self.pause}")
        if self.num_goals * self.steps_per_goal > len(OBJECTS) * len(VERBS):
            raise InputError("more steps than the simulator has words for")


@dataclass(frozen=True)
class Session:
    """One recording of one goal, with its ground truth."""

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
                segments = (self.steps == step).nonzero().flatten()
                start_s, end_s = (
                    self.clock.start_s + int(i) * self.clock.spacing_s for i in (segments[0], segments[-1] + 1)
                )
                out.append(AnnotatedStep(start_s, end_s, self.step_texts[step]))
        return out

    def runs(self) -> list[AnnotatedStep]:
        """Each uninterrupted stretch of a step."""
        out: list[AnnotatedStep] = []
        boundaries = (self.steps[1:] != self.steps[:-1]).nonzero().flatten() + 1
        for start, end in pairwise([0, *boundaries.tolist(), len(self.steps)]):
            if (step := int(self.steps[start])) >= 0:
                start_s, end_s = (self.clock.start_s + i * self.clock.spacing_s for i in (start, end))
                out.append(AnnotatedStep(start_s, end_s, self.step_texts[step]))
        return out


class World:
    """A simulated world: appearances, places and texts, drawn from a seed.

    Examples:
        >>> world = World(WorldConfig(session_s=60.0))
        >>> world.session(0).features.shape
        torch.Size([60, 64])
    """

    def __init__(self, config: WorldConfig | None = None, seed: int = 0) -> None:
        self.config = config = config or WorldConfig()
        self.seed = seed
        rng = np.random.default_rng([seed, 0])
        num_steps = config.num_goals * config.steps_per_goal
        self.num_steps = num_steps
        num_shared = round(config.shared_actions * config.actions_per_step)
        shared_appearances = _directions(rng, len(SHARED_VERBS), config.width)
        self.appearances = _directions(rng, num_steps * config.actions_per_step, config.width).reshape(
            num_steps, -1, config.width
        )
        self.place_appearances = _directions(rng, config.num_places, config.width)
        self.step_places = rng.permutation(np.arange(num_steps) % config.num_places)
        # Each step has an object of its own where there are enough; otherwise objects come back with other verbs.
        pairs = rng.permutation(len(OBJECTS) * len(VERBS))[:num_steps]
        objects = [
            OBJECTS[i % len(OBJECTS)] for i in (rng.permutation(num_steps) if num_steps <= len(OBJECTS) else pairs)
        ]
        self.texts: list[list[str]] = []
        self.step_texts: dict[int, str] = {}
        for step in range(num_steps):
            verbs = rng.permutation(len(VERBS))
            shared = rng.permutation(len(SHARED_VERBS))[:num_shared]
            action_texts = []
            for action in range(config.actions_per_step):
                if action < len(shared):
                    self.appearances[step, action] = shared_appearances[shared[action]]
                    action_texts.append(f"{SHARED_VERBS[shared[action]]} the {objects[step]}")
                else:
                    action_texts.append(f"{VERBS[verbs[action]]} the {objects[step]}")
            self.texts.append(action_texts)
            goal = GOALS[step // config.steps_per_goal % len(GOALS)]
            self.step_texts[step] = f"prepare the {objects[step]} for the {goal}"

    def session(self, seed: int) -> Session:
        """One recording of one goal. The same seed gives the same recording."""
        config = self.config
        rng = np.random.default_rng([self.seed, 1, seed])
        goal = int(rng.integers(config.num_goals))
        num_segments = max(1, round(config.session_s / config.clock.spacing_s))
        steps, actions, narrations = self._script(goal, num_segments, rng)
        features = config.noise * rng.standard_normal((num_segments, config.width)) / config.width**0.5
        features += config.drift * _drift(rng, num_segments, config.width)
        busy = steps >= 0
        features[busy] += config.look * self.appearances[steps[busy], actions[busy]]
        features[busy] += config.place * self.place_appearances[self.step_places[steps[busy]]]
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

    def _script(
        self, goal: int, num_segments: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, list[tuple[float, str]]]:
        """Step and action of each segment, and the narrations (time_s, text)."""
        config = self.config
        steps, actions = np.full(num_segments, -1), np.zeros(num_segments, dtype=int)
        narrations: list[tuple[float, str]] = []
        waiting = [int(s) for s in goal * config.steps_per_goal + rng.permutation(config.steps_per_goal)]
        shares = rng.uniform(0.7, 1.3, len(waiting))
        # Segments that each step still needs; together they fill the session, but for pauses.
        remaining = dict(zip(waiting, num_segments * (1 - config.pause) * shares / shares.sum(), strict=True))
        open_steps: list[int] = []
        position = 0.0  # in segments, not rounded
        current = -1
        while position < num_segments and (waiting or open_steps):
            # Which step goes on? After its end, or by chance, another one; a new one is begun where
            # there is room for it.
            if current not in open_steps or rng.random() < config.interleave:
                if waiting and (not open_steps or (config.interleave > 0 and len(open_steps) < config.open_steps)):
                    open_steps.append(waiting.pop(0))
                current = open_steps[int(rng.integers(len(open_steps)))] if config.interleave > 0 else open_steps[0]
            # One action of it, between a half and twice as long as usual (1.25 is the mean of the range).
            length = config.action_s / config.clock.spacing_s * rng.uniform(0.5, 2.0) / 1.25
            action = int(rng.integers(config.actions_per_step))
            start, end = round(position), min(num_segments, round(position + length))
            steps[start:end], actions[start:end] = current, action
            if end > start and rng.random() >= config.omission:
                middle_s = config.clock.start_s + (start + end) / 2 * config.clock.spacing_s
                middle_s += config.jitter_s * rng.standard_normal()
                end_s = config.clock.start_s + num_segments * config.clock.spacing_s
                narrations.append((float(np.clip(middle_s, 0, end_s - 1e-3)), self.texts[current][action]))
            position += length
            remaining[current] -= length
            if remaining[current] <= 0:
                open_steps.remove(current)
            # A pause after every other action, twice as long as its share: the share of the whole
            # session comes out right.
            if config.pause and rng.random() < 0.5:
                position += 2 * config.pause / (1 - config.pause) * length * rng.uniform(0.5, 1.5)
        return steps, actions, narrations


def _directions(rng: np.random.Generator, num_vectors: int, width: int) -> np.ndarray:
    x = rng.standard_normal((num_vectors, width))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _drift(rng: np.random.Generator, num_segments: int, width: int) -> np.ndarray:
    """A slow random walk whose length stays about 1: an autoregressive process in its stationary distribution."""
    from scipy.signal import lfilter

    steps = rng.standard_normal((num_segments, width)) * ((1 - DRIFT_MEMORY**2) / width) ** 0.5
    steps[0] /= (1 - DRIFT_MEMORY**2) ** 0.5
    return np.asarray(lfilter([1.0], [1.0, -DRIFT_MEMORY], steps, axis=0))


def bag_of_words(texts: Sequence[str], size: int = 64) -> Tensor:
    """Unit vectors of texts, (N, size): the sum of a fixed random direction for each word. Shared
    words bring texts close.
    """
    vectors = np.zeros((len(texts), size))
    for i, text in enumerate(texts):
        for word in text.lower().split():
            if word not in STOP_WORDS:
                vectors[i] += np.random.default_rng(list(word.encode())).standard_normal(size)
    return torch.nn.functional.normalize(torch.from_numpy(vectors).float(), dim=-1)


def write_sessions(sessions: Sequence[Session], folder: Path) -> tuple[Path, Path]:
    """Write sessions as files: features/NAME.safetensors and narrations.csv."""
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
