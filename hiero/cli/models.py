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

SHOWN_DIGITS = 12  # of a hash
FILE_WIDTH = 220  # characters of the table in a file or pipe

app = App(name="models", help="List, download and import models and backbones.", group_parameters=OPTIONS)


@dataclass(frozen=True)
class KnownModel:
    """A row of the list."""

    name: str
    kind: Literal["HiERO model", "backbone", "text encoder"]
    state: str
    licence: str
    sha256: dict[str, str]  # by file, as recorded on first use of weights without a published hash
    description: str


@app.default
@app.command(name="list")
def models(*, json_: Json = False) -> None:
    """List the names that `--model` takes, their state and licences, and hashes recorded on first use.

    `--model` also takes a model folder, a Hugging Face id, and `raw` for feature files of any backbone.

    **Examples**

    * `hiero models`
    * `hiero models list --json`
    """
    known = list(_known_models())
    if json_:
        print_json({"version": 1, "models": list(map(asdict, known))})
        return
    table = plain_table("name", "kind", "state", "licence", "sha256", "what it is for")
    for column in table.columns:
        column.overflow = "fold"
    for model in known:
        hashes = " ".join(each[:SHOWN_DIGITS] for each in model.sha256.values())
        table.add_row(model.name, model.kind, model.state, model.licence, hashes, model.description)
    results_console(file_width=FILE_WIDTH).print(table)


def _known_models() -> Iterator[KnownModel]:
    from hiero.model.model_folder import SHIPPED
    from hiero.networks.registry import backbones

    for name, description in SHIPPED.items():
        needed = _needed_weights(name)
        yield KnownModel(name, "HiERO model", _state(needed), _licences(needed), {}, description)
    for name, entry in weights.RELEASED.items():
        needed, recorded = _needed_weights(name), weights.recorded_hashes(name)
        yield KnownModel(name, "HiERO model", _state(needed), _licences(needed), recorded, entry.description)
    for backbone in backbones().values():
        needed = _needed_weights(backbone.name)
        licence, recorded = "", {}
        if needed:
            licence, recorded = weights.look_up(needed[0]).licence, weights.recorded_hashes(needed[0])
        yield KnownModel(backbone.name, "backbone", _state(needed), licence, recorded, backbone.description)
    others = weights.REGISTRY.keys() - weights.RELEASED.keys() - {each.weights_name for each in backbones().values()}
    for name in sorted(others):
        entry = weights.look_up(name)
        yield KnownModel(name, "text encoder", _state([name]), entry.licence, {}, entry.description)


def _licences(names: list[str]) -> str:
    """The licences of a HiERO model and of the weights that it needs."""
    return ", ".join(sorted({"MIT", *(weights.look_up(name).licence for name in names)}))


def _needed_weights(name: str) -> list[str]:
    """Names of the weights that read videos and texts for a model."""
    from hiero.networks.registry import find_backbone

    if name in weights.RELEASED:
        entry = weights.look_up(name)
        return [name, entry.backbone, entry.tokenizer]
    engine = hiero.load(name)
    needed = [backbone.weights_name for backbone in map(find_backbone, engine.backbones) if backbone.needs_weights]
    return [*needed, "minilm"] if engine.spaces else needed


def _state(names: list[str]) -> str:
    missing = [weights.look_up(name) for name in names if weights.find(name) is None]
    by_hand = [f"{file} from {entry.page}" for entry in missing if entry.page for file in entry.files]
    if by_hand:
        return f"by hand: {', '.join(by_hand)}"
    return f"downloaded on first use ({sum(entry.megabytes for entry in missing)} MB)" if missing else "ready"


@app.command(name="get")
def get_model(name: str, /, *, source: Path | None = None) -> None:
    """Download everything that a model needs, unless it is installed, and print the folders.

    A HiERO model of the authors is downloaded with its backbone and tokenizer, and converted to a model folder.

    **Examples**

    * `hiero models get hiero-lavila-l`
    * `hiero models get egovlp --source egovlp.pth`

    Parameters
    ----------
    name
        Name from `hiero models`, or a Hugging Face id.
    source
        File, folder or package archive with the weights, to install them without a network.
    """
    from hiero.model.released import install_released

    is_alone = name in weights.REGISTRY and (source is not None or name not in weights.RELEASED)
    needed = [name] if is_alone else _needed_weights(name)
    if source is not None and len(needed) != 1:
        raise InputError(f"--source is for one set of weights, and {name} needs {', '.join(needed)}; get each of them")
    with reading_bars() as progress:
        if source is None:  # what cannot be downloaded is an error before anything large is
            needed.sort(key=lambda each: not weights.look_up(each).page)
        folders = [weights.get(each, progress, source=source) for each in needed]
        if name in weights.RELEASED:
            folders.append(install_released(name, progress))
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
