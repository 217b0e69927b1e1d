"""The normalised cut of a few samples a video, inside the network; and the similarity matrix that
every cut begins with.

    S = exp((cos − 1)/κ),   M = D^−½ S D^−½,   threads = K-Means on the K leading eigenvectors of M

`cut_samples` is one Triton kernel where it can run (`normalised_cut_triton`), otherwise a chain of
torch operations.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.kernels import normalised_cut_triton
from hiero.kernels.eigen import MAX_DENSE_SIZE, leading_eigenvectors
from hiero.kernels.kmeans import kmeans

Form = Literal["sklearn", "training"]
NUM_STRIPES = 12  # that a large similarity matrix is computed in
MAX_EXPONENT = 80.0  # exp(−80) is still a normal number in single precision
NUM_RESTARTS, NUM_ITERATIONS = 8, 10  # of K-Means inside the network


def cut_samples(x: Tensor, num_threads: int, kappa: float, random_state: int) -> Tensor:
    """Thread of each sample, by the cut in its `training` form."""
    if normalised_cut_triton.is_available(x, num_threads):
        return normalised_cut_triton.cut_samples_triton(
            x, num_threads, kappa, random_state, NUM_RESTARTS, NUM_ITERATIONS
        )[0]
    m, _ = normalise_similarity(log_similarity(x, kappa, "training"), kappa)
    _, vectors = leading_eigenvectors(m, num_threads, 0)
    # to see whether K-Means has settled, the host must wait
    can_wait = not (x.is_cuda or torch.compiler.is_compiling())
    return kmeans(
        vectors,
        num_threads,
        random_state=random_state,
        num_restarts=NUM_RESTARTS,
        num_iterations=NUM_ITERATIONS,
        early_stop=can_wait,
    )


def log_similarity(x: Tensor, kappa: float, form: Form, mask: Tensor | None = None) -> Tensor:
    """log S = (cos − 1)/κ. A zero vector has cosine 0 with everything."""
    x = F.normalize(x, dim=-1)
    num_nodes = x.shape[1]
    num_rows = _stripe_rows(num_nodes)
    log_s = x.new_empty(len(x), num_nodes, num_nodes)
    for i in range(0, num_nodes, num_rows):  # S is symmetric: compute each stripe from its diagonal on, mirror the rest
        stripe = (x[:, i : i + num_rows] @ x[:, i:].mT).sub_(1).div_(kappa)
        log_s[:, i : i + num_rows, i:] = stripe
        log_s[:, i + num_rows :, i : i + num_rows] = stripe[..., num_rows:].mT
    if form == "sklearn":
        log_s.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    if mask is not None:
        log_s.masked_fill_(~(mask[:, :, None] & mask[:, None, :]), -torch.inf)
    return log_s


def _stripe_rows(num_rows: int) -> int:
    """Rows of a large matrix that are worked on at once."""
    return num_rows if num_rows <= MAX_DENSE_SIZE else -(-num_rows // NUM_STRIPES)


def normalise_similarity(log_s: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """M = D^−½ S D^−½."""
    if 2 / kappa < MAX_EXPONENT:  # cosines differ by 2 at most
        s = log_s.exp_()
        degree = s.sum(-1)
        scale = torch.where(degree > 0, degree.rsqrt(), 0)  # a node without any neighbour
        return s.mul_(scale[..., :, None]).mul_(scale[..., None, :]), torch.where(degree > 0, degree.log(), 0)
    # At small κ degrees underflow; their logs do not.
    log_degree = torch.cat([rows.logsumexp(-1) for rows in log_s.split(_stripe_rows(log_s.shape[1]), dim=1)], dim=1)
    log_degree = torch.where(log_degree.isfinite(), log_degree, 0)  # a node without any neighbour
    return log_s.sub_(log_degree[..., :, None] / 2).sub_(log_degree[..., None, :] / 2).exp_(), log_degree
