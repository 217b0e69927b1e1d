"""What do our GPU kernels gain in the whole job, compared with torch's own operations?

python -m benchmarks.kernels        on an NVIDIA GPU

`ClippedAdam` is compared with torch's fused Adam and its clipping in the captured training step, and
the kernels of the video towers with torch's operations in a forward pass of each tower in bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.step import SPACING_S, make_inputs, make_model, median_ms
from hiero.config import LossConfig
from hiero.networks import egovlp, lavila, omnivore, video_kernels
from hiero.training.captured_step import CapturedStep
from hiero.training.step import Objective, make_adam

NUM_REPEATS = 100
BATCH = 16  # windows that go through a tower together


class TorchAdam:
    """The interface of `ClippedAdam` with torch's own functions."""

    def __init__(self, optimizer: torch.optim.Optimizer, copies: dict[int, Tensor], clip: float) -> None:
        self.optimizer, self.clip = optimizer, clip
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.copied = [(p, copies[id(p)]) for p in parameters if id(p) in copies]
        self.parameters = parameters
        for group in optimizer.param_groups:
            group.update(fused=True, capturable=True, foreach=False)

    @torch.no_grad()
    def step(self) -> None:
        for parameter, copy in self.copied:
            parameter.grad = None if copy.grad is None else copy.grad.float()
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip, foreach=True)
        self.optimizer.step()
        torch._foreach_copy_([copy for _, copy in self.copied], [parameter for parameter, _ in self.copied])
        for parameter, copy in self.copied:
            parameter.grad = copy.grad = None
        self.optimizer.zero_grad(set_to_none=True)


def time_step(batch: int, adam: type) -> float:
    """Milliseconds of a captured step with an optimizer."""
    from hiero.training import adam_triton  # needs Triton

    adam_triton.ClippedAdam = adam  # type: ignore[misc]
    model, inputs = make_model("cuda"), make_inputs(batch, "cuda")
    step = CapturedStep(Objective(model, LossConfig(), SPACING_S, precision=torch.bfloat16), make_adam(model), inputs)
    return median_ms(step, inputs, NUM_REPEATS, "cuda")


def time_tower(make: Callable[[], torch.nn.Module], num_frames: int) -> float:
    """Milliseconds of a forward pass of a tower in bfloat16."""
    tower = make().cuda().to(torch.bfloat16).eval()
    clips = torch.randn(BATCH, num_frames, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    times = []
    with torch.inference_mode():
        for _ in range(15):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            tower(clips)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
    return 1e3 * sorted(times)[len(times) // 2]


def show(name: str, ours: float, library: float) -> None:
    print(f"| {name} | {ours:.2f} | {library:.2f} | {100 * (library / ours - 1):.0f} % |", flush=True)


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    print("| job | ours, ms | torch, ms | gain |\n|---|---|---|---|")
    from hiero.training.adam_triton import ClippedAdam  # needs Triton

    kernels = video_kernels.video_kernels
    for name, make, num_frames in (
        ("EgoVLP", lambda: egovlp.untrained(num_frames=16), 16),
        ("LaViLa-L", lambda: lavila.untrained(num_frames=4), 4),
        ("Omnivore-L", lambda: omnivore.untrained("L"), 16),
    ):
        video_kernels.video_kernels = kernels
        ours = time_tower(make, num_frames)
        video_kernels.video_kernels = lambda _: None
        show(f"{name}, {BATCH} windows", ours, time_tower(make, num_frames))
    for batch in (8, 64):
        show(f"training step, batch {batch}", time_step(batch, ClippedAdam), time_step(batch, TorchAdam))


if __name__ == "__main__":
    main()
