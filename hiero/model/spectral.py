"""The spectral cut: nodes into threads by the normalised cut of their similarity graph.

    S = exp((cos − 1)/κ),   M = D^−½ S D^−½,   threads = K-Means on the K leading eigenvectors of M

M has the eigenvectors of the normalised Laplacian I − M in reverse order. The −1 cancels in M and keeps exp ≤ 1.
Two forms exist, and at small κ they differ a lot. `sklearn`, for zero-shot use: a node is not similar to itself (S has a zero
diagonal) and its row of the eigenvectors is divided by √degree. `training`, inside the network: neither.

Two paths. `exact` holds S. `landmarks` never does: it solves the cut on nodes spread evenly over the video and extends the
eigenvectors to all others by one step of the random walk (Nyström; Fowlkes et al. 2004, Bengio et al. 2004):

    v(x) = Σⱼ softmaxⱼ(cos(x, lⱼ)/κ) vⱼ / λ
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.errors import InputError
from hiero.model.eigen import krylov_eigenvectors, leading_eigenvectors
from hiero.model.kmeans import kmeans

Form = Literal["sklearn", "training"]
Method = Literal["auto", "exact", "landmarks"]

DECOMPOSE_UP_TO = 512  # nodes; above, a few eigenvectors are cheaper to find than all
NUM_LANDMARKS = 2048
NUM_STRIPES = 12  # that a large similarity matrix is computed in
CHUNK = 2**24  # entries of a similarity block held at once on the landmark path
SMALL = 1e-12


def similarity(x: Tensor, kappa: float, mask: Tensor | None = None) -> Tensor:
    """S (B, N, N) = exp((cos − 1)/κ); zero for masked nodes. A zero vector has cosine 0 with everything."""
    x = F.normalize(x, dim=-1)
    num = x.shape[1]
    step = num if num <= DECOMPOSE_UP_TO else -(-num // NUM_STRIPES)
    s = x.new_empty(len(x), num, num)
    for i in range(0, num, step):  # S is symmetric: compute each stripe from its diagonal on, mirror the rest
        stripe = (x[:, i : i + step] @ x[:, i:].mT).sub_(1).div_(kappa).exp_()
        s[:, i : i + step, i:] = stripe
        s[:, i + step :, i : i + step] = stripe[..., step:].mT
    if mask is not None:
        s = s * (mask[:, :, None] & mask[:, None, :])
    return s


def normalise(s: Tensor) -> tuple[Tensor, Tensor]:
    """M = D^−½ S D^−½ (in place of S) and the degrees (B, N)."""
    degree = s.sum(-1)
    root = degree.clamp_min(SMALL).rsqrt()
    return s.mul_(root[..., :, None]).mul_(root[..., None, :]), degree


def embed_exactly(
    x: Tensor, num: int, kappa: float, *, mask: Tensor | None = None, form: Form = "sklearn", random_state: int = 0
) -> tuple[Tensor, Tensor]:
    """Leading eigenvalues (B, num) and eigenvectors (B, N, num) of M, from the whole matrix."""
    s = similarity(x, kappa, mask)
    if form == "sklearn":
        s.diagonal(dim1=1, dim2=2).zero_()
    m, degree = normalise(s)
    if mask is not None:
        m.diagonal(dim1=1, dim2=2).masked_fill_(~mask, -2)  # below every true eigenvalue, so that padding comes last
    if m.shape[-1] <= DECOMPOSE_UP_TO:
        values, vectors = leading_eigenvectors(m, num)
    else:
        found = [krylov_eigenvectors(video, num, random_state) for video in m]
        values, vectors = torch.stack([f[0] for f in found]), torch.stack([f[1] for f in found])
    return values, vectors * degree.clamp_min(SMALL).rsqrt()[..., None] if form == "sklearn" else vectors


def embed_by_landmarks(
    x: Tensor, num: int, kappa: float, *, form: Form = "sklearn", random_state: int = 0, num_landmarks: int = NUM_LANDMARKS
) -> tuple[Tensor, Tensor]:
    """The same for one long video (N, D) in O(N·landmarks) time and bounded memory. → (num,), (N, num)."""
    x = F.normalize(x, dim=-1)
    num_nodes = len(x)
    index = torch.linspace(0, num_nodes - 1, min(num_landmarks, num_nodes), device=x.device, dtype=torch.float64).round().long()
    landmarks = x[index]
    values, vectors = embed_exactly(landmarks[None], num, kappa, form=form, random_state=random_state)
    values, vectors = values[0], vectors[0]
    if form == "training":  # the walk carries D^−½u; put the degrees back at the end
        vectors = vectors / similarity(landmarks[None], kappa).sum(-1)[0, :, None].clamp_min(SMALL).sqrt()
    vectors = vectors / values.clamp_min(SMALL)
    out = x.new_empty(num_nodes, vectors.shape[1])
    step = max(1, CHUNK // len(landmarks))
    for start in range(0, num_nodes, step):
        logits = (x[start : start + step] @ landmarks.mT).sub_(1).div_(kappa)
        if form == "sklearn":
            here = torch.arange(start, start + len(logits), device=x.device)
            logits.masked_fill_(here[:, None] == index, -torch.inf)
        walk = logits.softmax(-1).nan_to_num_(0.0) @ vectors  # a lone landmark has nowhere to go
        out[start : start + step] = walk if form == "sklearn" else walk * (logits.logsumexp(-1, keepdim=True) / 2).exp()
    return values, out


def spectral_cut(
    x: Tensor,
    num_threads: int | Literal["auto"],
    *,
    kappa: float = 0.05,
    mask: Tensor | None = None,
    form: Form = "sklearn",
    random_state: int = 0,
    method: Method = "auto",
    memory_budget: int = 2**30,
    max_threads: int = 20,
    num_restarts: int = 10,
    num_iterations: int = 100,
    early_stop: bool = True,
) -> Tensor:
    """Thread of each node, numbered by first appearance: x (N, D) → (N,), or x (B, N, D), mask (B, N) → (B, N), −1 on padding.

    `method` auto takes the exact path while its matrix stays within `memory_budget` bytes, else landmarks.
    `num_threads` "auto" picks a K up to `max_threads` from the spectrum (see `choose_num_threads`).
    """
    if x.ndim == 2:
        if mask is not None:
            raise InputError("mask goes with a batch (B, N, D); for one video (N, D) drop its nodes instead")
        x = x[None]
        squeeze = True
    else:
        squeeze = False
    if x.ndim != 3 or 0 in x.shape:
        raise InputError(f"x must be (N, D) or (B, N, D) without empty dimensions, got {tuple(x.shape)}")
    if num_threads != "auto" and num_threads < 1:
        raise InputError(f"num_threads must be at least 1 or 'auto', got {num_threads}")
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    num = min(max_threads + 1 if num_threads == "auto" else num_threads, x.shape[1])
    options: dict[str, Any] = {"form": form, "random_state": random_state}
    if method == "exact" or (method == "auto" and 3 * x.element_size() * x.shape[1] ** 2 * len(x) <= memory_budget):
        values, vectors = embed_exactly(x, num, kappa, mask=mask, **options)
    elif mask is None:
        found = [embed_by_landmarks(video, num, kappa, **options) for video in x]
        values, vectors = torch.stack([f[0] for f in found]), torch.stack([f[1] for f in found])
    else:
        raise InputError("the landmark path takes one unpadded video at a time; call it without a mask")
    if num_threads == "auto":
        if len(x) > 1:
            raise InputError("num_threads='auto' takes one video at a time, since each gets its own number")
        num = choose_num_threads(values[0])
        vectors = vectors[..., :num]
    labels = kmeans(
        vectors,
        num,
        random_state=random_state,
        num_restarts=num_restarts,
        mask=mask,
        num_iterations=num_iterations,
        early_stop=early_stop,
    )
    return labels[0] if squeeze else labels


def choose_num_threads(values: Tensor) -> int:
    """K by the largest ratio λ_K / λ_K+1 of leading eigenvalues of M, at least 2 (Ahn and Horenstein 2013).

    values (n,) descending. The usual eigengap λ_K − λ_K+1 (von Luxburg 2007, Sec. 8.3) picks 2 or 3 whenever κ is wide and
    the eigenvalues of real threads are small but well above the rest; the ratio finds them there too.
    """
    if len(values) < 3:
        return len(values)
    values = values.double().clamp_min(1e-3)
    return int((values[1:-1] / values[2:]).argmax()) + 2
