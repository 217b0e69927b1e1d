"""Video towers, written out: every pair of tokens by a rule that can be read, no windows that are cut,
no fused kernels.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F


def attention(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """One head (n, d); visible[i, j]: i may look at j."""
    scores = (q @ k.mT) / q.shape[1] ** 0.5 + bias
    return scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v


def _linear(x: Tensor, state: dict[str, Tensor], name: str) -> Tensor:
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", torch.zeros(()).to(x))


def _norm(x: Tensor, state: dict[str, Tensor], name: str, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], eps)


def _heads(
    x: Tensor, state: dict[str, Tensor], name: str, width: int, visible: Tensor, biases: list | None = None
) -> Tensor:
    q, k, v = _linear(x, state, f"{name}.qkv").chunk(3, -1)
    parts = [slice(i, i + width) for i in range(0, q.shape[1], width)]
    rows = [
        attention(q[:, p], k[:, p], v[:, p], visible, 0.0 if biases is None else biases[i]) for i, p in enumerate(parts)
    ]
    return _linear(torch.cat(rows, 1), state, f"{name}.proj")


def spacetime(state: dict[str, Tensor], frames: Tensor) -> Tensor:
    """The class token for one window (F, 3, S, S)."""
    clip = "ln_pre.weight" in state
    patch = state["patch_embed.proj.weight"].shape[-1]
    grid = F.conv2d(frames, state["patch_embed.proj.weight"], state.get("patch_embed.proj.bias"), stride=patch)
    tokens, labels = [state["cls_token"][0, 0] + state["pos_embed"][0, 0]], [(-1, -1)]
    for f in range(len(frames)):
        for n in range(grid.shape[2] * grid.shape[3]):
            row, column = divmod(n, grid.shape[3])
            tokens.append(grid[f, :, row, column] + state["pos_embed"][0, 1 + n] + state["temporal_embed"][0, f])
            labels.append((f, n))
    x = torch.stack(tokens)
    if clip:
        x = _norm(x, state, "ln_pre", 1e-5)

    def visible_pairs(same: int) -> Tensor:
        """Who sees whom: the class token all; a patch the class token and those of equal frame (0)
        or position (1).
        """
        return torch.tensor(
            [[i == 0 or j == 0 or a[same] == b[same] for j, b in enumerate(labels)] for i, a in enumerate(labels)]
        )

    space, time = visible_pairs(0), visible_pairs(1)
    for i in range(1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))):
        block = {
            name.removeprefix(f"blocks.{i}."): value for name, value in state.items() if name.startswith(f"blocks.{i}.")
        }
        along_time = _heads(_norm(x, block, "norm3", 1e-6), block, "timeattn", 64, time)
        x = x + _heads(_norm(x + along_time, block, "norm1", 1e-6), block, "attn", 64, space)
        hidden = _linear(_norm(x, block, "norm2", 1e-6), block, "mlp.fc1")
        hidden = hidden * torch.sigmoid(1.702 * hidden) if clip else F.gelu(hidden)
        x = x + _linear(hidden, block, "mlp.fc2")
    return _norm(x, state, "norm", 1e-6)[0]


def omnivore(state: dict[str, Tensor], clip: Tensor, window: tuple[int, int, int]) -> Tensor:
    """Mean of the last tokens of one clip (T, 3, H, W). Which tokens share a window is decided token by token."""
    patch = state["patch_embed.proj.weight"].shape[2:]
    x = F.conv3d(
        clip.transpose(0, 1)[None], state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=patch
    )[0]
    x = _norm(x.permute(1, 2, 3, 0), state, "patch_embed.norm", 1e-5)
    num_stages = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))
    for stage in range(num_stages):
        prefix = f"layers.{stage}."
        layer = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        for i in range(1 + max(int(name.split(".")[1]) for name in layer if name.startswith("blocks."))):
            block = {
                name.removeprefix(f"blocks.{i}."): v for name, v in layer.items() if name.startswith(f"blocks.{i}.")
            }
            x = x + _window_attention(_norm(x, block, "norm1", 1e-5), block, window, shifted=i % 2 == 1)
            x = x + _linear(F.gelu(_linear(_norm(x, block, "norm2", 1e-5), block, "mlp.fc1")), block, "mlp.fc2")
        if "downsample.reduction.weight" in layer:
            t, h, w, _ = x.shape
            padded = F.pad(x, (0, 0, 0, w % 2, 0, h % 2))
            merged = [
                torch.cat([padded[a, 2 * b + i, 2 * c + j] for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))])
                for a, b, c in product(range(t), range((h + 1) // 2), range((w + 1) // 2))
            ]
            x = torch.stack(merged).view(t, (h + 1) // 2, (w + 1) // 2, -1)
            x = _linear(_norm(x, layer, "downsample.norm", 1e-5), layer, "downsample.reduction")
    return _norm(x, state, "norm", 1e-5).mean((0, 1, 2))


def _window_attention(x: Tensor, block: dict[str, Tensor], window: tuple[int, int, int], shifted: bool) -> Tensor:
    size = x.shape[:3]
    fitted = [min(s, w) for s, w in zip(size, window, strict=True)]
    shift = [w // 2 if shifted and s > w else 0 for s, w in zip(size, window, strict=True)]
    padded = [-(-s // u) * u for s, u in zip(size, fitted, strict=True)]
    grid = F.pad(x, (0, 0, 0, padded[2] - size[2], 0, padded[1] - size[1], 0, padded[0] - size[0]))
    positions = list(product(*(range(n) for n in padded)))
    rolled = [tuple((p - m) % n for p, m, n in zip(position, shift, padded, strict=True)) for position in positions]
    window_of = [tuple(r // u for r, u in zip(roll, fitted, strict=True)) for roll in rolled]
    inside = [tuple(r % u for r, u in zip(roll, fitted, strict=True)) for roll in rolled]
    # In the last window of a shifted axis, tokens that came around from the other end are not visible to the others.
    wrapped = [tuple(m > 0 and r >= n - m for r, m, n in zip(roll, shift, padded, strict=True)) for roll in rolled]
    groups = list(zip(window_of, wrapped, strict=True))
    visible = torch.tensor([[a == b for b in groups] for a in groups])
    table = block["attn.relative_position_bias_table"]
    # The release numbers the positions of a cut window from 0 on and looks displacements up by that
    # number in the full window.
    numbers = [(a * fitted[1] + b) * fitted[2] + c for a, b, c in inside]
    full_positions = list(product(*(range(w) for w in window)))

    def row(i: int, j: int) -> int:
        d = [
            p - q + w - 1
            for p, q, w in zip(full_positions[numbers[i]], full_positions[numbers[j]], window, strict=True)
        ]
        return (d[0] * (2 * window[1] - 1) + d[1]) * (2 * window[2] - 1) + d[2]

    rows = torch.tensor([[row(i, j) for j in range(len(positions))] for i in range(len(positions))])
    biases = [table[rows, head] for head in range(table.shape[1])]
    out = _heads(grid.reshape(len(positions), -1), block, "attn", 32, visible, biases).view(*padded, -1)
    return out[: size[0], : size[1], : size[2]]
