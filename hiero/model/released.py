"""Import of the authors' checkpoints (hiero_omnivore.pth, hiero_egovlp.pth, hiero_lavila-l.pth).

They pickle an OmegaConf configuration beside the weights. It is read as inert data, without omegaconf.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hiero.config import Behaviour, LossConfig, ModelConfig
from hiero.errors import InputError
from hiero.model.hiero import HiERO
from hiero.model.model_folder import TEXT_ENCODER_FILE
from hiero.model.pretrained import write_model_folder
from hiero.storage.files import save_tensors
from hiero.storage.pickles import Opaque, read_torch
from hiero.types import Clock

OMEGACONF = frozenset(
    {f"omegaconf.{name}" for name in ("dictconfig.DictConfig", "listconfig.ListConfig", "base.ContainerMetadata", "base.Metadata")}
    | {f"omegaconf.nodes.{kind}Node" for kind in ("Any", "Integer", "Float", "String", "Boolean", "Enum", "Bytes", "Path")}
    | {
        "typing.Any",
        *(f"{home}.{kind}" for home in ("builtins", "__builtin__") for kind in ("int", "float", "str", "bool", "list")),
    }
)
# What optimizer and scheduler states may hold beside tensors; none of it is used.
BYSTANDERS = frozenset(
    {"torch.device", "numpy.dtype", "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "collections.Counter"}
)
# The release can be configured into other networks; these settings make the one of the paper and of its checkpoints.
EXPECTED = {
    "pool": "mean", "conv.aggr": "mean", "conv.pos_act": "tanh",
    "conv.use_signed_temporal_distance": True, "conv.use_pos_attr": True,
}  # fmt: skip


@dataclass(frozen=True)
class Released:
    """What a release checkpoint holds, in our terms. text_encoder keeps its own layout (transformers' DistilBERT, CLIP)."""

    config: ModelConfig
    losses: LossConfig
    state: dict[str, Tensor]
    text_encoder: dict[str, Tensor]
    source: dict[str, Any]

    def model(self) -> HiERO:
        model = HiERO(self.config)
        model.load_state_dict(self.state)
        return model.eval()

    def save(self, folder: Path) -> None:
        """As a model folder; the original configuration is kept in config.json under `source`."""
        if self.text_encoder:
            save_tensors(folder / TEXT_ENCODER_FILE, self.text_encoder)
        else:
            (folder / TEXT_ENCODER_FILE).unlink(missing_ok=True)  # of an earlier import into the same folder
        task = self.source.get("task", {})
        extra = {
            "losses": self.losses.to_dict(),
            "text_encoder": {"name": task.get("text_encoder"), "file": TEXT_ENCODER_FILE if self.text_encoder else None},
            "source": self.source,
        }
        write_model_folder(folder, self.config, self.state, extra)


def read_released(path: Path | str) -> Released:
    """Read a checkpoint of the release, refusing anything that is not one."""
    path = Path(path)
    try:
        return _read(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def _read(path: Path) -> Released:
    raw = read_torch(path, opaque=OMEGACONF | BYSTANDERS)
    if not isinstance(raw, dict) or not {"model", "task", "config"} <= set(raw):
        raise InputError(f"{path}: not a HiERO checkpoint; expected the entries model, task and config")
    source = resolve(plain(raw["config"]))
    _check_settings(source, path)
    try:
        config, losses = _configs(source, raw["model"], raw["task"])
        state, text_encoder = _convert(raw["model"], raw["task"])
    except KeyError as error:
        raise InputError(f"{path}: not a HiERO checkpoint of the released layout, {error} is missing") from error
    except InputError:
        raise
    except (RuntimeError, IndexError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: weights or settings do not fit the released layout ({error})") from error
    with torch.device("meta"):
        expected = {name: tuple(value.shape) for name, value in HiERO(config).state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state.items()}
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        lines = [f"{name}: expected {expected.get(name)}, found {found.get(name)}" for name in wrong[:8]]
        raise InputError(f"{path}: weights do not fit its configuration\n  " + "\n  ".join(lines))
    return Released(config, losses, state, text_encoder, source)


def _check_settings(source: Any, path: Path) -> None:
    if not isinstance(source, dict) or not isinstance(source.get("model"), dict) or not isinstance(source.get("task"), dict):
        raise InputError(f"{path}: not a HiERO checkpoint; its configuration has no model and task")
    for name, expected in EXPECTED.items():
        node: Any = source["model"]
        for part in name.split("."):
            node = node.get(part, expected) if isinstance(node, dict) else expected
        if node != expected:
            raise InputError(f"{path}: made with model.{name} = {node}; only {expected}, as in the paper, is supported")


def plain(node: Any) -> Any:
    """A pickled OmegaConf tree as dicts, lists and values."""
    visits = _Limit()

    def walk(node: Any) -> Any:
        visits.count()
        if not isinstance(node, Opaque):
            return node
        state = node.state if isinstance(node.state, dict) else {}
        if "_val" in state:
            return walk(state["_val"])
        content = state.get("_content")
        if isinstance(content, dict):
            return {str(key): walk(value) for key, value in content.items()}
        if isinstance(content, list):
            return [walk(value) for value in content]
        return content

    return walk(node)


def resolve(tree: Any) -> Any:
    """Replace interpolations ${a.b} that name another entry of the tree; others stay as text."""
    visits = _Limit()

    def look_up(name: str, depth: int) -> Any:
        node = tree
        for part in name.split("."):
            if not isinstance(node, dict) or part not in node:
                return f"${{{name}}}"
            node = node[part]
        return walk(node, depth + 1)

    def walk(node: Any, depth: int = 0) -> Any:
        visits.count()
        if depth > 32:
            raise InputError("the checkpoint's configuration refers to itself")
        if isinstance(node, dict):
            return {key: walk(value, depth) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value, depth) for value in node]
        if isinstance(node, str) and (whole := re.fullmatch(r"\$\{([\w.]+)\}", node)):
            return look_up(whole[1], depth)
        return node

    return walk(tree)


class _Limit:
    """Ends walks through configurations that were built to be endless."""

    def __init__(self, limit: int = 20_000) -> None:
        self.left = limit

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InputError("the checkpoint's configuration is larger than any of HiERO's")


def _configs(source: dict[str, Any], model: dict[str, Tensor], task: dict[str, Tensor]) -> tuple[ModelConfig, LossConfig]:
    """Sizes come from the weights themselves, the rest from the configuration."""
    settings, losses, features = source["model"], source["task"], source.get("features", {})
    stages = {int(name.split(".")[1]) for name in model if name.startswith("up_stages.")}
    layers = {name.split(".")[2] for name in model if name.endswith(".lin_rel.weight") and name.startswith("up_stages.0.")}
    hidden_size = model["up_stages.0.module_1.lin_rel.weight"].shape[0]
    config = ModelConfig(
        input_size=model["proj.1.weight"].shape[1] if "proj.1.weight" in model else hidden_size,
        hidden_size=hidden_size,
        embedding_size=task["projector.net.4.weight"].shape[0],
        text_size=task["text_proj.0.weight"].shape[1],
        depth=len(stages),
        num_layers=len(layers),
        gate_size=model["up_stages.0.module_1.lin_pos.0.weight"].shape[0],
        radius_s=float(settings.get("k", 1.0)),
        num_threads=int(settings.get("n_clusters", 4)),
        sample_points=int(settings.get("clustering_sample_points", 32)),
        dropout=float(settings.get("dropout", 0.1)),
        threads_at_inference=bool(settings.get("clustering_at_inference", False)),
        random_state=42,
        backbone=features.get("name"),
        clock=Clock(fps=float(features.get("fps", 30.0)), stride=float(features.get("stride", 16))),
        behaviour=Behaviour.released(),
    )
    return config, LossConfig(
        alpha=float(losses.get("alpha", 1.0)),
        beta=float(losses.get("beta", -1.0)),
        temperature=float(losses.get("temperature", 0.05)),
        mode=losses.get("contrastive_mode", "sym"),
        alignment_weight=float(losses.get("loss_weight", 1.0)),
        thread_weight=float(losses.get("proc_loss_weight", 1.0)),
    )


def _convert(model: dict[str, Tensor], task: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Rename the released weights to ours; the two matrices of a TDGC become one."""
    size = model["up_stages.0.module_1.lin_rel.weight"].shape[0]
    state = {
        "project.weight": model.get("proj.1.weight", torch.eye(size)),  # released models may go without a projection
        "project.bias": model.get("proj.1.bias", torch.zeros(size)),
    }
    for name, value in model.items():
        if match := re.fullmatch(r"(up|down)_stages\.(\d+)\.module_(\d+)\.(.+)", name):
            side, stage, module, rest = match[1], match[2], int(match[3]), match[4]
            prefix = f"{'encoder' if side == 'up' else 'decoder'}.stages.{stage}"
            if rest == "lin_rel.weight":
                old = name.removesuffix("lin_rel.weight")
                layer = f"{prefix}.layers.{(module - 1) // 2}"
                state[f"{layer}.mix.weight"] = torch.cat([model[old + "lin_root.weight"], value])
                state[f"{layer}.mix.bias"] = torch.cat(
                    [model.get(old + "bias", torch.zeros(size)).flatten(), model[old + "lin_rel.bias"]]
                )
                for part in ("weight", "bias"):
                    state[f"{layer}.gate.hidden.{part}"] = model[f"{old}lin_pos.0.{part}"]
                    state[f"{layer}.gate.out.{part}"] = model[f"{old}lin_pos.2.{part}"]
            elif rest in ("weight", "bias") and f"{name.rsplit('.', 1)[0]}.lin_rel.weight" not in model:
                state[f"{prefix}.norm.{rest}"] = value
    for ours, theirs in ((0, 1), (1, 2), (3, 4)):
        for part in ("weight", "bias"):
            state[f"video_head.{ours}.{part}"] = task[f"projector.net.{theirs}.{part}"]
    for index in (0, 2):
        for part in ("weight", "bias"):
            state[f"text_head.{index}.{part}"] = task[f"text_proj.{index}.{part}"]
    text_encoder = {name.removeprefix("text_model."): value for name, value in task.items() if name.startswith("text_model.")}
    return state, text_encoder
