"""Batched symmetric eigendecomposition of 32 × 32 matrices in one GPU kernel.

torch.linalg.eigh waits for the host to read an error code, which a captured CUDA graph cannot do. This is the classical
parallel Jacobi method (Brent and Luk 1985): 16 disjoint rotations a round, 31 rounds a sweep, players moved around the
table between rounds so that each pair meets once. Elsewhere, and as its slow twin in tests, torch.linalg.eigh serves.
"""

from __future__ import annotations

import torch
from torch import Tensor

SIZE = 32
NUM_SWEEPS = 6  # 5 reach rounding on every similarity matrix we tried

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch has no triton
    triton = None

HAS_TRITON = triton is not None


def is_available(matrix: Tensor) -> bool:
    return HAS_TRITON and matrix.is_cuda and matrix.shape[-1] == SIZE and matrix.dtype == torch.float32


def eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (…, 32) in no order, eigenvectors (…, 32, 32) in columns."""
    values, vectors = _eigh(matrix.reshape(-1, SIZE, SIZE).contiguous())
    return values.reshape(matrix.shape[:-1]), vectors.reshape(matrix.shape)


@torch.library.custom_op("hiero::jacobi_eigh", mutates_args=())
def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = torch.empty_like(matrix[..., 0]), torch.empty_like(matrix)
    _rotate[(len(matrix),)](matrix, values, vectors, SIZE, 31 * NUM_SWEEPS, num_warps=4)
    return values, vectors


@_eigh.register_fake
def _(matrix: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(matrix[..., 0]), torch.empty_like(matrix)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _rotate(matrix, values, vectors, N: tl.constexpr, ROUNDS: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
        half: tl.constexpr = N // 2
        row = tl.arange(0, N)[:, None]
        col = tl.arange(0, N)[None, :]
        at = tl.program_id(0) * N * N + row * N + col
        a = tl.load(matrix + at)
        v = tl.where(row == col, 1.0, 0.0)
        # After its rotation, the player in column `seat` moves to column `col` (0 stays; the others go round).
        seat = tl.where(
            col == 0, 0, tl.where(col == 1, half, tl.where(col < half, col - 1, tl.where(col < N - 1, col + 1, half - 1)))
        )
        own, other = seat == row, seat == (row ^ half)
        diagonal, partner = row == col, col == (row ^ half)
        for _ in range(ROUNDS):
            mine = tl.sum(tl.where(diagonal, a, 0.0), axis=0)[None, :]  # a_cc, by column
            theirs = tl.sum(tl.where(partner, mine, 0.0), axis=1)[:, None]  # a of the partner, by row
            here = tl.sum(tl.where(diagonal, a, 0.0), axis=1)[:, None]
            # Rounding makes a_pq and a_qp drift apart; partners must see the same number or the rotation is none.
            across = tl.sum(tl.where(partner, a, 0.0), axis=0)[None, :]
            cross = 0.5 * tl.sum(tl.where(partner, a, 0.0) + tl.where(diagonal, across, 0.0), axis=1)[:, None]
            gap = theirs - here
            sign = tl.where(gap > 0, 1.0, tl.where(gap < 0, -1.0, tl.where(row < half, 1.0, -1.0)))
            # tan of the angle: 2a_pq / (|gap| + √(gap² + 4a_pq²)), safe when both vanish
            root = tl.sqrt(gap * gap + 4.0 * cross * cross)
            tangent = sign * 2.0 * cross / tl.maximum(tl.abs(gap) + root, 1e-30)
            cosine = 1.0 / tl.sqrt(1.0 + tangent * tangent)
            sine = tangent * cosine
            q = tl.where(own, cosine, 0.0) + tl.where(other, sine, 0.0)
            a = tl.dot(tl.trans(q), tl.dot(a, q, input_precision="ieee"), input_precision="ieee")
            v = tl.dot(v, q, input_precision="ieee")
        tl.store(vectors + at, v)
        tl.store(values + tl.program_id(0) * N + tl.arange(0, N), tl.sum(tl.where(diagonal, a, 0.0), axis=0))
