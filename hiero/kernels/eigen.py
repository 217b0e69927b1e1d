"""Leading eigenvectors of symmetric matrices: small ones in batches, large ones through products alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MAX_DENSE_SIZE = 512  # rows; above, a few eigenvectors are cheaper to find than all
MAX_PRODUCTS = 120
NUM_PLAIN_PRODUCTS = 12  # before shift and invert
NUM_EXTRA_VECTORS = 4  # in a block, beyond those that are returned: they speed up convergence
MAX_BLOCKS = 10  # in the basis before a restart
MIN_TOLERANCE, MAX_TOLERANCE = 2e-6, 1e-4  # of the residual; single precision reaches about the first
RELATIVE_TOLERANCE = 0.005  # of the residual, against 1 − λ
SHIFT = 1e-4


def leading_eigenvectors(matrices: Tensor, num_vectors: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues and their eigenvectors, by whichever method is cheaper."""
    if matrices.shape[-1] <= max(MAX_DENSE_SIZE, 8 * num_vectors):
        return dense_eigenvectors(matrices, num_vectors)
    pairs = [krylov_eigenvectors(matrix, num_vectors, random_state) for matrix in matrices]
    return torch.stack([values for values, _ in pairs]), torch.stack([vectors for _, vectors in pairs])


def dense_eigenvectors(matrices: Tensor, num_vectors: int) -> tuple[Tensor, Tensor]:
    """The same by full decomposition, for any symmetric matrices (…, N, N): (…, V) and (…, N, V)."""
    values, vectors = torch.linalg.eigh(matrices)
    order = values.argsort(dim=-1, descending=True)[..., :num_vectors]
    return values.gather(-1, order), vectors.gather(-1, order[..., None, :].expand(*vectors.shape[:-1], num_vectors))


def krylov_eigenvectors(m: Tensor, num_vectors: int, random_state: int = 0) -> tuple[Tensor, Tensor]:
    """The same for one large matrix (N, N), without decomposing all of it: (V,) and (N, V).

    Block Krylov subspace with full orthogonalisation, Rayleigh-Ritz and thick restarts (Stewart,
    Matrix Algorithms II, ch. 5). Eigenvalues crowded below 1, as in a graph of almost separate
    pieces, make it slow; then new directions come from ((1 + ε)I − M)⁻¹ instead of M, which spreads
    the eigenvalues (shift and invert).
    """
    size, width = len(m), min(num_vectors + NUM_EXTRA_VECTORS, len(m))
    generator = torch.Generator().manual_seed(random_state)
    basis = torch.linalg.qr(torch.randn(size, width, generator=generator).to(m)).Q
    image = m @ basis
    invert: Callable[[Tensor], Tensor] | None = None
    for num_products in range(MAX_PRODUCTS):
        # Rayleigh-Ritz: the best eigenpairs within the basis. Done when ‖Mu − λu‖ is small against
        # 1 − λ of the last one.
        values, rotation = torch.linalg.eigh(_symmetrise(basis.mT @ image))
        ritz = rotation[:, -num_vectors:]
        residual = (image @ ritz - (basis @ ritz) * values[-num_vectors:]).norm(dim=0).max()
        tolerance = min(max(MIN_TOLERANCE, RELATIVE_TOLERANCE * (1 - float(values[-num_vectors]))), MAX_TOLERANCE)
        if residual < tolerance or basis.shape[1] + width > size:
            break
        if num_products == NUM_PLAIN_PRODUCTS:
            invert = _shift_and_invert(m)
        # Thick restart: go on from the best directions so far.
        if basis.shape[1] > MAX_BLOCKS * width or num_products == NUM_PLAIN_PRODUCTS:
            leading = rotation[:, -2 * width :]
            basis, image = basis @ leading, image @ leading
        block = image[:, -width:] if invert is None else invert(basis[:, -width:])
        for _ in range(2):  # once loses digits to cancellation, twice is enough
            block = torch.linalg.qr(block - basis @ (basis.mT @ block)).Q
        basis, image = torch.cat([basis, block], 1), torch.cat([image, m @ block], 1)
    else:  # it did not end by itself: the last block has not been looked at
        values, rotation = torch.linalg.eigh(_symmetrise(basis.mT @ image))
    return values[-num_vectors:].flip(0), basis @ rotation[:, -num_vectors:].flip(1)


def _shift_and_invert(m: Tensor) -> Callable[[Tensor], Tensor]:
    """x → ((1 + ε)I − M)⁻¹ x, roughly: only the direction of the result matters."""
    shifted = m.neg()
    shifted.diagonal().add_(1 + SHIFT)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    if failed:  # rounding pushed an eigenvalue above 1 + ε
        return lambda x: m @ x
    return lambda x: torch.cholesky_solve(x, factor)


def _symmetrise(matrix: Tensor) -> Tensor:
    """Without what rounding added."""
    return (matrix + matrix.mT) / 2
