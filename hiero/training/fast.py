"""One training step, plain or captured.

The captured one compiles forward and losses, records the whole step (forward, both losses, backward, clipping, Adam) as a
CUDA graph and replays it: no Python and no launches between kernels. Shapes are fixed at capture.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from hiero.config import LossConfig
from hiero.errors import InputError
from hiero.model import jacobi
from hiero.model.hiero import HiERO, Losses


@dataclass(frozen=True)
class StepInputs:
    """A padded batch of windows with the text vectors of their narrations."""

    features: Tensor
    mask: Tensor
    times: Tensor
    texts: Tensor
    text_times: Tensor
    text_mask: Tensor

    def copy_(self, other: StepInputs) -> None:
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine.shape != theirs.shape:  # copy_ would broadcast
                raise InputError(
                    f"{field.name} is {tuple(theirs.shape)}, the step was captured with {tuple(mine.shape)}; "
                    "pad with masked rows or leave the last batch out"
                )
            mine.copy_(theirs, non_blocking=True)

    def clone(self) -> StepInputs:
        return StepInputs(*(getattr(self, field.name).clone() for field in fields(self)))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Weight decay for matrices, none for 1-d parameters."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    free = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    return [{"params": free, "weight_decay": 0.0}, {"params": decayed, "weight_decay": weight_decay}]


def make_adam(model: nn.Module, lr: float = 1e-5, weight_decay: float = 1e-5) -> torch.optim.Adam:
    """The paper's Adam, fused; on a GPU its learning rate is a tensor, so that a captured step follows the schedule."""
    device = next(model.parameters()).device
    cuda = device.type == "cuda"
    rate = torch.tensor(lr, device=device) if cuda else lr
    return torch.optim.Adam(parameter_groups(model, weight_decay), lr=rate, fused=True, capturable=cuda)


class TrainStep:
    """The step, readable: what the captured one must agree with."""

    def __init__(
        self,
        model: HiERO,
        optimizer: torch.optim.Optimizer,
        losses: LossConfig,
        spacing_s: float | None,
        *,
        clip: float = 1.0,
        precision: torch.dtype | None = None,
    ) -> None:
        self.model, self.optimizer, self.losses, self.spacing_s = model, optimizer, losses, spacing_s
        self.clip, self.precision = clip, precision
        self.compute: Callable[[StepInputs], Losses] = self.compute_losses

    def compute_losses(self, x: StepInputs) -> Losses:
        with torch.autocast(x.features.device.type, dtype=self.precision, enabled=self.precision is not None):
            levels = self.model.enrich(x.features, x.mask, x.times, self.spacing_s, threads=True)
            return self.model.losses(levels, x.texts, x.text_times, x.text_mask, self.losses)

    def __call__(self, x: StepInputs) -> Losses:
        self.optimizer.zero_grad(set_to_none=True)
        losses = self.compute(x)
        losses.total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return losses


class CapturedStep(TrainStep):
    """The same step compiled and recorded once, then replayed. Call it with inputs of the example's shapes, on the GPU.

    Recording runs the step a few times; weights, optimizer and random state are put back afterwards, so nothing is trained twice.
    The losses it returns are overwritten by the next call. Load an optimizer's state before recording, not after: the graph
    works on the tensors that it saw.
    """

    NUM_WARM_UP = 3

    def __init__(self, model: HiERO, optimizer: torch.optim.Optimizer, losses: LossConfig, spacing_s: float | None,
                 example: StepInputs, *, clip: float = 1.0, precision: torch.dtype | None = torch.bfloat16) -> None:  # fmt: skip
        super().__init__(model, optimizer, losses, spacing_s, clip=clip, precision=precision)
        self._check(example)
        self.inputs = example.clone()
        self.compute = torch.compile(self.compute_losses, fullgraph=True, dynamic=False)
        kept = [p.detach().clone() for p in model.parameters()]
        kept_state = {p: {k: v.clone() for k, v in s.items() if isinstance(v, Tensor)} for p, s in optimizer.state.items()}
        random_state = torch.cuda.get_rng_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(self.NUM_WARM_UP):
                super().__call__(self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.recorded = super().__call__(self.inputs)
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), kept, strict=True):
                parameter.copy_(value)
            for p, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        value.copy_(kept_state[p][name]) if p in kept_state else value.zero_()
        torch.cuda.set_rng_state(random_state)

    def _check(self, example: StepInputs) -> None:
        """What depends on the data cannot be recorded."""
        config = self.model.config
        if not example.features.is_cuda:
            raise InputError("a captured step needs a CUDA GPU; use TrainStep elsewhere")
        if self.spacing_s is None or config.behaviour.rounded_times:
            raise InputError("a captured step needs a uniform clock; use TrainStep for irregular times")
        if config.behaviour.mixed_threads:
            raise InputError("a captured step cannot search threads as the release does; use TrainStep or corrected behaviour")
        if config.sample_points != jacobi.SIZE or not jacobi.HAS_TRITON:
            raise InputError(f"a captured step needs triton and sample_points={jacobi.SIZE}; use TrainStep otherwise")

    def __call__(self, x: StepInputs) -> Losses:
        self.inputs.copy_(x)
        self.graph.replay()
        return self.recorded
