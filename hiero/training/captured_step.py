"""The training step captured as a CUDA graph.

Forward and losses are compiled, then the whole step (gathering the batch, forward, both losses,
backward, clipping, Adam) is recorded once and replayed, without Python between the kernels. Shapes
are fixed when it is recorded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hiero.config import PAPER_OPERATOR
from hiero.errors import InputError
from hiero.model import normalised_cut_triton
from hiero.model.losses import Losses
from hiero.model.tdgc import Gate
from hiero.model.triton_support import HAS_TRITON
from hiero.training.narrated_windows import TrainingBatch
from hiero.training.step import Objective


class CapturedStep:
    """`TrainStep`, compiled and recorded once, then replayed.

    Call it with inputs of the example's shapes on the GPU. The next call overwrites the returned
    losses. Load the weights and the optimizer's state before recording: the graph holds their addresses.
    """

    NUM_WARM_UP = 3

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Adam,
        example: TrainingBatch | Tensor,
        *,
        clip: float = 1.0,
        read_batch: Callable[[Tensor], TrainingBatch] | None = None,
    ) -> None:
        check_capturable(objective, example)
        self.optimizer, self.inputs, self.read_batch = optimizer, example.clone(), read_batch
        half = HalfWeights(objective, torch.bfloat16) if objective.precision == torch.bfloat16 else None
        self.network: Objective = objective if half is None else half.module  # type: ignore[assignment]
        self.compute = torch.compile(self._compute, fullgraph=True, dynamic=False)
        from hiero.training.adam_triton import ClippedAdam  # needs Triton

        optimizer.zero_grad(set_to_none=True)
        self.adam = ClippedAdam(optimizer, {} if half is None else half.copies, clip)
        with _restored(objective, optimizer):
            # Compilation and lazy initialisation must precede recording and not run on the default stream.
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(self.NUM_WARM_UP):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.recorded = self._step()
        if half is not None:
            half.read_weights()

    def _step(self) -> Losses:
        """The recorded step: forward, both losses, backward, clipping, Adam."""
        losses = self.compute(self.inputs)
        losses.total.backward()
        self.adam.step()
        return losses

    def _compute(self, x: TrainingBatch | Tensor) -> Losses:
        batch = self.read_batch(x) if self.read_batch is not None and isinstance(x, Tensor) else x
        return self.network(batch)

    def __call__(self, x: TrainingBatch | Tensor) -> Losses:
        self.inputs.copy_(x)  # type: ignore[arg-type]
        self.graph.replay()
        return self.recorded


@contextmanager
def _restored(objective: Objective, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Restore weights, optimizer and random state afterwards, so that warm-up and recording train nothing."""
    weights = [p.detach().clone() for p in objective.parameters()]
    moments = {
        p: {k: v.clone() for k, v in state.items() if isinstance(v, Tensor)} for p, state in optimizer.state.items()
    }
    random_state = torch.cuda.get_rng_state()
    try:
        yield
    finally:
        # In place, because the graph holds the addresses of these tensors.
        with torch.no_grad():
            for parameter, value in zip(objective.parameters(), weights, strict=True):
                parameter.copy_(value)
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        value.copy_(moments[p][name]) if p in moments else value.zero_()
        torch.cuda.set_rng_state(random_state)


def check_capturable(objective: Objective, example: TrainingBatch | Tensor) -> None:
    """Raise InputError if the step cannot be captured."""
    config, cut = objective.model.config, normalised_cut_triton
    features = example if isinstance(example, Tensor) else example.features
    has_uniform_clock = objective.spacing_s is not None and not config.behaviour.rounded_times
    has_cut = config.sample_points == cut.SIZE and HAS_TRITON
    other_operator = config.operator != PAPER_OPERATOR
    problems = {
        "CapturedStep needs a CUDA GPU; use TrainStep elsewhere": not features.is_cuda,
        f"CapturedStep needs the operator {PAPER_OPERATOR}, got {config.operator}; use TrainStep": other_operator,
        "CapturedStep needs a uniform clock; use TrainStep for irregular times": not has_uniform_clock,
        "CapturedStep cannot search threads as the release does; use TrainStep": config.behaviour.mixed_threads,
        f"CapturedStep needs triton and sample_points={cut.SIZE}; use TrainStep otherwise": not has_cut,
        f"CapturedStep needs num_threads <= {cut.MAX_THREADS}; use TrainStep": config.num_threads > cut.MAX_THREADS,
        "CapturedStep needs frozen text vectors; use TrainStep to train a text encoder": objective.text is not None,
        "CapturedStep runs in one process; use TrainStep with several": objective.peers is not None,
    }
    for problem, applies in problems.items():
        if applies:
            raise InputError(problem)


class HalfWeights:
    """A copy of a module whose linear layers are in half precision. Everything else is shared with the original.

    Autocast runs a small kernel to cast each weight and each gradient. With this copy nothing is cast
    inside the step. The numbers are the same, except for the biases of TDGC layers, which kernels
    otherwise read in single precision.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        # A gate has one input row and is computed as a sum, which autocast leaves in single precision.
        gates = {id(layer) for gate in module.modules() if isinstance(gate, Gate) for layer in gate.modules()}
        linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear) and id(layer) not in gates]
        self._weights = {id(p): p for layer in linear for p in layer.parameters()}
        self.copies: dict[int, Tensor] = {
            key: nn.Parameter(p.detach().to(dtype), p.requires_grad) for key, p in self._weights.items()
        }
        shared = {id(x): x for x in (*module.parameters(), *module.buffers())}
        self.module = copy.deepcopy(module, memo={**shared, **self.copies})

    @torch.no_grad()
    def read_weights(self) -> None:
        """Update the copies from the original."""
        torch._foreach_copy_(list(self.copies.values()), list(self._weights.values()))
