"""The training step captured as a CUDA graph.

Forward and losses are compiled, then the whole step (gathering the batch, forward, both losses,
backward, clipping, Adam) is recorded once and replayed: no Python and no launches between kernels.
Shapes are fixed at capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from hiero.config import ModelConfig
from hiero.data.narrated_windows import TrainingBatch
from hiero.errors import InputError
from hiero.kernels import normalised_cut_triton
from hiero.model.losses import Losses
from hiero.training.half_weights import HalfWeights
from hiero.training.kernel_compilation import kernels_compiled_beside
from hiero.training.step import Objective, TrainStep


class CapturedStep(TrainStep):
    """`TrainStep`, compiled and recorded once, then replayed.

    Call it with inputs of the example's shapes, on the GPU. The losses that it returns are
    overwritten by the next call. Load weights and the optimizer's state before recording, not
    after: the graph works on the tensors that it saw.
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
        super().__init__(objective, optimizer, clip=clip)
        check_capturable(objective, example)
        self.inputs, self.read_batch = example.clone(), read_batch
        half = HalfWeights(objective, torch.bfloat16) if objective.precision == torch.bfloat16 else None
        self.network: Objective = objective if half is None else half.module  # type: ignore[assignment]
        self.compute = torch.compile(self._compute, fullgraph=True, dynamic=False)
        from hiero.kernels.adam_triton import ClippedAdam  # here, where Triton is known to be installed

        optimizer.zero_grad(set_to_none=True)
        self.adam = ClippedAdam(optimizer, {} if half is None else half.copies, clip)
        with _restored(objective, optimizer), kernels_compiled_beside(objective, optimizer):
            # Compilation and lazy initialisation must be over before recording, and must not run on the default stream.
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
        """What is recorded: forward, both losses, backward, clipping, Adam."""
        losses = self.compute(self.inputs)
        losses.total.backward()
        self.adam.step()
        return losses

    def _compute(self, x: TrainingBatch | Tensor) -> Losses:
        batch = self.read_batch(x) if self.read_batch is not None and isinstance(x, Tensor) else x
        return self.network(batch)

    def __call__(self, x: TrainingBatch | Tensor) -> Losses:  # type: ignore[override]
        self.inputs.copy_(x)  # type: ignore[arg-type]
        self.graph.replay()
        return self.recorded


@contextmanager
def _restored(objective: Objective, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Weights, optimizer and random state are afterwards as before, so that warm-up and recording train nothing."""
    weights = [p.detach().clone() for p in objective.parameters()]
    moments = {
        p: {k: v.clone() for k, v in state.items() if isinstance(v, Tensor)} for p, state in optimizer.state.items()
    }
    random_state = torch.cuda.get_rng_state()
    try:
        yield
    finally:
        # In place: the graph holds the addresses of these tensors.
        with torch.no_grad():
            for parameter, value in zip(objective.parameters(), weights, strict=True):
                parameter.copy_(value)
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        value.copy_(moments[p][name]) if p in moments else value.zero_()
        torch.cuda.set_rng_state(random_state)


def describe_other_parts(config: ModelConfig) -> str:
    """Why a network with these parts runs on the plain path."""
    parts = ", ".join(f"{kind} {name}" for kind, name in config.other_parts.items())
    return f"the captured step and the GPU kernels serve the paper's operator, pooling and clustering, not {parts}"


def check_capturable(objective: Objective, example: TrainingBatch | Tensor) -> None:
    """Check that no part of the step depends on the data, on other processes or on what the GPU lacks."""
    config = objective.model.config
    if not (example if isinstance(example, Tensor) else example.features).is_cuda:
        raise InputError("a captured step needs a CUDA GPU; use TrainStep elsewhere")
    if config.other_parts:
        raise InputError(f"{describe_other_parts(config)}; use TrainStep for others")
    if objective.spacing_s is None or config.behaviour.rounded_times:
        raise InputError("a captured step needs a uniform clock; use TrainStep for irregular times")
    if config.behaviour.mixed_threads:
        raise InputError(
            "a captured step cannot search threads as the release does; use TrainStep or corrected behaviour"
        )
    if config.sample_points != normalised_cut_triton.SIZE or not normalised_cut_triton.HAS_TRITON:
        raise InputError(
            f"a captured step needs triton and sample_points={normalised_cut_triton.SIZE}; use TrainStep otherwise"
        )
    if config.num_threads > normalised_cut_triton.MAX_THREADS:
        raise InputError(
            f"a captured step cuts into {normalised_cut_triton.MAX_THREADS} threads at most; use TrainStep for more"
        )
    if objective.text is not None:
        raise InputError("a captured step needs frozen text vectors; use TrainStep to train a text encoder")
    if objective.peers is not None:
        raise InputError("a captured step runs in one process; use TrainStep with several")
