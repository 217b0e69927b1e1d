"""The same extraction on a Ray cluster: actors that keep the networks, one or a few videos at a time each.

A video goes to an actor only when it has a free place, so nothing piles up. An actor that dies takes nothing along: its videos go
to others, which find what was written of them. A result is a file that appears whole, and one that is there is not made again.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hiero.errors import InputError
from hiero.extraction.collection import (
    ExtractionPlan,
    ExtractionProgress,
    ExtractionResult,
    LazyBackbones,
    extract_video,
    length_of,
)
from hiero.video.registry import fetch_weights

TRIES = 3
POLL_S = 0.5
PLACED_S = 120.0


class Worker:
    """Runs in a process of the cluster."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.plan = ExtractionPlan(
            **{**settings, "out": Path(settings["out"]), "weights": settings["weights"] and Path(settings["weights"])}
        )
        self.moments: dict[str, float] = {}
        self.networks = LazyBackbones(self.plan)
        if self.plan.threads:
            import torch

            torch.set_num_threads(self.plan.threads)

    def extract(self, name: str, path: str) -> dict[str, Any]:
        def advance(done_s: float) -> None:
            self.moments[name] = done_s

        outcome = extract_video(self.plan, self.networks, name, Path(path), advance)
        self.moments.pop(name, None)
        return outcome.to_dict()

    def now(self) -> dict[str, float]:
        """Where the videos in hand are, in seconds."""
        return dict(self.moments)

    def process(self) -> int:
        return os.getpid()


@dataclass
class _Crew:
    """Actors and what each has in hand. One that was not placed yet gets nothing."""

    ray: Any
    make: Callable[[], Any]
    places: int
    actors: list[Any] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)
    pings: dict[Any, Any] = field(default_factory=dict)
    hands: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    """future → (video, actor)"""
    alone: set[str] = field(default_factory=set)
    """Videos of lost workers that had several: each goes alone, to see which it was."""

    def hire(self) -> None:
        actor = self.make()
        self.actors.append(actor)
        self.pings[actor.process.remote()] = actor

    def look(self) -> None:
        """Who is there now."""
        answered, _ = self.ray.wait(list(self.pings), num_returns=len(self.pings), timeout=0) if self.pings else ([], [])
        for ping in answered:
            actor = self.pings.pop(ping)
            try:
                self.ray.get(ping)
                self.ready.add(id(actor))
            except self.ray.exceptions.RayError:
                self.replace(actor)

    def free(self, name: str) -> Any | None:
        """An actor for a video, the least busy first."""
        held = {id(actor): [n for n, other in self.hands.values() if other is actor] for actor in self.actors}
        able = [
            actor
            for actor in self.actors
            if id(actor) in self.ready
            and len(held[id(actor)]) < (1 if name in self.alone else self.places)
            and not self.alone.intersection(held[id(actor)])
        ]
        return min(able, key=lambda actor: len(held[id(actor)]), default=None)

    def replace(self, actor: Any) -> list[str]:
        """A new actor in place of a lost one; → the videos that it had."""
        lost = [name for name, other in self.hands.values() if other is actor]
        self.hands = {future: (name, other) for future, (name, other) in self.hands.items() if other is not actor}
        self.actors.remove(actor)
        self.ready.discard(id(actor))
        with suppress(Exception):
            self.ray.kill(actor)  # it may only have been out of reach: two must not write the same
        self.hire()
        return lost


def extract_on_cluster(
    videos: dict[str, Path],
    plan: ExtractionPlan,
    *,
    address: str | None = None,
    workers: int | None = None,
    jobs: int = 1,
    following: ExtractionProgress | None = None,
) -> list[ExtractionResult]:
    """All videos on the cluster at `address`; without one, on a local one that lives as long as this call.

    workers: actors; by default one a GPU, or one for every two CPUs where there is none. jobs: videos that one has in hand.
    Videos and the output folder must be at the same place on all machines.
    """
    try:
        import ray
    except ImportError:
        raise InputError("--ray needs Ray; run: pip install 'hiero-video[ray]'") from None
    following = following or ExtractionProgress()
    plan.prepare()
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


def _run(
    ray: Any, videos: dict[str, Path], plan: ExtractionPlan, workers: int | None, jobs: int, following: ExtractionProgress
) -> list[ExtractionResult]:
    there = ray.cluster_resources()
    gpus = int(there.get("GPU", 0)) if plan.device in ("auto", "cuda") else 0
    cpus = max(1, int(there.get("CPU", 1)))
    num = min(workers or gpus or max(1, cpus // 2), len(videos), 64 * gpus if gpus else cpus)
    needs = {"num_gpus": 1 / math.ceil(num / gpus)} if gpus else {"num_cpus": 1}  # so that they fit, GPU by GPU
    folder = plan.weights or (fetch_weights(plan.spec) if plan.spec.num_frames else None)
    settings = plan.to_dict() | {
        "out": str(plan.out.resolve()), "weights": None if folder is None else str(folder.resolve()),
        "device": "cuda" if gpus else "cpu",
    }  # fmt: skip
    kind = ray.remote(Worker).options(max_concurrency=jobs + 2, **needs)
    crew = _Crew(ray, lambda: kind.remote(settings), jobs)
    for _ in range(num):
        crew.hire()
    waiting, tries = list(videos), dict.fromkeys(videos, 0)
    outcomes: dict[str, ExtractionResult] = {}
    begun, seen = set(), time.monotonic()

    def finish(outcome: ExtractionResult) -> None:
        outcomes[outcome.name] = outcome
        crew.alone.discard(outcome.name)
        following.end(outcome)

    def lost(actor: Any) -> None:
        """A worker is gone: its videos go to others; one that was alone with it has lost a try."""
        names = crew.replace(actor)
        for name in names:
            tries[name] += len(names) == 1
            crew.alone.add(name)
            if tries[name] < TRIES:
                following.log(f"a worker was lost; {name} goes to another")
                waiting.insert(0, name)
            else:
                finish(ExtractionResult(name, "failed", f"{videos[name]}: {TRIES} workers were lost over it (out of memory?)"))

    while len(outcomes) < len(videos):
        crew.look()
        for name in list(waiting):
            if (actor := crew.free(name)) is None:
                continue
            waiting.remove(name)
            if name not in begun:
                begun.add(name)
                following.begin(name, length_of(videos[name], plan.stream))
            crew.hands[actor.extract.remote(name, str(videos[name]))] = (name, actor)
        if crew.ready:
            seen = time.monotonic()
        elif time.monotonic() - seen > PLACED_S:
            raise InputError(
                f"no worker could be placed in {PLACED_S:.0f} s; the cluster is busy, or has no {' '.join(needs)} free"
            )
        if not crew.hands:
            time.sleep(POLL_S)
            continue
        ended, _ = ray.wait(list(crew.hands), timeout=POLL_S)
        for future in ended:
            if future not in crew.hands:  # of an actor that was replaced meanwhile
                continue
            name, actor = crew.hands[future]
            try:
                found = ExtractionResult(**ray.get(future))
            except ray.exceptions.RayTaskError as error:  # of the command, or of a disk: it would be the same for all
                raise error.as_instanceof_cause() from None
            except ray.exceptions.RayError:
                lost(actor)
            else:
                del crew.hands[future]
                finish(found)
        _follow(ray, crew, following)
    return [outcomes[name] for name in videos]


def _follow(ray: Any, crew: _Crew, following: ExtractionProgress) -> None:
    """Ask the actors where they are; one that does not answer now is asked the next time."""
    asked = [actor.now.remote() for actor in {id(actor): actor for _, actor in crew.hands.values()}.values()]
    answered, _ = ray.wait(asked, num_returns=len(asked), timeout=0.2) if asked else ([], [])
    for answer in answered:
        try:
            for name, done_s in ray.get(answer).items():
                following.advance(name, done_s)
        except ray.exceptions.RayError:
            continue
