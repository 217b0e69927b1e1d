"""The files that the authors released, in the layout of their repository, and what hiero makes of them.

Files are named as in tables.toml: `DATA/…` and `MODELS/…`. `WEIGHTS/…` are text towers, `RUNS/…` reports.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from hiero.evaluation.paper_tables import ENRICHED, RAW, Run, definitions, find_input, run_arguments, text_tower
from hiero.storage import weights
from hiero.storage.cache import content_key, file_state

FOLDERS = {"DATA": "data", "MODELS": "models", "WEIGHTS": "weights", "RUNS": "runs"}  # in OUT
JOINED_TOWER = "WEIGHTS/egovlp"  # released in two files, which are joined
TOWER_FILES = ["DATA/pretrained/egovlp_text.pth", "DATA/pretrained/egovlp_txt_proj.pth"]


@dataclass
class ReleasedFiles:
    """The released files in DATA, linked in OUT/data under the names of `hiero table`."""

    data: Path
    out: Path
    num_seeds: int
    digests: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (place, _) in definitions()["release"].items():
            candidates = map(find_input, (self.data / place, self.data / name))
            found = next((path for path in candidates if path.exists()), None)
            link(self.path(f"DATA/{name}"), found)

    def path(self, target: str) -> Path:
        kind, _, name = target.partition("/")
        return self.out / FOLDERS[kind] / name

    def exists(self, file: str) -> bool:
        kind, _, name = file.partition("/")
        return weights.find(name) is not None if kind == "WEIGHTS" else self.path(file).exists()

    def missing(self, run: Run) -> list[str]:
        """The released files that a run needs and DATA does not have."""
        files = [file for target in self.run_inputs(run) for file in self._origins(target)]
        return [file for file in dict.fromkeys(files) if not self.exists(file)]

    def describe(self, file: str) -> tuple[str, str]:
        """The expected place of a released file, and where to get it."""
        kind, _, name = file.partition("/")
        if kind == "WEIGHTS":
            return f"the text tower of {name}", f"hiero models get {name}"
        known = next(known for known in definitions()["release"] if f"{name}/".startswith(f"{known}/"))
        place, source = definitions()["release"][known]
        text: str = definitions()["sources"][source]
        path = self.data / place / Path(name).relative_to(known)
        return str(path), text.replace("DATA", str(self.data)).format(plain=Path(known).name)

    def show_originals(self, message: str) -> str:
        """A message that names the files in DATA instead of the links to them."""
        for path in (self.path(f"DATA/{name}") for name in definitions()["release"]):
            if path.is_symlink():
                message = message.replace(str(path), str(path.readlink()))
        return message

    def models(self, run: Run) -> list[str]:
        """The models of a run: a head for each seed, or a text tower for a run on raw features."""
        if run["model"] == RAW:
            return [f"WEIGHTS/{text_tower(run)}"]
        seeds = [f"-seed{seed}" for seed in range(self.num_seeds)] if run["eval"] == "head" else [""]
        return [f"MODELS/{run['model']}{seed}" for seed in seeds]

    def run_inputs(self, run: Run) -> list[str]:
        """What a run reads: its models and its data."""
        folder = self.path("DATA/")
        needed = run_arguments(run, [Path(RAW)], folder)[1]
        return [*self.models(run), *(f"DATA/{path.relative_to(folder)}" for path in needed)]

    def recipe(self, target: str) -> tuple[list[str], list[str]] | None:
        """The arguments of hiero that make a file or folder, and its inputs; None for a released file."""
        kind, _, name = target.partition("/")
        last, sources = Path(name).name, definitions()["sources"]
        annotations: list[str] = []
        if kind == "MODELS":
            model, _, seed = name.partition("-seed")
            command = definitions()["models"][model].replace("seed0", f"seed{seed}").replace("seed=0", f"seed={seed}")
        elif target == JOINED_TOWER and not self.exists(target):
            return [], TOWER_FILES
        elif name.startswith("stores/"):
            command = f"{sources['stores'].format(backbone=last)} --dtype float32"
            annotations = ["DATA/egomcq.json"]
        elif name.startswith(f"ego4d/{ENRICHED}"):
            command = sources["enriched"].format(backbone=last, plain=last.removeprefix(ENRICHED))
            names = [file for file in definitions()["release"] if file.startswith(("nlq/", "goalstep/"))]
            annotations = [f"DATA/{file}" for file in names if self.exists(f"DATA/{file}")]
        else:
            return None
        words = command.split()[1:]
        inputs = [word for word in words if word.startswith(("DATA/", "MODELS/")) and word != target]
        return words, [*inputs, *annotations]

    def digest(self, file: str) -> str:
        """Identifies the content of a file. Folders are compared by the names and states of their files."""
        if file not in self.digests:
            kind, _, name = file.partition("/")
            path = (weights.find(name) if kind == "WEIGHTS" else None) or self.path(file)
            if path.is_file():
                return content_key(path)
            files = sorted(each for each in path.rglob("*") if each.is_file())
            content = "\n".join(f"{each.relative_to(path)} {tuple(file_state(each))}" for each in files)
            self.digests[file] = hashlib.sha256(content.encode("utf-8", "surrogateescape")).hexdigest()
        return self.digests[file]

    def _origins(self, target: str) -> list[str]:
        """The released files from which a file or folder is made."""
        recipe = self.recipe(target)
        return [target] if recipe is None else [file for each in recipe[1] for file in self._origins(each)]


def link(path: Path, target: Path | None) -> None:
    """Make a link to a file or folder, or remove it (None)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        path.unlink()
    if target is not None:
        path.symlink_to(target.resolve())
