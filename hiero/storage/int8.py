"""Weights in 8 bits: a matrix as whole numbers and one scale for each of its rows, a quarter of the
size of single precision.

    W#int8 (n, m) int8,   W#scale (n, 1) float32,   W = W#int8 · W#scale

Works on numpy's arrays and on torch's tensors alike.
"""

from __future__ import annotations

from typing import Any

INT8_MAX = 127
MIN_SIZE = 4096  # smaller arrays stay as they are
VALUES, SCALE = "#int8", "#scale"


def quantise(weights: dict[str, Any]) -> dict[str, Any]:
    """Large matrices in 8 bits. Tensors of torch; what is not a large matrix stays in half precision."""
    out = {}
    for name, value in weights.items():
        if value.ndim != 2 or value.numel() < MIN_SIZE:
            out[name] = value.half() if value.is_floating_point() else value
            continue
        scale = value.float().abs().amax(1, keepdim=True).clamp_min(1e-12) / INT8_MAX
        out[name + VALUES] = (value.float() / scale).round().char()
        out[name + SCALE] = scale
    return out


def dequantise(weights: dict[str, Any]) -> dict[str, Any]:
    """The reverse of `quantise`, in single precision; what is not in 8 bits stays as it is."""
    out = {}
    for name, value in weights.items():
        stem = name.removesuffix(VALUES)
        if name.endswith(VALUES) and _fits(value, weights.get(stem + SCALE)):
            out[stem] = value * weights[stem + SCALE]
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) + VALUES in weights):
            out[name] = value
    return out


def _fits(values: Any, scale: Any) -> bool:
    return scale is not None and values.ndim == 2 and tuple(scale.shape) == (len(values), 1)
