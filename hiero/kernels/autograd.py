"""What gradients that are written out by hand have in common."""

from __future__ import annotations

import torch


def refuse_second_derivative() -> None:
    """Raise in a hand-written backward that is differentiated again: it would silently give a wrong result."""
    # grad mode is on in backward only with create_graph
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("second derivatives are not supported; call backward without create_graph")
