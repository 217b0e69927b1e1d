"""A video as nested steps: each level covers it without gap or overlap, and finer steps lie inside coarser ones."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from hiero.errors import InputError
from hiero.records import Clock, Step
from hiero.steps.pieces import cut_pieces, join_pieces, runs

Method = Literal["pieces", "spectral"]
STEP_S = 60.0  # usual length of a step where nothing is said about their number; CaptainCook4D has one every 65 s
FEWEST = 8  # steps of the finest level, if the video has the nodes for it
ALIKE = 0.6  # cosine of centred means above which two steps of a level are one thread


def usual_numbers(duration_s: float, num_nodes: int) -> list[int]:
    """Numbers of steps for three granularities, coarse to fine, from the length of a video. Short videos have short steps."""
    finest = max(1, round(duration_s / STEP_S), min(FEWEST, num_nodes // 2))
    return sorted({max(1, round(finest / 4)), max(1, round(finest / 2)), finest})


def build_hierarchy(
    nodes: np.ndarray,
    clock: Clock,
    numbers: list[int] | None = None,
    *,
    method: Method = "pieces",
    min_s: float = 2.0,
    kappa: float = 0.5,
    random_state: int = 0,
) -> list[list[Step]]:
    """Levels of steps, coarse to fine: nodes (T, D), one every clock.spacing_s seconds.

    numbers: steps of each level (pieces), or threads (spectral: a thread that comes back makes several steps). By default three
    granularities that follow from the duration. Runs shorter than `min_s` become part of the more similar neighbour.
    """
    if nodes.ndim != 2 or not len(nodes):
        raise InputError(f"nodes must be (T, D) with at least one node, got {tuple(nodes.shape)}")
    if method not in get_args(Method):
        raise InputError(f"method is one of {', '.join(get_args(Method))}, got {method}")
    numbers = sorted(set(numbers or usual_numbers(len(nodes) * clock.spacing_s, len(nodes))))
    if numbers[0] < 1:
        raise InputError(f"a level needs at least one step, got {numbers[0]}")
    x = np.asarray(nodes, dtype=np.float32)
    usual_s = len(x) * clock.spacing_s / numbers[-1]
    shortest = max(1, round(min(min_s, usual_s / 2) / clock.spacing_s))  # who asks for many steps wants short ones
    if method == "pieces":
        finest = cut_pieces(x, numbers[-1], min_nodes=shortest)
    else:
        import torch

        from hiero.model.spectral import spectral_cut

        labels = spectral_cut(torch.from_numpy(x), numbers[-1], kappa=kappa, random_state=random_state).numpy()
        finest = merge_short(x, [*runs(labels)[:, 0].tolist(), len(x)], shortest)
        numbers = [max(1, round(number / numbers[-1] * (len(finest) - 1))) for number in numbers]
    numbers = sorted({min(number, len(finest) - 1) for number in numbers}, reverse=True)  # two equal levels are one
    bounds = join_pieces(x, finest, numbers)[::-1]
    return link([_level(x, edges, number, clock) for number, edges in enumerate(bounds)])


def merge_short(x: np.ndarray, bounds: list[int], shortest: int) -> list[int]:
    """Give every piece shorter than `shortest` nodes, the shortest first, to the neighbour that it is more like."""
    bounds = list(bounds)
    total = np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x.astype(np.float64), 0)])

    def mean(i: int) -> np.ndarray:
        value = (total[bounds[i + 1]] - total[bounds[i]]) / (bounds[i + 1] - bounds[i])
        return value / max(float(np.linalg.norm(value)), 1e-12)

    while len(bounds) > 2:
        lengths = np.diff(bounds)
        i = int(lengths.argmin())
        if lengths[i] >= shortest:
            break
        before = float(mean(i) @ mean(i - 1)) if i > 0 else -np.inf
        after = float(mean(i) @ mean(i + 1)) if i + 2 < len(bounds) else -np.inf
        bounds.pop(i if before >= after else i + 1)
    return bounds


def threads_of(x: np.ndarray, bounds: list[int]) -> list[int]:
    """Thread of each piece, numbered by first appearance: pieces join while their centred means are alike (average linkage)."""
    from scipy.cluster.hierarchy import fcluster, linkage

    num = len(bounds) - 1
    if num < 2:
        return [0] * num
    x = x - x.mean(0)
    means = np.stack([x[a:b].mean(0) for a, b in itertools.pairwise(bounds)])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    gaps = np.clip(1 - means @ means.T, 0, None)[np.triu_indices(num, 1)]
    found = fcluster(linkage(gaps, "average"), 1 - ALIKE, "distance").tolist()
    order = {label: i for i, label in enumerate(dict.fromkeys(found))}
    return [order[label] for label in found]


def _level(x: np.ndarray, bounds: list[int], number: int, clock: Clock) -> list[Step]:
    threads = threads_of(x, bounds)
    return [
        Step(f"{number}.{i}", clock.start_s + a * clock.spacing_s, clock.start_s + b * clock.spacing_s, thread)
        for i, (a, b, thread) in enumerate(zip(bounds, bounds[1:], threads, strict=False))
    ]


def link(levels: list[list[Step]]) -> list[list[Step]]:
    """Say of each step which coarser one holds it and which finer ones it holds."""
    out = [list(level) for level in levels]
    for number in range(1, len(out)):
        coarse, fine = out[number - 1], out[number]
        middles = [(step.start_s + step.end_s) / 2 for step in fine]
        holders = (np.searchsorted([step.start_s for step in coarse], middles, side="right") - 1).tolist()
        for i, holder in enumerate(holders):
            fine[i] = replace(fine[i], parent=coarse[holder].id)
            coarse[holder] = replace(coarse[holder], children=(*coarse[holder].children, fine[i].id))
    return out
