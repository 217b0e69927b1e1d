"""The normalised cut of a few samples per video, inside the network, and the similarity matrix of every cut.

    S = exp((cos − 1)/κ),   M = D^−½ S D^−½,   threads = K-Means on the K leading eigenvectors of M

`cut_samples` uses one Triton kernel (`normalised_cut_triton`) if it can run, otherwise torch
operations. `leading_eigenvectors` decomposes small matrices in batches and finds those of large
ones by products alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from hiero.model import normalised_cut_triton
from hiero.model.kmeans import kmeans

Form = Literal["sklearn", "training"]
MAX_DENSE_SIZE = 512  # rows; in larger matrices, a few eigenvectors are cheaper than all
MAX_PRODUCTS = 120
NUM_PLAIN_PRODUCTS = 12  # products before shift and invert
NUM_EXTRA_VECTORS = 4  # more vectors in a block than are returned, which speeds up convergence
MAX_BLOCKS = 10  # blocks in the basis before a restart
MIN_TOLERANCE, MAX_TOLERANCE = 2e-6, 1e-4  # residual; single precision reaches about the first
RELATIVE_TOLERANCE = 0.005  # residual relative to 1 − λ
SHIFT = 1e-4
NUM_STRIPES = 12  # stripes in which a large similarity matrix is computed
MAX_EXPONENT = 80.0  # exp(−80) is still a normal number in single precision
NUM_RESTARTS, NUM_ITERATIONS = 8, 10  # K-Means inside the network


def leading_eigenvectors(matrices: Tensor, num_vectors: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues and their eigenvectors, by the cheaper method."""
    if matrices.shape[-1] <= max(MAX_DENSE_SIZE, 8 * num_vectors):
        return dense_eigenvectors(matrices, num_vectors)
    pairs = [krylov_eigenvectors(matrix, num_vectors, random_state) for matrix in matrices]
    return torch.stack([values for values, _ in pairs]), torch.stack([vectors for _, vectors in pairs])


def dense_eigenvectors(matrices: Tensor, num_vectors: int) -> tuple[Tensor, Tensor]:
    """`leading_eigenvectors` by full decomposition of symmetric matrices (…, N, N): (…, V) and (…, N, V)."""
    values, vectors = torch.linalg.eigh(matrices)
    order = values.argsort(dim=-1, descending=True)[..., :num_vectors]
    return values.gather(-1, order), vectors.gather(-1, order[..., None, :].expand(*vectors.shape[:-1], num_vectors))


def krylov_eigenvectors(m: Tensor, num_vectors: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """`leading_eigenvectors` of one large matrix (N, N) without a full decomposition: (V,) and (N, V).

    Block Krylov subspace with full orthogonalisation, Rayleigh-Ritz and thick restarts (Stewart,
    Matrix Algorithms II, ch. 5). Eigenvalues crowded below 1, as in a graph of almost separate
    parts, make it slow. New directions then come from ((1 + ε)I − M)⁻¹ instead of M, which spreads
    the eigenvalues (shift and invert).
    """
    size, width = len(m), min(num_vectors + NUM_EXTRA_VECTORS, len(m))
    generator = torch.Generator().manual_seed(random_state)
    basis = torch.linalg.qr(torch.randn(size, width, generator=generator).to(m)).Q
    image = m @ basis
    invert: Callable[[Tensor], Tensor] | None = None
    for num_products in range(MAX_PRODUCTS):
        # Rayleigh-Ritz: the best eigenpairs within the basis, until ‖Mu − λu‖ is small against 1 − λ
        # of the last one.
        values, rotation = torch.linalg.eigh(_symmetrise(basis.mT @ image))
        ritz = rotation[:, -num_vectors:]
        residual = (image @ ritz - (basis @ ritz) * values[-num_vectors:]).norm(dim=0).max()
        tolerance = min(max(MIN_TOLERANCE, RELATIVE_TOLERANCE * (1 - float(values[-num_vectors]))), MAX_TOLERANCE)
        if residual < tolerance or basis.shape[1] + width > size:
            break
        if num_products == NUM_PLAIN_PRODUCTS:
            invert = _shift_and_invert(m)
        # Thick restart: continue from the best directions so far.
        if basis.shape[1] > MAX_BLOCKS * width or num_products == NUM_PLAIN_PRODUCTS:
            leading = rotation[:, -2 * width :]
            basis, image = basis @ leading, image @ leading
        block = image[:, -width:] if invert is None else invert(basis[:, -width:])
        for _ in range(2):  # one pass loses digits to cancellation
            block = torch.linalg.qr(block - basis @ (basis.mT @ block)).Q
        basis, image = torch.cat([basis, block], 1), torch.cat([image, m @ block], 1)
    else:  # not converged: include the last block
        values, rotation = torch.linalg.eigh(_symmetrise(basis.mT @ image))
    return values[-num_vectors:].flip(0), basis @ rotation[:, -num_vectors:].flip(1)


def _shift_and_invert(m: Tensor) -> Callable[[Tensor], Tensor]:
    """x → ((1 + ε)I − M)⁻¹ x; only the direction of the result matters."""
    shifted = m.neg()
    shifted.diagonal().add_(1 + SHIFT)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if failed:  # rounding pushed an eigenvalue above 1 + ε
        return lambda x: m @ x
    return lambda x: torch.cholesky_solve(x, factor)


def _symmetrise(matrix: Tensor) -> Tensor:
    """Remove the asymmetry of rounding."""
    return (matrix + matrix.mT) / 2


def cut_samples(x: Tensor, num_threads: int, kappa: float, random_state: int) -> Tensor:
    """Thread of each sample by the cut in its `training` form."""
    settings = random_state, NUM_RESTARTS, NUM_ITERATIONS
    if normalised_cut_triton.is_available(x, num_threads):
        return normalised_cut_triton.cut_samples_triton(x, num_threads, kappa, *settings)[0]
    m, _ = normalise_similarity(log_similarity(x, kappa, "training"), kappa)
    _, vectors = leading_eigenvectors(m, num_threads)
    can_wait = not (x.is_cuda or torch.compiler.is_compiling())  # early stopping waits for the host
    return kmeans(
        vectors,
        num_threads,
        random_state=random_state,
        num_restarts=NUM_RESTARTS,
        num_iterations=NUM_ITERATIONS,
        early_stop=can_wait,
    )


def log_similarity(x: Tensor, kappa: float, form: Form) -> Tensor:
    """log S = (cos − 1)/κ. A zero vector has cosine 0 with everything."""
    x = F.normalize(x, dim=-1)
    num_nodes = x.shape[1]
    num_rows = _stripe_rows(num_nodes)
    log_s = x.new_empty(len(x), num_nodes, num_nodes)
    for i in range(0, num_nodes, num_rows):  # compute the upper half, mirror the rest
        stripe = (x[:, i : i + num_rows] @ x[:, i:].mT).sub_(1).div_(kappa)
        log_s[:, i : i + num_rows, i:] = stripe
        log_s[:, i + num_rows :, i : i + num_rows] = stripe[..., num_rows:].mT
    if form == "sklearn":
        log_s.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return log_s


def _stripe_rows(num_rows: int) -> int:
    """Rows of a large matrix that are processed at once."""
    return num_rows if num_rows <= MAX_DENSE_SIZE else -(-num_rows // NUM_STRIPES)


def normalise_similarity(log_s: Tensor, kappa: float) -> tuple[Tensor, Tensor]:
    """M = D^−½ S D^−½, and the log of the degrees."""
    if 2 / kappa < MAX_EXPONENT:  # cosines differ by 2 at most
        s = log_s.exp_()
        degree = s.sum(-1)
        scale = torch.where(degree > 0, degree.rsqrt(), 0)  # 0 for a node without neighbours
        return s.mul_(scale[..., :, None]).mul_(scale[..., None, :]), torch.where(degree > 0, degree.log(), 0)
    # At small κ, degrees underflow, but their logs do not.
    log_degree = torch.cat([rows.logsumexp(-1) for rows in log_s.split(_stripe_rows(log_s.shape[1]), dim=1)], dim=1)
    log_degree = torch.where(log_degree.isfinite(), log_degree, 0)  # 0 for a node without neighbours
    return log_s.sub_(log_degree[..., :, None] / 2).sub_(log_degree[..., None, :] / 2).exp_(), log_degree
