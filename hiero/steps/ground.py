"""Step grounding: when does a video show what a text says? Runs of threads, ranked by their similarity with the text."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.model.spectral import spectral_cut
from hiero.steps.pieces import runs


class Runs(NamedTuple):
    """Contiguous runs of equal labels: nodes [start, end) and the label, (R,) each."""

    start: Tensor
    end: Tensor
    label: Tensor


def find_runs(labels: Tensor, min_nodes: int = 1) -> Runs:
    """Runs of equal labels (T,) in time order, those shorter than `min_nodes` left out; if none is that long, all of them."""
    start, end = torch.from_numpy(runs(labels.cpu().numpy(), min_nodes)).to(labels.device).unbind(1)
    return Runs(start, end, labels[start])


def mean_of_runs(nodes: Tensor, found: Runs) -> Tensor:
    """Mean of the nodes (T, E) in each run, (R, E)."""
    total = F.pad(nodes.double().cumsum(0), (0, 0, 1, 0))
    return ((total[found.end] - total[found.start]) / (found.end - found.start)[:, None]).to(nodes.dtype)


def ground(
    nodes: Tensor, queries: Tensor, *, num_threads: int = 8, kappa: float = 0.05, min_nodes: int = 5, random_state: int = 0
) -> tuple[Runs, Tensor]:
    """The steps of a video and how well each fits each query: nodes (T, E) and queries (Q, E), unit vectors → runs, (Q, R).

    As in the paper: spectral clustering of the level-0 nodes after h_v, runs of equal label, runs of up to 4 nodes are
    background, score = mean of the run · query.
    """
    labels = spectral_cut(nodes, num_threads, kappa=kappa, random_state=random_state)
    found = find_runs(labels, min_nodes)
    return found, queries @ mean_of_runs(nodes, found).mT
