"""Triton, or stand-ins that let modules with kernels be imported where Triton is missing, as in CPU builds of torch."""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

__all__ = ["HAS_TRITON", "constexpr", "jit", "tl", "triton"]

HAS_TRITON = triton is not None


def _ignore_kernel(*_: Any, **__: Any) -> Any:
    return lambda function: function


jit: Any = triton.jit if HAS_TRITON else _ignore_kernel
constexpr: Any = tl.constexpr if HAS_TRITON else lambda value: value
