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

# Classes of a pickled OmegaConf tree; read as inert data.
OMEGACONF = frozenset(
    {
        f"omegaconf.{name}"
        for name in ("dictconfig.DictConfig", "listconfig.ListConfig", "base.ContainerMetadata", "base.Metadata")
    }
    | {
        f"omegaconf.nodes.{kind}Node"
        for kind in ("Any", "Integer", "Float", "String", "Boolean", "Enum", "Bytes", "Path")
    }
    | {
        "typing.Any",
        *(
            f"{module}.{kind}"
            for module in ("builtins", "__builtin__")
            for kind in ("int", "float", "str", "bool", "list")
        ),
    }
)
# What optimizer and scheduler states may hold beside tensors; none of it is used.
UNUSED_CLASSES = frozenset(
    {
        "torch.device",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "collections.Counter",
    }
)
# The release can be configured into other networks; these settings give the one of the paper and of its checkpoints.
REQUIRED_SETTINGS = {
    "pool": "mean",
    "conv.aggr": "mean",
    "conv.pos_act": "tanh",
    "conv.use_signed_temporal_distance": True,
    "conv.use_pos_attr": True,
}
KMEANS_SEED = 42  # of the release; its configuration does not hold it
MAX_INTERPOLATION_DEPTH = 32  # of references to references
MAX_CONFIG_NODES = 20_000  # of a configuration, values included; far more than the authors' have


@dataclass(frozen=True)
class Released:
    """What a checkpoint of the release holds, in this package's terms. `read_released` returns it.

    Attributes:
        config: Settings of the network.
        losses: Settings of the losses that it was trained with.
        state: Weights of `HiERO`.
        text_encoder: Weights of the text encoder in its own layout (transformers' DistilBERT,
            CLIP); empty without one.
        source: The authors' configuration, as plain values.

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
        """Write a model folder; the authors' configuration goes into config.json under `source`."""
        if self.text_encoder:
            save_tensors(folder / TEXT_ENCODER_FILE, self.text_encoder)
        else:
            (folder / TEXT_ENCODER_FILE).unlink(missing_ok=True)  # of an earlier import into the same folder
        task = self.source.get("task", {})
        extra = {
            "losses": self.losses.to_dict(),
            "text_encoder": {
                "name": task.get("text_encoder"),
                "file": TEXT_ENCODER_FILE if self.text_encoder else None,
            },
            "source": self.source,
        }
        write_model_folder(folder, self.config, self.state, extra)


def read_released(path: Path | str) -> Released:
    """Read a checkpoint of the authors' release. No code in the file is run.

    Args:
        path: The .pth file.

    Raises:
        InputError: The file is missing, damaged, not a checkpoint of the release, or of another
            network than the paper's.

    Examples:
        >>> released = read_released(checkpoint)
        >>> released.config.depth, released.config.behaviour == Behaviour.released()
        (3, True)
    """
    path = Path(path)
    try:
        return _read(path)
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from error


def _read(path: Path) -> Released:
    raw = read_torch(path, opaque=OMEGACONF | UNUSED_CLASSES)
    if not isinstance(raw, dict) or not {"model", "task", "config"} <= set(raw):
        raise InputError(f"{path}: not a HiERO checkpoint; expected the entries model, task and config")
    source = resolve_interpolations(to_container(raw["config"]))
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
    _check_shapes(config, state, path)
    return Released(config, losses, state, text_encoder, source)


def _check_shapes(config: ModelConfig, state: dict[str, Tensor], path: Path) -> None:
    with torch.device("meta"):  # shapes only
        expected = {name: tuple(value.shape) for name, value in HiERO(config).state_dict().items()}
    actual = {name: tuple(value.shape) for name, value in state.items()}
    if wrong := sorted(name for name in expected.keys() | actual.keys() if expected.get(name) != actual.get(name)):
        lines = [f"{name}: expected {expected.get(name)}, found {actual.get(name)}" for name in wrong[:8]]
        raise InputError(f"{path}: weights do not fit its configuration\n  " + "\n  ".join(lines))


def _check_settings(source: Any, path: Path) -> None:
    if (
        not isinstance(source, dict)
        or not isinstance(source.get("model"), dict)
        or not isinstance(source.get("task"), dict)
    ):
        raise InputError(f"{path}: not a HiERO checkpoint; its configuration has no model and task")
    for name, expected in REQUIRED_SETTINGS.items():
        node: Any = source["model"]
        for part in name.split("."):
            node = node.get(part, expected) if isinstance(node, dict) else expected
        if node != expected:
            raise InputError(f"{path}: made with model.{name} = {node}; only {expected}, as in the paper, is supported")


def to_container(node: Any) -> Any:
    """A pickled OmegaConf tree as dicts, lists and values."""
    limit = _VisitLimit()

    def walk(node: Any) -> Any:
        limit.count()
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


def resolve_interpolations(tree: Any) -> Any:
    """Replace interpolations ${a.b} that name another entry of the tree; others stay as text."""
    limit = _VisitLimit()

    def look_up(name: str, depth: int) -> Any:
        node = tree
        for part in name.split("."):
            if not isinstance(node, dict) or part not in node:
                return f"${{{name}}}"
            node = node[part]
        return walk(node, depth + 1)

    def walk(node: Any, depth: int = 0) -> Any:
        limit.count()
        if depth > MAX_INTERPOLATION_DEPTH:
            raise InputError("the checkpoint's configuration refers to itself")
        if isinstance(node, dict):
            return {key: walk(value, depth) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value, depth) for value in node]
        if isinstance(node, str) and (match := re.fullmatch(r"\$\{([\w.]+)\}", node)):
            return look_up(match[1], depth)
        return node

    return walk(tree)


class _VisitLimit:
    """Ends walks through configurations that were built to be endless."""

    def __init__(self) -> None:
        self.num_visits = 0

    def count(self) -> None:
        self.num_visits += 1
        if self.num_visits > MAX_CONFIG_NODES:
            raise InputError("the checkpoint's configuration is larger than any of HiERO's")


def _configs(
    source: dict[str, Any], model: dict[str, Tensor], task: dict[str, Tensor]
) -> tuple[ModelConfig, LossConfig]:
    """Our settings: sizes from the weights themselves, the rest from the authors' configuration."""
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
    """The released weights under our names, and those of the text encoder."""
    size = model["up_stages.0.module_1.lin_rel.weight"].shape[0]
    state = {
        "project.weight": model.get("proj.1.weight", torch.eye(size)),  # released models may go without a projection
        "project.bias": model.get("proj.1.bias", torch.zeros(size)),
    }
    for name, value in model.items():
        if match := re.fullmatch(r"(up|down)_stages\.(\d+)\.module_(\d+)\.(.+)", name):
            side, stage, module, parameter = match[1], match[2], int(match[3]), match[4]
            prefix = f"{'encoder' if side == 'up' else 'decoder'}.stages.{stage}"
            if parameter == "lin_rel.weight":
                # Every second module is a layer: modules 1, 3, 5 are layers 0, 1, 2.
                state |= _convert_tdgc(
                    model, name.removesuffix(parameter), f"{prefix}.layers.{(module - 1) // 2}.", size
                )
            elif parameter in ("weight", "bias") and f"{name.rsplit('.', 1)[0]}.lin_rel.weight" not in model:
                state[f"{prefix}.norm.{parameter}"] = value  # a module without lin_rel is the LayerNorm
    for ours, theirs in ((0, 1), (1, 2), (3, 4)):  # theirs begins with a module without weights
        for parameter in ("weight", "bias"):
            state[f"video_head.{ours}.{parameter}"] = task[f"projector.net.{theirs}.{parameter}"]
    for index in (0, 2):
        for parameter in ("weight", "bias"):
            state[f"text_head.{index}.{parameter}"] = task[f"text_proj.{index}.{parameter}"]
    text_encoder = {
        name.removeprefix("text_model."): value for name, value in task.items() if name.startswith("text_model.")
    }
    return state, text_encoder


def _convert_tdgc(model: dict[str, Tensor], theirs: str, ours: str, size: int) -> dict[str, Tensor]:
    """One TDGC layer, by the prefixes of its weights; their two matrices become one."""
    bias = model.get(theirs + "bias", torch.zeros(size)).flatten()
    state = {
        f"{ours}mix.weight": torch.cat([model[theirs + "lin_root.weight"], model[theirs + "lin_rel.weight"]]),
        f"{ours}mix.bias": torch.cat([bias, model[theirs + "lin_rel.bias"]]),
    }
    for parameter in ("weight", "bias"):
        state[f"{ours}gate.hidden.{parameter}"] = model[f"{theirs}lin_pos.0.{parameter}"]
        state[f"{ours}gate.out.{parameter}"] = model[f"{theirs}lin_pos.2.{parameter}"]
    return state
