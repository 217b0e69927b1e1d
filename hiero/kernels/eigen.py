"""Leading eigenvectors of symmetric matrices: small ones in batches, large ones through products alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

DECOMPOSE_UP_TO = 512  # rows; above, a few eigenvectors are cheaper to find than all
NUM_PRODUCTS = 120
PATIENCE = 12  # plain products before shift and invert
MAX_BLOCKS = 10  # in the basis before a restart
FLOOR, CEILING = 2e-6, 1e-4  # of the accepted residual; single precision reaches about the first
SHIFT = 1e-4


def top_eigenvectors(matrices: Tensor, num: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """Largest `num` eigenvalues (B, num), descending, and their eigenvectors (B, N, num), by whichever way is cheaper.

    Args:
        matrices: Symmetric, with eigenvalues of at most 1, (B, N, N).
        num: How many.
        random_state: Seed of the iterative way.
    """
    if matrices.shape[-1] <= max(DECOMPOSE_UP_TO, 8 * num):
        return leading_eigenvectors(matrices, num)
    pairs = [krylov_eigenvectors(matrix, num, random_state) for matrix in matrices]
    return torch.stack([values for values, _ in pairs]), torch.stack([vectors for _, vectors in pairs])


def leading_eigenvectors(matrix: Tensor, num: int) -> tuple[Tensor, Tensor]:
    """Largest `num` eigenvalues (…, num), descending, and their eigenvectors (…, N, num), by full decomposition."""
    values, vectors = torch.linalg.eigh(matrix)
    order = values.argsort(dim=-1, descending=True)[..., :num]
    return values.gather(-1, order), vectors.gather(-1, order[..., None, :].expand(*vectors.shape[:-1], num))


def krylov_eigenvectors(m: Tensor, num: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """The same for one large symmetric matrix (N, N) whose eigenvalues are at most 1, without decomposing all of it.

    Block Krylov subspace with full orthogonalisation, Rayleigh-Ritz and thick restarts (Stewart, Matrix Algorithms II, ch. 5).
    Eigenvalues crowded below 1, as in a graph of almost separate pieces, make it slow; then directions are taken through
    ((1 + ε)I − M)⁻¹ instead of M, which spreads them (shift and invert). Ends when residuals ‖Mu − λu‖ are small against
    1 − λ of the last wanted eigenvalue.
    """
    size, width = len(m), min(num + 4, len(m))
    generator = torch.Generator().manual_seed(random_state)
    basis = torch.linalg.qr(torch.randn(size, width, generator=generator).to(m)).Q
    image = m @ basis
    turn: Callable[[Tensor], Tensor] | None = None
    for product in range(NUM_PRODUCTS):
        values, rotation = torch.linalg.eigh(_symmetric(basis.mT @ image))
        best = rotation[:, -num:]
        residual = (image @ best - (basis @ best) * values[-num:]).norm(dim=0).max()
        if residual < min(max(FLOOR, 0.005 * (1 - float(values[-num]))), CEILING) or basis.shape[1] + width > size:
            break
        if product == PATIENCE:
            turn = _inverse(m)
        if basis.shape[1] > MAX_BLOCKS * width or product == PATIENCE:  # keep the best directions found so far
            keep = rotation[:, -2 * width :]
            basis, image = basis @ keep, image @ keep
        block = image[:, -width:] if turn is None else turn(basis[:, -width:])
        for _ in range(2):  # once loses digits to cancellation, twice is enough
            block = torch.linalg.qr(block - basis @ (basis.mT @ block)).Q
        basis, image = torch.cat([basis, block], 1), torch.cat([image, m @ block], 1)
    values, rotation = torch.linalg.eigh(_symmetric(basis.mT @ image))
    return values[-num:].flip(0), basis @ rotation[:, -num:].flip(1)


def _inverse(m: Tensor) -> Callable[[Tensor], Tensor]:
    """x → ((1 + ε)I − M)⁻¹ x, roughly: it only has to point the right way."""
    shifted = m.neg()
    shifted.diagonal().add_(1 + SHIFT)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if failed:  # rounding pushed an eigenvalue above 1 + ε
        return lambda x: m @ x
    return lambda x: torch.cholesky_solve(x, factor)


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2
