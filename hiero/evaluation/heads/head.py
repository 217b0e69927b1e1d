"""Configuration, network and folder of a head."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hiero.config import RunConfig
from hiero.errors import InputError
from hiero.evaluation.heads.actionformer import ActionFormer, ActionFormerConfig
from hiero.evaluation.heads.vslnet import VSLNet, VSLNetConfig
from hiero.storage.files import load_tensors, parse_json
from hiero.types import Clock

KINDS = ("vslnet", "actionformer")
CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"


@dataclass(frozen=True)
class HeadConfig(RunConfig):
    """A training run of a head, with the configuration of one of the two networks."""

    vslnet: VSLNetConfig | None = None
    actionformer: ActionFormerConfig | None = None
    epochs: int = field(default=30, kw_only=True)
    batch_size: int = field(default=32, kw_only=True)
    lr: float = field(default=1e-3, kw_only=True)
    warmup_epochs: float = field(default=1.0, kw_only=True)
    optimizer: Literal["adam", "adamw"] = field(default="adamw", kw_only=True)
    weight_decay: float = field(default=0.01, kw_only=True)

    def build_network(self) -> VSLNet | ActionFormer:
        """The configured network with new weights."""
        if self.vslnet is not None:
            return VSLNet(self.vslnet)
        if self.actionformer is not None:
            return ActionFormer(self.actionformer)
        raise InputError(f"the head must be one of {', '.join(KINDS)}")


@dataclass
class TrainedHead:
    network: VSLNet | ActionFormer
    labels: list[str]
    clock: Clock | None = None
    config: HeadConfig | None = None
    trained_on: frozenset[str] = frozenset()

    @property
    def takes_queries(self) -> bool:
        """Whether the head looks for a text instead of known labels."""
        return isinstance(self.network, VSLNet)


def load_trained_head(folder: Path, device: str = "cpu") -> TrainedHead:
    """Load a head from the folder that `hiero head train` wrote."""
    try:
        document = parse_json((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        config = HeadConfig.from_dict(document["head"])
        network = config.build_network()
        network.load_state_dict(load_tensors(folder / WEIGHTS_FILE))
        clock = Clock(**document["clock"])
        labels, trained_on = list(document.get("labels", ())), frozenset(document.get("clips", ()))
    except FileNotFoundError as error:
        raise InputError(f"{folder}: not the folder of a head ({Path(error.filename).name} is missing)") from None
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"{folder}: not the folder of a head ({error})") from error
    return TrainedHead(network.to(device).eval(), labels, clock, config, trained_on)
