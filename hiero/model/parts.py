"""The replaceable parts of the network: operator, pooling and clustering.

`ModelConfig` names them, and a saved model records the names. Other packages add parts as entry
points, and scripts add them with `hiero.plugins.register`:

    register("hiero.operators", "my-operator", MyOperator)
    HiERO(ModelConfig(input_size=256, operator="my-operator"))

docs/guides/plugins.md has a complete example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from hiero.config import ModelConfig
from hiero.errors import InputError

Operator = Callable[[ModelConfig], nn.Module]
"""An operator is a class built from the configuration: a layer of width D = `hidden_size`.

Its forward takes the nodes of a batch of videos and their neighbours in time,

    forward(x, neighbours):   x (B, T, D), `Neighbours`  →  (B, T, D)

and computes for each node i some function of its own features and those of its neighbours N(i),

    x'ᵢ = f(xᵢ, {(xⱼ, pᵢ − pⱼ) : j ∈ N(i)})

where p is the time in seconds, or the rank inside a thread. Padding (`~neighbours.mask`) may hold
any values, which must not influence other nodes. A stage puts LeakyReLU between its layers and
LayerNorm after the last.
"""

Pooling = Callable[[ModelConfig], nn.Module]
"""A pooling is a class built from the configuration, one instance for each level of the encoder.

    forward(x, mask):   x (B, T, D), mask (B, T)  →  (B, ⌈T/2⌉, D)

Row k of the result belongs to node 2k, whose time it keeps.
"""


class ThreadClustering(Protocol):
    """A function that divides nodes into threads. It runs without gradients."""

    def __call__(self, x: Tensor, config: ModelConfig) -> Tensor:
        """x (B, S, D) → labels (B, S), integers in 0 … num_threads − 1.

        x holds `sample_points` nodes spread evenly over each video; with `sample_points` None it
        holds all nodes of one video, (1, T, D).
        """


def check_shape(part: str, x: Tensor, expected: tuple[int, ...]) -> None:
    """Check the output of a part of another package."""
    if x.shape != expected:
        raise InputError(f"{part} must return shape {tuple(expected)}, got {tuple(x.shape)}")
