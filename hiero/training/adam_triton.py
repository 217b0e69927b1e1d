"""Clipping and Adam for all parameters at once, as GPU kernels that read the gradients in place.

torch clips in a separate pass, needs gradients in the precision of the weights, and does not update
copies of the weights in half precision: five passes over memory instead of two. The plain version
is `clip_grad_norm_` and `torch.optim.Adam`, whose state this one reads and writes.
"""

# mypy: ignore-errors
from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from hiero.errors import InputError

BLOCK_SIZE = 512  # numbers per program; on an H200 1,024 take 1.3 times as long, 4,096 twice
NORM_EPS = 1e-6  # as in clip_grad_norm_
# Columns of the table of addresses, which has a row for each parameter. Address 0 means none.
NUM_COLUMNS = tl.constexpr(7)
PARAMETER, MEAN, SQUARE, COPY, RATE, STEP, GRADIENT = map(tl.constexpr, range(7))
SIZE = tl.constexpr(BLOCK_SIZE)


class ClippedAdam:
    """One update of all parameters of an optimizer, which a CUDA graph can capture."""

    def __init__(self, optimizer: torch.optim.Adam, copies: Mapping[int, Tensor], clip: float) -> None:
        self.optimizer, self.clip = optimizer, clip
        for name in ("betas", "eps", "amsgrad", "maximize"):
            if len({group[name] for group in optimizer.param_groups}) > 1 or optimizer.param_groups[0][name] is True:
                raise InputError(f"CapturedStep needs the same {name} for all parameters, no amsgrad, no maximize")
        rows, blocks, self.parameters, self.steps = [], [], [], []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                state = optimizer.state[parameter]
                if not state:  # as torch initialises it in the first step
                    state["step"] = torch.zeros((), device=parameter.device)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                copy = copies.get(id(parameter))
                tensors = (parameter, state["exp_avg"], state["exp_avg_sq"], copy, group["lr"], state["step"], None)
                rows.append([0 if x is None else x.data_ptr() for x in tensors])
                blocks += [(len(self.parameters), start) for start in range(0, parameter.numel(), BLOCK_SIZE)]
                self.parameters.append((parameter, copy))
                self.steps.append(state["step"])
        device = self.steps[0].device
        # Pinned memory, so that a CUDA graph can record the copy: gradients get their addresses in a step.
        self.host_table = torch.tensor(rows).pin_memory()
        self.table = self.host_table.to(device)
        self.sizes = torch.tensor([parameter.numel() for parameter, _ in self.parameters], device=device)
        decays = [group["weight_decay"] for group in optimizer.param_groups for _ in group["params"]]
        self.decays = torch.tensor(decays, dtype=torch.float32, device=device)
        self.blocks = torch.tensor(blocks, dtype=torch.int32, device=device)
        self.squares = torch.empty(len(blocks), device=device)

    @torch.no_grad()
    def step(self) -> None:
        """Clip the gradients, update the parameters, and drop the gradients."""
        group = self.optimizer.param_groups[0]
        for i, (parameter, copy) in enumerate(self.parameters):
            gradient = (parameter if copy is None else copy).grad
            self.host_table[i, GRADIENT.value] = 0 if gradient is None else gradient.data_ptr()
        # A recorded copy is read again at each replay. Otherwise it must finish before the next step writes.
        self.table.copy_(self.host_table, non_blocking=torch.cuda.is_current_stream_capturing())
        grid = (len(self.blocks),)
        _sum_squares[grid](self.table, self.sizes, self.blocks, self.squares)
        torch._foreach_add_(self.steps, 1)
        tensors = self.table, self.sizes, self.decays, self.blocks, self.squares.sum()
        is_decoupled = isinstance(self.optimizer, torch.optim.AdamW)
        _update[grid](*tensors, self.clip, NORM_EPS, *group["betas"], group["eps"], is_decoupled)
        for parameter, copy in self.parameters:
            (parameter if copy is None else copy).grad = None


@triton.jit
def _load_gradient(row, offset, inside):
    """The gradient in single precision; zeros for a parameter without one."""
    address = tl.load(row + GRADIENT)
    present = inside & (address != 0)
    if tl.load(row + COPY) != 0:
        gradient = tl.load(address.to(tl.pointer_type(tl.bfloat16)) + offset, mask=present, other=0.0).to(tl.float32)
    else:
        gradient = tl.load(address.to(tl.pointer_type(tl.float32)) + offset, mask=present, other=0.0)
    return gradient


@triton.jit
def _sum_squares(table, sizes, blocks, squares):
    block = tl.program_id(0)
    index = tl.load(blocks + 2 * block)
    offset = tl.load(blocks + 2 * block + 1) + tl.arange(0, SIZE)
    gradient = _load_gradient(table + index * NUM_COLUMNS, offset, offset < tl.load(sizes + index))
    tl.store(squares + block, tl.sum(gradient * gradient, axis=0))


@triton.jit
def _update(table, sizes, decays, blocks, square_sum, clip, norm_eps, beta_1, beta_2, eps, DECOUPLED: tl.constexpr):
    block = tl.program_id(0)
    index = tl.load(blocks + 2 * block)
    offset = tl.load(blocks + 2 * block + 1) + tl.arange(0, SIZE)
    row = table + index * NUM_COLUMNS
    inside = (offset < tl.load(sizes + index)) & (tl.load(row + GRADIENT) != 0)
    gradient = _load_gradient(row, offset, inside)
    gradient *= tl.minimum(clip / (tl.sqrt(tl.load(square_sum)) + norm_eps), 1.0)
    parameters = tl.load(row + PARAMETER).to(tl.pointer_type(tl.float32)) + offset
    means = tl.load(row + MEAN).to(tl.pointer_type(tl.float32)) + offset
    squares = tl.load(row + SQUARE).to(tl.pointer_type(tl.float32)) + offset
    rate = tl.load(tl.load(row + RATE).to(tl.pointer_type(tl.float32)))
    step = tl.load(tl.load(row + STEP).to(tl.pointer_type(tl.float32)))
    decay = tl.load(decays + index)
    value = tl.load(parameters, mask=inside, other=0.0)
    if DECOUPLED:
        value -= rate * decay * value
    else:
        gradient += decay * value
    mean = tl.load(means, mask=inside, other=0.0)
    mean += (1.0 - beta_1) * (gradient - mean)
    square = beta_2 * tl.load(squares, mask=inside, other=0.0) + (1.0 - beta_2) * gradient * gradient
    # 1 − βᵗ, because the averages start at zero.
    mean_correction = 1.0 - tl.exp2(step * tl.log2(beta_1))
    square_correction = 1.0 - tl.exp2(step * tl.log2(beta_2))
    value -= rate / mean_correction * mean / (tl.sqrt(square) / tl.sqrt(square_correction) + eps)
    tl.store(parameters, value, mask=inside)
    tl.store(means, mean, mask=inside)
    tl.store(squares, square, mask=inside)
    copy = tl.load(row + COPY)
    if copy != 0:
        tl.store(copy.to(tl.pointer_type(tl.bfloat16)) + offset, value.to(tl.bfloat16), mask=inside)
