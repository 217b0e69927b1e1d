"""Triton, or stand-ins that let modules with kernels be imported where Triton is missing, as in CPU builds of torch."""

from __future__ import annotations

from typing import Any

jit: Any
constexpr: Any

try:
    import triton
    import triton.language as tl
    from triton import jit
    from triton.language import constexpr

    HAS_TRITON = True
except ImportError:
    triton = tl = None
    HAS_TRITON = False

    def jit(*_: Any, **__: Any) -> Any:
        return lambda function: function

    def constexpr(value: Any) -> Any:
        return value
