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

from hiero.errors import InputError
from hiero.model.kmeans import kmeans
from hiero.model.normalised_cut import Form, leading_eigenvectors, log_similarity, normalise_similarity

CutMethod = Literal["auto", "exact", "landmarks"]

NUM_LANDMARKS = 2048
CHUNK_SIZE = 2**24  # entries of the similarity of nodes with landmarks that are computed at once
NUM_MATRICES = 3  # matrices of the size of S that the exact method stores at once
KMEANS_RESTARTS = 10
KMEANS_ITERATIONS = 100


def embed_exactly(
    x: Tensor, num_vectors: int, kappa: float, *, form: Form = "sklearn", random_state: int = 0
) -> Tensor:
    """Spectral embedding of the nodes of a video from the whole similarity matrix, (N, V)."""
    _, vectors, log_degree = _solve(x, num_vectors, kappa, form, random_state)
    return _divide_by_degree(vectors, log_degree) if form == "sklearn" else vectors


def _solve(x: Tensor, num_vectors: int, kappa: float, form: Form, random_state: int) -> tuple[Tensor, Tensor, Tensor]:
    """Eigenvalues (V,), eigenvectors (N, V) and the log of the degrees (N,)."""
    m, log_degree = normalise_similarity(log_similarity(x[None], kappa, form), kappa)
    values, vectors = leading_eigenvectors(m, num_vectors, random_state)
    return values[0], vectors[0], log_degree[0]


def _divide_by_degree(vectors: Tensor, log_degree: Tensor) -> Tensor:
    """D^−½ u, up to a common factor that prevents overflow and does not affect K-Means."""
    return vectors * ((log_degree.amin(-1, keepdim=True) - log_degree) / 2).exp()[..., None]


def embed_by_landmarks(
    x: Tensor, num_vectors: int, kappa: float, *, form: Form = "sklearn", random_state: int = 0
) -> Tensor:
    """`embed_exactly` for a long video, in O(N · landmarks) time and bounded memory."""
    x = F.normalize(x, dim=-1)
    num_nodes = len(x)
    num_landmarks = min(NUM_LANDMARKS, num_nodes)
    index = torch.linspace(0, num_nodes - 1, num_landmarks, device=x.device, dtype=torch.float64).round().long()
    landmarks = x[index]
    values, vectors, log_degree = _solve(landmarks, num_vectors, kappa, form, random_state)
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
    return out


@torch.no_grad()
def spectral_cut(
    x: Tensor,
    num_threads: int,
    *,
    kappa: float = 0.05,
    form: Form = "sklearn",
    random_state: int = 0,
    method: CutMethod = "auto",
    memory_budget: int = 2**30,
) -> Tensor:
    """Spectral clustering of the nodes of a video into threads.

    Args:
        x: Features of the video, (N, D). Only their direction matters.
        num_threads: Number of threads, K.
        kappa: Temperature of the similarity exp(cos/κ). With a smaller one, only nearer nodes count.
        form: `sklearn` for zero-shot use, `training` as inside the network.
        random_state: Seed. The same seed gives the same threads.
        method: `exact`, or `landmarks` for very long videos. `auto` is exact while the matrices fit
            into `memory_budget`.
        memory_budget: Memory for the matrices of the exact method, in bytes.

    Returns:
        Thread of each node, numbered by first appearance, (N,).

    Raises:
        InputError: An argument has a wrong shape, type or value.

    Examples:
        >>> import hiero, torch
        >>> directions = torch.eye(3)[[0, 0, 1, 1, 0, 0, 2, 2]]
        >>> hiero.spectral_cut(directions, 3, kappa=0.5).tolist()
        [0, 0, 1, 1, 0, 0, 2, 2]
    """
    _check(x, num_threads, kappa, form, method)
    x = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    num_clusters = min(num_threads, len(x))
    num_bytes = NUM_MATRICES * x.element_size() * len(x) ** 2
    is_exact = method == "exact" or (method == "auto" and num_bytes <= memory_budget)
    embed = embed_exactly if is_exact else embed_by_landmarks
    vectors = embed(x, num_clusters, kappa, form=form, random_state=random_state)
    return kmeans(
        vectors[None],
        num_clusters,
        random_state=random_state,
        num_restarts=KMEANS_RESTARTS,
        num_iterations=KMEANS_ITERATIONS,
    )[0]


def _check(x: Tensor, num_threads: int, kappa: float, form: str, method: str) -> None:
    if x.ndim != 2 or 0 in x.shape:
        raise InputError(f"x must be (N, D) without empty dimensions, got {tuple(x.shape)}")
    if not x.is_floating_point() or not torch.isfinite(x).all():
        raise InputError("x must hold finite floating-point numbers")
    if not isinstance(num_threads, int) or num_threads < 1:
        raise InputError(f"num_threads must be at least 1, got {num_threads}")
    if not 0 < kappa < float("inf"):
        raise InputError(f"kappa must be positive, got {kappa}")
    for name, value, choices in (("form", form, get_args(Form)), ("method", method, get_args(CutMethod))):
        if value not in choices:
            raise InputError(f"{name} must be one of {choices}, got {value!r}")
