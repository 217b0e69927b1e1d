"""The same extraction on a Ray cluster: actors that keep the networks, one or a few videos at a time each.

A video goes to an actor only when it has a free place, so nothing piles up. An actor that dies takes nothing along: its videos go
to others, which find what was written of them. A result is a file that appears whole, and one that is there is not made again.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hiero.data.collection import Following, Outcome, Plan, extract_one, length_of
from hiero.errors import InputError

TRIES = 3
POLL_S = 0.5


class Worker:
    """Runs in a process of the cluster."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.plan = Plan(**{**settings, "out": Path(settings["out"]), "weights": settings["weights"] and Path(settings["weights"])})
        self.moments: dict[str, float] = {}

    @cached_property
    def networks(self) -> Any:
        return self.plan.networks()

    def extract(self, name: str, path: str) -> dict[str, Any]:
        def advance(done_s: float) -> None:
            self.moments[name] = done_s

        outcome = extract_one(self.plan, lambda: self.networks, name, Path(path), advance)
        self.moments.pop(name, None)
        return outcome.to_dict()

    def now(self) -> dict[str, float]:
        """Where the videos in hand are, in seconds."""
        return dict(self.moments)

    def process(self) -> int:
        return os.getpid()


@dataclass
class _Crew:
    """Actors and what each has in hand."""

    make: Any
    places: int
    actors: list[Any]
    hands: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    """future → (video, actor)"""

    def free(self) -> Any | None:
        """An actor with a free place, the least busy first."""
        busy = [sum(1 for _, other in self.hands.values() if other is actor) for actor in self.actors]
        least = min(range(len(busy)), key=busy.__getitem__)
        return self.actors[least] if busy[least] < self.places else None

    def replace(self, actor: Any) -> list[str]:
        """A new actor in place of a lost one; → the videos that it had."""
        lost = [name for name, other in self.hands.values() if other is actor]
        self.hands = {future: (name, other) for future, (name, other) in self.hands.items() if other is not actor}
        self.actors[self.actors.index(actor)] = self.make()
        return lost


def extract_on_cluster(
    videos: dict[str, Path],
    plan: Plan,
    *,
    address: str | None = None,
    workers: int | None = None,
    jobs: int = 1,
    following: Following | None = None,
) -> list[Outcome]:
    """All videos on the cluster at `address`; without one, on a local one that lives as long as this call.

    workers: actors; by default one a GPU, or one for every two CPUs where there is none. jobs: videos that one has in hand.
    Videos and the output folder must be at the same place on all machines.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray; run: pip install 'hiero[ray]'") from None
    following = following or Following()
    plan.weights_key  # noqa: B018  (what is missing is said before anything is started)
    _check_address(address)
    try:
        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"no Ray cluster at {address}: {str(error).splitlines()[0]}") from error
    try:
        return _run(ray, {name: path.resolve() for name, path in videos.items()}, plan, workers, jobs, following)
    finally:
        ray.shutdown()


def _check_address(address: str | None) -> None:
    """Ray itself tries for minutes to reach a cluster that is not there."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except OSError as error:
            raise InputError(f"no Ray cluster at {address}: {error.strerror or error}") from error


def _run(ray: Any, videos: dict[str, Path], plan: Plan, workers: int | None, jobs: int, following: Following) -> list[Outcome]:
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
    num = workers or gpus or max(1, int(there.get("CPU", 1)) // 2)
    num = min(num, len(videos))
    needs = {"num_gpus": min(1.0, gpus / num)} if gpus else {"num_cpus": max(0.01, there.get("CPU", 1) / num / 2)}
    settings = plan.to_dict() | {
        "out": str(plan.out.resolve()), "weights": plan.weights and str(plan.weights.resolve()),
        "device": "cuda" if gpus else "cpu",
    }  # fmt: skip
    kind = ray.remote(Worker).options(max_concurrency=jobs + 2, **needs)
    crew = _Crew(lambda: kind.remote(settings), jobs, [kind.remote(settings) for _ in range(num)])
    waiting, tries = list(reversed(videos)), dict.fromkeys(videos, 0)
    outcomes: dict[str, Outcome] = {}

    def finish(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        following.end(outcome)

    while len(outcomes) < len(videos):
        while waiting and (actor := crew.free()) is not None:
            name = waiting.pop()
            if not tries[name]:
                following.begin(name, length_of(videos[name], plan.stream))
            tries[name] += 1
            crew.hands[actor.extract.remote(name, str(videos[name]))] = (name, actor)
        ended, _ = ray.wait(list(crew.hands), timeout=POLL_S)
        for future in ended:
            if future not in crew.hands:  # of an actor that was replaced meanwhile
                continue
            name, actor = crew.hands[future]
            try:
                found = Outcome(**ray.get(future))
            except ray.exceptions.RayActorError:
                for lost in crew.replace(actor):
                    if tries[lost] < TRIES:
                        following.say(f"a worker was lost; {lost} goes to another (attempt {tries[lost] + 1} of {TRIES})")
                        waiting.append(lost)
                    else:
                        finish(Outcome(lost, "failed", f"{videos[lost]}: {TRIES} workers were lost over it (out of memory?)"))
            except ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            else:
                del crew.hands[future]
                finish(found)
        _follow(ray, crew, following)
    return [outcomes[name] for name in videos]


def _follow(ray: Any, crew: _Crew, following: Following) -> None:
    """Ask the actors where they are; one that does not answer now is asked the next time."""
    asked = [actor.now.remote() for actor in {id(actor): actor for _, actor in crew.hands.values()}.values()]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=0.2) if asked else ([], [])
    for answer in answered:
        try:
            for name, done_s in ray.get(answer).items():
                following.advance(name, done_s)
        except ray.exceptions.RayError:
            continue
