"""The spectral cut: threads by the normalised cut of the similarity graph of nodes.

    S = exp((cos − 1)/κ),   M = D^−½ S D^−½,   threads = K-Means on the K leading eigenvectors of M

M has the eigenvectors of the normalised Laplacian I − M in reverse order; the −1 cancels in M.
There are two forms, which differ a lot at small κ. `sklearn`, for zero-shot use, sets the diagonal
of S to zero and divides each row of the eigenvectors by √degree. `training`, inside the network,
does neither.

There are two methods. `exact` stores S. `landmarks` does not: it solves the cut on nodes spread
evenly over the video and extends the eigenvectors to all others by one step of the random walk
(Nyström; Fowlkes et al. 2004, Bengio et al. 2004):

    v(x) = Σⱼ softmaxⱼ(cos(x, lⱼ)/κ) vⱼ / λ
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.config import ModelConfig
from hiero.errors import InputError
from hiero.model.kmeans import kmeans
from hiero.model.normalised_cut import Form, cut_samples, leading_eigenvectors, log_similarity, normalise_similarity

CutMethod = Literal["auto", "exact", "landmarks"]

NUM_LANDMARKS = 2048
CHUNK_SIZE = 2**24  # entries of the similarity of nodes with landmarks that are computed at once
NUM_MATRICES = 3  # matrices of the size of S that the exact method stores at once
KMEANS_RESTARTS = 10
KMEANS_ITERATIONS = 100
PADDING_EIGENVALUE = -2.0  # below every eigenvalue of M, which are in [−1, 1]
MIN_EIGENVALUE = 1e-3  # ratios of smaller eigenvalues are meaningless


def embed_exactly(
    x: Tensor,
    num_vectors: int,
    kappa: float,
    *,
    mask: Tensor | None = None,
    form: Form = "sklearn",
    random_state: int = 0,
) -> tuple[Tensor, Tensor]:
    """Spectral embedding of nodes from the whole similarity matrix."""
    values, vectors, log_degree = _solve(x, num_vectors, kappa, mask, form, random_state)
    return values, _divide_by_degree(vectors, log_degree) if form == "sklearn" else vectors


def _solve(
    x: Tensor, num_vectors: int, kappa: float, mask: Tensor | None, form: Form, random_state: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues (B, V), eigenvectors (B, N, V) and the log of the degrees (B, N)."""
    m, log_degree = normalise_similarity(log_similarity(x, kappa, form, mask), kappa)
    if mask is not None:
        m.diagonal(dim1=1, dim2=2).masked_fill_(~mask, PADDING_EIGENVALUE)  # padding comes last
    return *leading_eigenvectors(m, num_vectors, random_state), log_degree


def _divide_by_degree(vectors: Tensor, log_degree: Tensor) -> Tensor:
    """D^−½ u, up to a common factor that prevents overflow and does not affect K-Means."""
    return vectors * ((log_degree.amin(-1, keepdim=True) - log_degree) / 2).exp()[..., None]


def embed_by_landmarks(
    x: Tensor, num_vectors: int, kappa: float, *, form: Form = "sklearn", random_state: int = 0
) -> tuple[Tensor, Tensor]:
    """Spectral embedding of one long video in O(N · landmarks) time and bounded memory."""
    x = F.normalize(x, dim=-1)
    num_nodes = len(x)
    num_landmarks = min(NUM_LANDMARKS, num_nodes)
    index = torch.linspace(0, num_nodes - 1, num_landmarks, device=x.device, dtype=torch.float64).round().long()
    landmarks = x[index]
    solved = _solve(landmarks[None], num_vectors, kappa, None, form, random_state)
    values, vectors, log_degree = (part[0] for part in solved)
    vectors = _divide_by_degree(vectors, log_degree) / values.clamp_min(1e-12)  # the random walk extends D^−½ u
    out = x.new_empty(num_nodes, vectors.shape[1])
    num_rows = max(1, CHUNK_SIZE // len(landmarks))
    for start in range(0, num_nodes, num_rows):
        logits = (x[start : start + num_rows] @ landmarks.mT).sub_(1).div_(kappa)
        if form == "sklearn":  # a landmark is not similar to itself
            nodes = torch.arange(start, start + len(logits), device=x.device)
            logits.masked_fill_(nodes[:, None] == index, -torch.inf)
        extended = logits.softmax(-1).nan_to_num_(0.0) @ vectors  # NaN: a single landmark without others
        if form == "training":  # undo the division by √degree
            extended = extended * ((logits.logsumexp(-1, keepdim=True) - log_degree.min()) / 2).exp()
        out[start : start + num_rows] = extended
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
    """Spectral clustering of the nodes of a video into threads.

    Args:
        x: Features of one video, (N, D), or of a batch, (B, N, D). Only their direction matters.
        num_threads: K. `auto` chooses it from the eigenvalues of one video (see `choose_num_threads`).
        kappa: Temperature of the similarity exp(cos/κ). With a smaller one, only nearer nodes count.
        mask: True on nodes, False on padding, (B, N); only with a batch and the exact method.
        form: `sklearn` for zero-shot use, `training` as inside the network.
        random_state: Seed. The same seed gives the same threads.
        method: `exact`, or `landmarks` for very long videos. `auto` is exact while the matrices fit
            into `memory_budget`.
        memory_budget: Memory for the matrices of the exact method, in bytes.
        max_threads: The largest K that `auto` chooses.

    Returns:
        Thread of each node, numbered by first appearance, (N,) or (B, N); −1 on padding.

    Raises:
        InputError: An argument has a wrong shape, type or value.

    Examples:
        >>> import hiero, torch
        >>> directions = torch.eye(3)[[0, 0, 1, 1, 0, 0, 2, 2]]
        >>> hiero.spectral_cut(directions, 3, kappa=0.5).tolist()
        [0, 0, 1, 1, 0, 0, 2, 2]
    """
    single = x.ndim == 2
    x = x[None] if single else x
    _check(x, num_threads, kappa, mask, form, method, single)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    # `choose_num_threads` compares each eigenvalue with the next, so it needs one more than K.
    num_vectors = min(max_threads + 1 if num_threads == "auto" else num_threads, x.shape[1])
    num_bytes = NUM_MATRICES * x.element_size() * x.shape[1] ** 2 * len(x)
    if method == "exact" or (method == "auto" and num_bytes <= memory_budget):
        values, vectors = embed_exactly(x, num_vectors, kappa, mask=mask, form=form, random_state=random_state)
    elif mask is None:
        embeddings = [embed_by_landmarks(each, num_vectors, kappa, form=form, random_state=random_state) for each in x]
        values, vectors = (torch.stack(parts) for parts in zip(*embeddings, strict=True))
    else:
        raise InputError("the landmark method needs unpadded videos; cut padded videos one at a time, without a mask")
    num_clusters = choose_num_threads(values[0]) if num_threads == "auto" else num_vectors
    labels = kmeans(
        vectors[..., :num_clusters],
        num_clusters,
        random_state=random_state,
        num_restarts=KMEANS_RESTARTS,
        mask=mask,
        num_iterations=KMEANS_ITERATIONS,
    )
    return labels[0] if single else labels


def _check(
    x: Tensor, num_threads: int | str, kappa: float, mask: Tensor | None, form: str, method: str, single: bool
) -> None:
    if mask is not None and single:
        raise InputError("mask is only for a batch (B, N, D); for one video (N, D), remove the padding instead")
    if x.ndim != 3 or 0 in x.shape:
        shape = tuple(x[0].shape if single else x.shape)
        raise InputError(f"x must be (N, D) or (B, N, D) without empty dimensions, got {shape}")
    if mask is not None and (mask.shape != x.shape[:2] or mask.dtype != torch.bool or not mask.any(1).all()):
        raise InputError(f"mask must be boolean, {tuple(x.shape[:2])}, with at least one node per video")
    if not x.is_floating_point() or not torch.isfinite(x if mask is None else x[mask]).all():
        raise InputError("x must hold finite floating-point numbers")
    if num_threads != "auto" and (not isinstance(num_threads, int) or num_threads < 1):
        raise InputError(f"num_threads must be at least 1 or 'auto', got {num_threads}")
    if num_threads == "auto" and len(x) > 1:
        raise InputError("num_threads='auto' needs one video at a time, because each gets its own number")
    if not 0 < kappa < float("inf"):
        raise InputError(f"kappa must be positive, got {kappa}")
    for name, value, choices in (("form", form, get_args(Form)), ("method", method, get_args(CutMethod))):
        if value not in choices:
            raise InputError(f"{name} must be one of {choices}, got {value!r}")


def spectral_threads(x: Tensor, config: ModelConfig) -> Tensor:
    """The clustering of the decoder: the cut in its `training` form, (B, S, D) → (B, S)."""
    if config.sample_points is not None:
        return cut_samples(x, config.num_threads, config.kappa, config.random_state)
    return spectral_cut(x, config.num_threads, kappa=config.kappa, form="training", random_state=config.random_state)


def choose_num_threads(values: Tensor) -> int:
    """K ≥ 2 with the largest ratio λ_K / λ_K+1 of leading eigenvalues of M (Ahn and Horenstein 2013).

    With a wide κ, the eigenvalues of real threads are small but well above the rest. The usual
    eigengap λ_K − λ_K+1 (von Luxburg 2007, Sec. 8.3) then picks 2 or 3, while the ratio finds them.
    """
    if len(values) < 3:
        return len(values)
    values = values.double().clamp_min(MIN_EIGENVALUE)
    return int((values[1:-1] / values[2:]).argmax()) + 2
