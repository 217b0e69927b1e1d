"""The spectral cut: nodes into threads by the normalised cut of their similarity graph.

    S = exp((cos − 1)/κ),   M = D^−½ S D^−½,   threads = K-Means on the K leading eigenvectors of M

M has the eigenvectors of the normalised Laplacian I − M in reverse order; the −1 cancels in M.
Two forms exist, and at small κ they differ a lot. `sklearn`, for zero-shot use: a node is not similar to itself (S has a zero
diagonal) and its row of the eigenvectors is divided by √degree. `training`, inside the network: neither.

Two paths. `exact` holds S. `landmarks` never does: it solves the cut on nodes spread evenly over the video and extends the
eigenvectors to all others by one step of the random walk (Nyström; Fowlkes et al. 2004, Bengio et al. 2004):

    v(x) = Σⱼ softmaxⱼ(cos(x, lⱼ)/κ) vⱼ / λ
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.kernels.eigen import top_eigenvectors
from hiero.kernels.kmeans import kmeans
from hiero.kernels.normalised_cut import Form, log_similarity, normalise_similarity

CutMethod = Literal["auto", "exact", "landmarks"]

NUM_LANDMARKS = 2048
CHUNK = 2**24  # entries of a similarity block held at once on the landmark path


def embed_exactly(
    x: Tensor, num: int, kappa: float, *, mask: Tensor | None = None, form: Form = "sklearn", random_state: int = 0
) -> tuple[Tensor, Tensor]:
    """Leading eigenvalues (B, num) and eigenvectors (B, N, num) of M, from the whole matrix."""
    values, vectors, log_degree = _solve(x, num, kappa, mask, form, random_state)
    return values, _walk_form(vectors, log_degree) if form == "sklearn" else vectors


def _solve(x: Tensor, num: int, kappa: float, mask: Tensor | None, form: Form, random_state: int) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues, eigenvectors as they are, and the log of the degrees."""
    m, log_degree = normalise_similarity(log_similarity(x, kappa, form, mask), kappa)
    if mask is not None:
        m.diagonal(dim1=1, dim2=2).masked_fill_(~mask, -2)  # below every true eigenvalue, so that padding comes last
    return *top_eigenvectors(m, num, random_state), log_degree


def _walk_form(vectors: Tensor, log_degree: Tensor) -> Tensor:
    """D^−½ u, up to a factor for all nodes (which K-Means does not see) that keeps it from overflowing."""
    return vectors * ((log_degree.amin(-1, keepdim=True) - log_degree) / 2).exp()[..., None]


def embed_by_landmarks(
    x: Tensor, num: int, kappa: float, *, form: Form = "sklearn", random_state: int = 0, num_landmarks: int = NUM_LANDMARKS
) -> tuple[Tensor, Tensor]:
    """The same for one long video (N, D) in O(N·landmarks) time and bounded memory. → (num,), (N, num)."""
    x = F.normalize(x, dim=-1)
    num_nodes = len(x)
    index = torch.linspace(0, num_nodes - 1, min(num_landmarks, num_nodes), device=x.device, dtype=torch.float64).round().long()
    landmarks = x[index]
    values, vectors, log_degree = (found[0] for found in _solve(landmarks[None], num, kappa, None, form, random_state))
    vectors = _walk_form(vectors, log_degree) / values.clamp_min(1e-12)  # the walk carries D^−½u
    out = x.new_empty(num_nodes, vectors.shape[1])
    step = max(1, CHUNK // len(landmarks))
    for start in range(0, num_nodes, step):
        logits = (x[start : start + step] @ landmarks.mT).sub_(1).div_(kappa)
        if form == "sklearn":
            here = torch.arange(start, start + len(logits), device=x.device)
            logits.masked_fill_(here[:, None] == index, -torch.inf)
        walk = logits.softmax(-1).nan_to_num_(0.0) @ vectors  # a lone landmark has nowhere to go
        if form == "training":  # put the degrees back
            walk = walk * ((logits.logsumexp(-1, keepdim=True) - log_degree.min()) / 2).exp()
        out[start : start + step] = walk
    return values, out


@torch.no_grad()
def spectral_cut(
    x: Tensor,
    num_threads: int | Literal["auto"],
    *,
    kappa: float = 0.05,
    mask: Tensor | None = None,
    form: Form = "sklearn",
    random_state: int = 0,
    method: CutMethod = "auto",
    memory_budget: int = 2**30,
    max_threads: int = 20,
) -> Tensor:
    """Thread of each node, numbered by first appearance: x (N, D) → (N,), or x (B, N, D), mask (B, N) → (B, N), −1 on padding.

    `method` auto takes the exact path while its matrices stay within `memory_budget` bytes, else landmarks.
    `num_threads` "auto" picks a K up to `max_threads` from the spectrum (see `choose_num_threads`).
    """
    single = x.ndim == 2
    x = x[None] if single else x
    _check(x, num_threads, kappa, mask, form, method, single)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    num = min(max_threads + 1 if num_threads == "auto" else num_threads, x.shape[1])
    if method == "exact" or (method == "auto" and 3 * x.element_size() * x.shape[1] ** 2 * len(x) <= memory_budget):
        values, vectors = embed_exactly(x, num, kappa, mask=mask, form=form, random_state=random_state)
    elif mask is None:
        found = [embed_by_landmarks(video, num, kappa, form=form, random_state=random_state) for video in x]
        values, vectors = torch.stack([f[0] for f in found]), torch.stack([f[1] for f in found])
    else:
        raise InputError("the landmark path takes unpadded videos; cut padded ones one at a time, without a mask")
    if num_threads == "auto":
        num = choose_num_threads(values[0])
    labels = kmeans(vectors[..., :num], num, random_state=random_state, num_restarts=10, mask=mask, num_iterations=100)
    return labels[0] if single else labels


def _check(x: Tensor, num_threads: int | str, kappa: float, mask: Tensor | None, form: str, method: str, single: bool) -> None:
    if mask is not None and single:
        raise InputError("mask goes with a batch (B, N, D); for one video (N, D) drop its nodes instead")
    if x.ndim != 3 or 0 in x.shape:
        raise InputError(f"x must be (N, D) or (B, N, D) without empty dimensions, got {tuple(x[0].shape if single else x.shape)}")
    if mask is not None and (mask.shape != x.shape[:2] or mask.dtype != torch.bool or not mask.any(1).all()):
        raise InputError(f"mask must be boolean, {tuple(x.shape[:2])}, with at least one node a video")
    if not x.is_floating_point() or not torch.isfinite(x if mask is None else x[mask]).all():
        raise InputError("x must hold finite floating-point numbers")
    if num_threads != "auto" and (not isinstance(num_threads, int) or num_threads < 1):
        raise InputError(f"num_threads must be at least 1 or 'auto', got {num_threads}")
    if num_threads == "auto" and len(x) > 1:
        raise InputError("num_threads='auto' takes one video at a time, since each gets its own number")
    if not 0 < kappa < float("inf"):
        raise InputError(f"kappa must be positive, got {kappa}")
    if form not in get_args(Form) or method not in get_args(CutMethod):
        raise InputError(
            f"form must be one of {get_args(Form)} and method one of {get_args(CutMethod)}, got {form!r} and {method!r}"
        )


def choose_num_threads(values: Tensor) -> int:
    """K by the largest ratio λ_K / λ_K+1 of leading eigenvalues of M, at least 2 (Ahn and Horenstein 2013).

    values (n,) descending. The usual eigengap λ_K − λ_K+1 (von Luxburg 2007, Sec. 8.3) picks 2 or 3 whenever κ is wide and
    the eigenvalues of real threads are small but well above the rest; the ratio finds them there too.
    """
    if len(values) < 3:
        return len(values)
    values = values.double().clamp_min(1e-3)
    return int((values[1:-1] / values[2:]).argmax()) + 2
