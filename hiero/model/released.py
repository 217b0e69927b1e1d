"""Import of the authors' checkpoints (hiero_omnivore.pth, hiero_egovlp.pth, hiero_lavila-l.pth).

They pickle an OmegaConf configuration beside the weights. It is read as inert data, without omegaconf.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hiero.config import RELEASED_CHECKPOINTS, Behaviour, LossConfig, ModelConfig
from hiero.errors import InputError
from hiero.model.hiero import HiERO, write_model_folder
from hiero.model.model_folder import TEXT_ENCODER_FILE, is_installed, released_folder
from hiero.storage import weights
from hiero.storage.checkpoints import describe_mismatch, find_checkpoint
from hiero.storage.files import home, save_tensors
from hiero.storage.locks import DOWNLOAD_WAIT_S, hold_lock
from hiero.storage.pickles import Opaque, read_torch
from hiero.types import Clock, ProgressCallback, ProgressEvent, no_progress

# Classes of a pickled OmegaConf tree, which are read as inert data
_OMEGACONF_MODULES = "dictconfig.DictConfig listconfig.ListConfig base.ContainerMetadata base.Metadata"
_OMEGACONF_NODES = "Any Integer Float String Boolean Enum Bytes Path"
_VALUE_TYPES = "int float str bool list"
OMEGACONF = frozenset(
    {"typing.Any"}
    | {f"omegaconf.{name}" for name in _OMEGACONF_MODULES.split()}
    | {f"omegaconf.nodes.{kind}Node" for kind in _OMEGACONF_NODES.split()}
    | {f"{module}.{kind}" for module in ("builtins", "__builtin__") for kind in _VALUE_TYPES.split()}
)
# Classes in the states of optimizers and schedulers, which are ignored
NUMPY_SCALARS = {"numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"}
UNUSED_CLASSES = frozenset({"torch.device", "numpy.dtype", "collections.Counter", *NUMPY_SCALARS})
REQUIRED_SETTINGS = {  # settings of the paper's network; the released code also supports others
    "pool": "mean",
    "conv.aggr": "mean",
    "conv.pos_act": "tanh",
    "conv.use_signed_temporal_distance": True,
    "conv.use_pos_attr": True,
}
KMEANS_SEED = 42  # seed of the released code, which its configuration does not contain
MAX_INTERPOLATION_DEPTH = 32
MAX_CONFIG_NODES = 20_000  # far more than the authors' configurations have


@dataclass(frozen=True)
class Released:
    """A released checkpoint, converted to this package. `read_released` returns it.

    Attributes:
        config: Configuration of the network.
        losses: Configuration of the losses that it was trained with.
        state: Weights of `HiERO`.
        text_encoder: Weights of the text encoder (DistilBERT of transformers, or CLIP), or empty.
        source: The authors' configuration as plain values.

    Examples:
        >>> released = read_released(checkpoint)
        >>> released.losses.mode, len(released.model()(torch.randn(1, 9, released.config.input_size)))
        ('sym', 3)
    """

    config: ModelConfig
    losses: LossConfig
    state: dict[str, Tensor]
    text_encoder: dict[str, Tensor]
    source: dict[str, Any]

    def model(self) -> HiERO:
        """The network with these weights, in evaluation mode."""
        model = HiERO(self.config)
        model.load_state_dict(self.state)
        return model.eval()

    def save(self, folder: Path) -> None:
        """Write a model folder. The authors' configuration is stored in config.json under `source`."""
        if self.text_encoder:
            save_tensors(folder / TEXT_ENCODER_FILE, self.text_encoder)
        else:
            (folder / TEXT_ENCODER_FILE).unlink(missing_ok=True)  # left by an earlier import
        name = self.source.get("task", {}).get("text_encoder")
        text_encoder = {"name": name, "file": TEXT_ENCODER_FILE if self.text_encoder else None}
        extra = {"losses": self.losses.to_dict(), "text_encoder": text_encoder, "source": self.source}
        write_model_folder(folder, self.config, self.state, extra)


def install_released(name: str, progress: ProgressCallback = no_progress) -> Path:
    """The model folder of one of the authors' models, which is downloaded and converted if it is not installed."""
    if not is_installed(name):
        entry = weights.look_up(name)
        weights.get(entry.tokenizer, progress)
        checkpoint = find_checkpoint(weights.get(name, progress))
        folder = released_folder(name)
        with hold_lock(home() / "models" / f".{name}.lock", f"model {name}", DOWNLOAD_WAIT_S):
            progress(ProgressEvent("message", name, message=f"converting {checkpoint.name} to {folder}"))
            read_released(checkpoint).save(folder)  # config.json, by which it is recognised, is written last
    return released_folder(name)


def read_released(path: Path | str) -> Released:
    """Read a checkpoint of the authors' release. No code in the file is run.

    Args:
        path: The .pth file.

    Raises:
        InputError: The file is missing, damaged, not a checkpoint of the release, or not of the
            network of the paper.

    Examples:
        >>> released = read_released(checkpoint)
        >>> released.config.depth, released.config.behaviour == Behaviour.released()
        (3, True)
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file; the authors' checkpoints are at {RELEASED_CHECKPOINTS}")
    try:
        return _read(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error
    except KeyError as error:
        raise InputError(f"{path}: not a HiERO checkpoint of the released layout, {error} is missing") from error
    except (RuntimeError, IndexError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: weights or settings do not fit the released layout ({error})") from error


def _read(path: Path) -> Released:
    raw = read_torch(path, opaque=OMEGACONF | UNUSED_CLASSES)
    if not isinstance(raw, dict) or not {"model", "task", "config"} <= set(raw):
        raise InputError("not a HiERO checkpoint; expected the entries model, task and config")
    source = resolve_config(raw["config"])
    _check_settings(source)
    config, losses = _configs(source, raw["model"], raw["task"])
    state, text_encoder = _convert(raw["model"], raw["task"])
    with torch.device("meta"):  # shapes only
        expected = HiERO(config).state_dict()
    if problems := describe_mismatch(expected, state):
        raise InputError(f"the weights do not fit the configuration of the checkpoint ({problems})")
    return Released(config, losses, state, text_encoder, source)


def _check_settings(source: Any) -> None:
    if not isinstance(source, dict) or not all(isinstance(source.get(name), dict) for name in ("model", "task")):
        raise InputError("not a HiERO checkpoint; its configuration has no model and task")
    for name, expected in REQUIRED_SETTINGS.items():
        node: Any = source["model"]
        for part in name.split("."):
            node = node.get(part, expected) if isinstance(node, dict) else expected
        if node != expected:
            raise InputError(f"trained with model.{name} = {node}; only {expected}, as in the paper, is supported")


def resolve_config(root: Any) -> Any:
    """Convert a pickled OmegaConf tree to dicts, lists and values.

    Interpolations ${a.b} that name another entry of the tree are replaced; others stay as text.
    """
    visits = itertools.count(1)

    def content(node: Any) -> Any:
        while next(visits) <= MAX_CONFIG_NODES:  # a hostile tree may be endless
            if not isinstance(node, Opaque):
                return node
            state = node.state if isinstance(node.state, dict) else {}
            node = state.get("_val", state.get("_content"))
        raise InputError("the configuration of the checkpoint is too large for a HiERO model")

    def look_up(name: str, depth: int) -> Any:
        node = content(root)
        for part in name.split("."):
            if not isinstance(node, dict) or part not in node:
                return f"${{{name}}}"
            node = content(node[part])
        return walk(node, depth + 1)

    def walk(node: Any, depth: int = 0) -> Any:
        if depth > MAX_INTERPOLATION_DEPTH:
            raise InputError("the configuration of the checkpoint refers to itself")
        node = content(node)
        if isinstance(node, dict):
            return {str(key): walk(value, depth) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value, depth) for value in node]
        if isinstance(node, str) and (match := re.fullmatch(r"\$\{([\w.]+)\}", node)):
            return look_up(match[1], depth)
        return node

    return walk(root)


def _configs(
    source: dict[str, Any], model: dict[str, Tensor], task: dict[str, Tensor]
) -> tuple[ModelConfig, LossConfig]:
    """Configurations with sizes from the weights and all else from the authors' configuration."""
    settings, losses, features = source["model"], source["task"], source.get("features", {})
    stages = {int(name.split(".")[1]) for name in model if name.startswith("up_stages.")}
    layers = {
        name.split(".")[2] for name in model if name.endswith(".lin_rel.weight") and name.startswith("up_stages.0.")
    }
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
        random_state=KMEANS_SEED,
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
    """Rename the weights of the network; also returns those of the text encoder."""
    size = model["up_stages.0.module_1.lin_rel.weight"].shape[0]
    state = {
        "project.weight": model.get("proj.1.weight", torch.eye(size)),  # optional in the release
        "project.bias": model.get("proj.1.bias", torch.zeros(size)),
    }
    for name, value in model.items():
        if match := re.fullmatch(r"(up|down)_stages\.(\d+)\.module_(\d+)\.(.+)", name):
            side, stage, module, parameter = match.groups()
            prefix = f"{'encoder' if side == 'up' else 'decoder'}.stages.{stage}"
            if parameter == "lin_rel.weight":
                # Every second module is a layer: modules 1, 3, 5 are layers 0, 1, 2.
                layer = f"{prefix}.layers.{(int(module) - 1) // 2}."
                state |= _convert_tdgc(model, name.removesuffix(parameter), layer, size)
            elif parameter in ("weight", "bias") and f"{name.rsplit('.', 1)[0]}.lin_rel.weight" not in model:
                state[f"{prefix}.norm.{parameter}"] = value  # a module without lin_rel is the LayerNorm
    for parameter in ("weight", "bias"):
        for ours, theirs in ((0, 1), (1, 2), (3, 4)):  # theirs starts with a module without weights
            state[f"video_head.{ours}.{parameter}"] = task[f"projector.net.{theirs}.{parameter}"]
        for index in (0, 2):
            state[f"text_head.{index}.{parameter}"] = task[f"text_proj.{index}.{parameter}"]
    text_encoder = {
        name.removeprefix("text_model."): value for name, value in task.items() if name.startswith("text_model.")
    }
    return state, text_encoder


def _convert_tdgc(model: dict[str, Tensor], theirs: str, ours: str, size: int) -> dict[str, Tensor]:
    """Convert one TDGC layer; its two matrices become one."""
    bias = model.get(theirs + "bias", torch.zeros(size)).flatten()
    state = {
        f"{ours}mix.weight": torch.cat([model[theirs + "lin_root.weight"], model[theirs + "lin_rel.weight"]]),
        f"{ours}mix.bias": torch.cat([bias, model[theirs + "lin_rel.bias"]]),
    }
    for parameter in ("weight", "bias"):
        state[f"{ours}gate.hidden.{parameter}"] = model[f"{theirs}lin_pos.0.{parameter}"]
        state[f"{ours}gate.out.{parameter}"] = model[f"{theirs}lin_pos.2.{parameter}"]
    return state
