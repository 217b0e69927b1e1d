"""The files that the authors released, your own models, and what hiero makes of them.

Files are named as in tables.toml: `DATA/…` and `MODELS/…`. `WEIGHTS/…` are text towers, `RUNS/…` reports.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Literal

from hiero.config import Behaviour
from hiero.errors import InputError
from hiero.evaluation.egoprocel_data import find_annotations
from hiero.evaluation.paper_tables import RAW, Run, definitions, find_task
from hiero.features.files import FEATURE_SUFFIXES
from hiero.formatting import format_count
from hiero.storage import weights
from hiero.storage.cache import content_key, file_state
from hiero.storage.files import read_json

FOLDERS = {"DATA": "data", "MODELS": "models", "WEIGHTS": "weights", "RUNS": "runs"}  # in OUT
TARGET = re.compile(rf"\b({'|'.join(FOLDERS)})/\S+")
BACKBONE_NAMES = {"lavila": "lavila-l"}  # feature folders that are not named after their backbone
ANNOTATIONS = "DATA/egoprocel/annotations"
ENRICHED = "hiero-"  # prefix of features that went through a model
JOINED_TOWER = "WEIGHTS/egovlp"  # released in two files, which are joined
TOWER_FILES = ["DATA/pretrained/egovlp_text.pth", "DATA/pretrained/egovlp_txt_proj.pth"]

Edges = Literal["released", "corrected"]
Recipe = tuple[list[str], list[str]]
"""The arguments of hiero that make a file or folder, and its inputs."""


@dataclass
class ReleasedFiles:
    """The released files in DATA, your own models, and in OUT what hiero makes of them."""

    data: Path
    out: Path
    num_seeds: int = 1
    own_models: Path | None = None
    trained_edges: Edges = "released"
    digests: dict[str, str] = field(default_factory=dict)

    def _places(self, target: str) -> list[Path]:
        """Where a given file may be: DATA is laid out as the authors' repository, or as in docs/reproduction.md."""
        kind, _, name = target.partition("/")
        if kind == "MODELS":
            return [self.own_models / name] if self.own_models else []
        if kind == "WEIGHTS":
            return [folder] if (folder := weights.find(name)) else []
        if kind == "RUNS":
            return []
        known, place, _ = _release_entry(name)
        if known.startswith("checkpoints/") and (folder := weights.find(Path(name).stem.replace("_", "-"))):
            return [folder / Path(name).name]
        return [*([self.data / place / Path(name).relative_to(known)] if known else []), self.data / name]

    def given(self, target: str) -> Path | None:
        """A file that was released, installed, or made by you; None if it is missing or made from others."""
        return next((path for path in map(find_input, self._places(target)) if path.exists()), None)

    def path(self, target: str) -> Path:
        """The place of a file. One that is not given is made in OUT."""
        kind, _, name = target.partition("/")
        return self.given(target) or self.out / FOLDERS[kind] / name

    def resolve(self, words: list[str]) -> list[str]:
        """Arguments of hiero with the places of the files that they name."""
        return [TARGET.sub(lambda match: str(self.path(match[0])), word) for word in words]

    def describe(self, target: str) -> dict[str, str]:
        """The place of a given or expected file, what is there, and where to get it."""
        kind, _, name = target.partition("/")
        given = self.given(target)
        place = str(given or [*self._places(target), self.path(target)][0])
        if kind == "WEIGHTS":
            place, source = f"the text tower of {name}", f"hiero models get {name}"
        elif kind == "MODELS":
            source = " ".join(self.resolve(definitions()["models"][name.partition("-seed")[0]].split()))
        else:
            known, _, entry = _release_entry(name)
            text: str = definitions()["sources"].get(entry, "")  # empty for your own file that could also be made
            source = text.replace("DATA", str(self.data)).format(plain=Path(known).name)
        return {"path": place, "found": "" if given is None else _describe(given), "source": source}

    def models(self, run: Run) -> list[str]:
        """The models of a run: one for each seed, or a text tower for a run on raw features."""
        name = run["model"]
        if name == RAW:
            return [f"WEIGHTS/{BACKBONE_NAMES.get(run['backbone'], run['backbone'])}"]
        if self.own_models and (own := sorted(self.own_models.glob(f"{name}-seed*"))):
            return [f"MODELS/{folder.relative_to(self.own_models)}" for folder in own]
        if not _is_trained(name) or self.given(f"MODELS/{name}") or not self.num_seeds:
            return [f"MODELS/{name}"]
        return [f"MODELS/{name}-seed{seed}" for seed in range(self.num_seeds)]

    def reports(self, run: Run) -> dict[str, Recipe]:
        """The reports of a run: one for each seed, or one for all heads, which averages them."""
        models = self.models(run)
        if run["eval"] == "head":
            return {_report_name(run, run["model"]): self._evaluation(run, models)}
        names = [RAW if run["model"] == RAW else model.partition("/")[2] for model in models]
        return {
            _report_name(run, name): self._evaluation(run, [model]) for name, model in zip(names, models, strict=True)
        }

    def _evaluation(self, run: Run, models: list[str]) -> Recipe:
        """The command of a run for one model, or for several heads."""
        is_head = run["eval"] == "head"
        backbone, data = run["backbone"], []
        for option, name in definitions()["inputs"][f"head-{run['data']}" if is_head else run["eval"]].items():
            target = f"DATA/{name.format(backbone=backbone)}"
            if option == "--rates" and self.given(target) is None:
                option, target = "--videos", "DATA/egoprocel/videos"
            data += [option, target]
        inputs = [*models, *data[1::2]]
        if is_head:
            return ["head", "eval", *models, *data], inputs
        words = ["eval", run["eval"], *data, "--model"]
        words.append(BACKBONE_NAMES.get(backbone, backbone) if run["model"] == RAW else models[0])
        if "context" in run:
            words += ["--context", str(run["context"])]
        if "protocol" in run:
            words += ["--protocol", run["protocol"]]
        return words, inputs

    def recipe(self, target: str) -> Recipe | None:
        """How a file or folder is made; None for one that is given or must be."""
        kind, _, name = target.partition("/")
        last, sources = Path(name).name, definitions()["sources"]
        annotations: list[str] = []
        if self.given(target) is not None:
            return None
        if kind == "MODELS":
            model, _, seed = name.partition("-seed")
            command = definitions()["models"][model]
            if _is_trained(model):
                if not seed:
                    return None
                command = f"{command.replace(f'MODELS/{model}', target)} --set seed={seed}"
                if command.startswith("hiero train ") and self.trained_edges == "released":
                    command += "".join(f" --set model.behaviour.{option.name}=true" for option in fields(Behaviour))
        elif target == JOINED_TOWER:
            return [], TOWER_FILES
        elif name.startswith("stores/"):
            plain = last.removesuffix("-train")
            command = f"{sources['stores'].format(backbone=last, plain=plain)} --dtype float32"
            annotations = ["DATA/egomcq.json"] if plain == last else []  # training needs all videos
        elif name.startswith(f"ego4d/{ENRICHED}"):
            command = sources["enriched"].format(backbone=last, plain=last.removeprefix(ENRICHED))
            names = [file for file in definitions()["release"] if file.startswith(("nlq/", "goalstep/"))]
            annotations = [f"DATA/{file}" for file in names if self.given(f"DATA/{file}")]
        else:
            return None
        words = command.split()[1:]
        inputs = [match[0] for match in map(TARGET.search, words) if match and match[0] != target]
        return words, [*inputs, *annotations]

    def origins(self, target: str) -> Iterator[str]:
        """The files that must be given, from which a file or folder is made."""
        recipe = self.recipe(target)
        if recipe is None:
            yield target
        else:
            for each in recipe[1]:
                yield from self.origins(each)

    def digest(self, target: str) -> str:
        """Identifies the content of a file. Folders are compared by the names and states of their files."""
        if target not in self.digests:
            path = self.path(target)
            if path.is_file():
                return content_key(path)
            files = sorted(each for each in path.rglob("*") if each.is_file())
            content = "\n".join(f"{each.relative_to(path)} {tuple(file_state(each))}" for each in files)
            self.digests[target] = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
        return self.digests[target]

    def annotations_of(self, name: str) -> tuple[str, bool]:
        """The folder with the annotations of a task of EgoProceL, and whether they are there."""
        folder, task = self.given(ANNOTATIONS), find_task(name)
        is_there = folder is not None and bool(find_annotations(folder, task))
        return ANNOTATIONS if is_there or folder is None else f"{ANNOTATIONS}/{task.folder}", is_there


def _release_entry(name: str) -> tuple[str, str, str]:
    """The entry of tables.toml that holds a file in DATA, its place in the authors' repository, and its source."""
    release = definitions()["release"].items()
    return next(((known, *entry) for known, entry in release if f"{name}/".startswith(f"{known}/")), ("", "", ""))


def _is_trained(model: str) -> bool:
    return "models import" not in definitions()["models"][model]


def _report_name(run: Run, model: str) -> str:
    parts = [run["eval"], model, *(str(run[key]) for key in ("backbone", "data", "protocol", "context") if key in run)]
    return f"RUNS/{'-'.join(parts).replace('/', '-')}.json"


def find_input(path: Path) -> Path:
    """An input under its usual name, or an official file of Goal-Step beside it with the same split.

    The names of Goal-Step's files vary: goalstep_val.json is also published as goalstep_valid.json. The official
    files hold the queries of step grounding, too.
    """
    if path.exists() or path.suffix != ".json" or not any("goalstep" in part for part in path.parts[-3:]):
        return path
    split = "train" if "train" in path.stem else "val"
    official = (file for file in sorted(path.parent.glob("*.json")) if _goalstep_split(file) == split)
    return next(official, path)


@cache
def _goalstep_split(file: Path) -> str:
    """`train` or `val` for an official annotation file of Goal-Step, otherwise an empty text."""
    try:
        content = read_json(file)
    except InputError:
        return ""
    videos = content.get("videos") if isinstance(content, dict) else None
    if not isinstance(videos, list) or not videos or not isinstance(videos[0], dict) or "segments" not in videos[0]:
        return ""
    return {"train": "train", "val": "val", "valid": "val"}.get(str(content.get("split")), "")


def _describe(path: Path) -> str:
    """A few words about an existing file or folder."""
    if path.is_file():
        return f"{path.stat().st_size / 1e6:.1f} MB"
    files = [file for file in path.rglob("*") if file.is_file()]
    num_features = sum(file.suffix.lower() in FEATURE_SUFFIXES for file in files)
    return format_count(num_features, "feature file") if num_features else format_count(len(files), "file")
