"""The replaceable part of the network: its operator.

`ModelConfig` names it, and a saved model records the name. Other packages add operators as entry
points, and scripts add them with `hiero.plugins.register`:

    register("hiero.operators", "my-operator", MyOperator)
    HiERO(ModelConfig(input_size=256, operator="my-operator"))

docs/guides/plugins.md has a complete example.
"""

from __future__ import annotations

from collections.abc import Callable

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


def check_shape(operator: str, x: Tensor, expected: tuple[int, ...]) -> None:
    """Check the output of an operator of another package."""
    if x.shape != expected:
        raise InputError(f"operator {operator} must return shape {tuple(expected)}, got {tuple(x.shape)}")
