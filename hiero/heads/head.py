"""A head: its configuration, its network, and its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from hiero.config import RunConfig
from hiero.errors import InputError
from hiero.heads.actionformer import ActionFormer, ActionFormerConfig
from hiero.heads.vslnet import VSLNet, VSLNetConfig
from hiero.storage.files import load_tensors, parse_json
from hiero.types import Clock

HeadKind = Literal["vslnet", "actionformer"]
KINDS: tuple[HeadKind, ...] = ("vslnet", "actionformer")
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


@dataclass(frozen=True)
class HeadConfig(RunConfig):
    """A training run of a head. The configuration of one of the two networks is set."""

    vslnet: VSLNetConfig | None = None
    actionformer: ActionFormerConfig | None = None
    epochs: int = field(default=30, kw_only=True)
    batch_size: int = field(default=32, kw_only=True)
    lr: float = field(default=1e-3, kw_only=True)
    warmup_epochs: float = field(default=1.0, kw_only=True)
    optimizer: Literal["adam", "adamw"] = field(default="adamw", kw_only=True)
    weight_decay: float = field(default=0.01, kw_only=True)

    _nested: ClassVar[dict[str, Any]] = {"vslnet": VSLNetConfig.from_dict, "actionformer": ActionFormerConfig.from_dict}

    @property
    def kind(self) -> HeadKind:
        return "vslnet" if self.vslnet is not None else "actionformer"


@dataclass
class TrainedHead:
    """A trained head."""

    network: VSLNet | ActionFormer
    labels: list[str]
    clock: Clock | None = None
    config: HeadConfig | None = None
    trained_on: frozenset[str] = frozenset()

    @property
    def kind(self) -> HeadKind:
        return "vslnet" if isinstance(self.network, VSLNet) else "actionformer"


def build_head(config: HeadConfig) -> VSLNet | ActionFormer:
    """The network of a configuration, with new weights. Raises InputError where it names no network."""
    if config.vslnet is not None:
        return VSLNet(config.vslnet)
    if config.actionformer is not None:
        return ActionFormer(config.actionformer)
    raise InputError("a head is vslnet or actionformer")


def load_head(folder: Path, device: str = "cpu") -> TrainedHead:
    """Load a head from its folder."""
    try:
        document = parse_json((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        config = HeadConfig.from_dict(document["head"])
        network = build_head(config)
        network.load_state_dict(load_tensors(folder / WEIGHTS_FILE))
        clock = Clock(**document["clock"])
    except FileNotFoundError as error:
        raise InputError(f"{folder}: not the folder of a head ({Path(error.filename).name} is missing)") from None
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{folder}: not the folder of a head ({error})") from error
    labels, trained_on = document.get("labels", []), frozenset(document.get("clips", []))
    return TrainedHead(network.to(device).eval(), labels, clock, config, trained_on)
