"""Settings as frozen dataclasses with JSON in and out; `Behaviour` switches between the paper and its release."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from hiero.errors import InputError
from hiero.types import Clock

RELEASED_CHECKPOINTS = "https://www.sapeirone.it/data/hiero/ckpt/"  # of the authors
MAX_DEPTH = 16  # level 16 has a node for every 65,536 segments: nine hours
MAX_LAYERS = 64
MAX_SIZE = 2**16  # maximum width of a layer
MAX_COUNT = 10**6  # maximum number of threads, sample points, epochs, or examples per step
MAX_PARAMETERS = 10**9  # 4 GB of weights, and four times that in training
SIZES = ("input_size", "hidden_size", "embedding_size", "text_size", "gate_size", "lora_rank", "lora_alpha")
COUNTS = ("num_threads", "epochs", "batch_size", "accumulate")
RANGES = {  # smallest and largest value of a setting, in any of the dataclasses below
    **dict.fromkeys(SIZES, (1, MAX_SIZE)),
    **dict.fromkeys(COUNTS, (1, MAX_COUNT)),
    "num_layers": (1, MAX_LAYERS),
    "depth": (0, MAX_DEPTH),
    "inside": (0, 1),
}
POSITIVE = ("radius_s", "thread_radius", "kappa", "alpha", "temperature", "lr", "clip", "window_s")
PAPER_OPERATOR = "tdgc"  # the operator of the paper, which plug-ins can replace; see hiero/model/unet.py


class Config:
    """JSON in and out for the dataclasses below. An unknown key is an error."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self) -> None:
        for name, hint in _type_hints(type(self)).items():  # type: ignore[arg-type]
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                choices = ", ".join(get_args(hint))
                raise InputError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
            if name in RANGES:
                self._check_range(name, *RANGES[name])
            if name in POSITIVE and not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")

    def _check_range(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if not value >= least:
            raise InputError(f"{name} must be at least {least}, got {value}")
        if not value <= most:
            raise InputError(f"{name} must be at most {most}, got {value}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in JSON and TOML."""
        return dataclasses.asdict(self, dict_factory=_leave_out_paper_operator)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; missing settings get their defaults."""
        if not isinstance(values, dict):
            raise InputError(f"{cls.__name__} must have settings by name, got {str(values)[:40]}")
        names = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - names):
            raise InputError(f"{cls.__name__} has no setting {', '.join(unknown)}; it has {', '.join(sorted(names))}")
        hints = _type_hints(cls)  # type: ignore[arg-type]
        settings = {}
        for name, value in values.items():
            try:
                settings[name] = _build_nested(value, hints[name]) if isinstance(value, dict) else value
            except TypeError as error:  # a missing setting, or an unknown one of a Clock
                raise InputError(f"{cls.__name__}: {error}") from error
            is_infinite = isinstance(value, float) and not math.isfinite(value)
            if is_infinite or not _has_type(settings[name], hints[name]):
                raise InputError(f"{cls.__name__}.{name} cannot be {value!r}")
        return cls(**settings)

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed."""
        return dataclasses.replace(self, **changes)


_type_hints = functools.cache(get_type_hints)  # of a dataclass, which take milliseconds


def _leave_out_paper_operator(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """Settings without the operator of the paper, which keeps its files and fingerprints unchanged."""
    return dict(item for item in items if item != ("operator", PAPER_OPERATOR))


def _build_nested(values: dict[str, Any], hint: Any) -> Any:
    """The dataclass of a field from its settings, or the values themselves if the field has another type."""
    for option in get_args(hint) or (hint,):
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            return option.from_dict(values) if issubclass(option, Config) else option(**values)
    return values


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value from JSON or TOML has the type of a field. The dataclasses check choices themselves."""
    if get_origin(hint) is Literal:
        return isinstance(value, str)
    options = get_args(hint) or (hint,)
    if isinstance(value, bool):  # Python counts it as a number
        return bool in options
    return any(isinstance(value, option) for option in options) or (float in options and isinstance(value, int))


@dataclass(frozen=True)
class Behaviour(Config):
    """Differences between the authors' release (True) and the paper (False)."""

    mixed_threads: bool = False
    """Search thread neighbours with unsorted thread ids, so that most edges cross threads."""
    truncated_labels: bool = False
    """Propagate thread labels by a weighted mean and an int cast, which lowers some of them by one."""
    rounded_times: bool = False
    """Compute distances from rounded float32 times, also on a uniform clock."""
    rounded_samples: bool = False
    """Find the nearest sample from rounded float32 positions, so that ties go to the later one."""

    @classmethod
    def corrected(cls) -> Behaviour:
        """The behaviour that the paper describes."""
        return cls()

    @classmethod
    def released(cls) -> Behaviour:
        """The behaviour of the authors' release."""
        return cls(mixed_threads=True, truncated_labels=True, rounded_times=True, rounded_samples=True)


@dataclass(frozen=True)
class ModelConfig(Config):
    """The network. The defaults are those of the paper."""

    input_size: int
    """Width of the backbone's features."""
    hidden_size: int = 768
    embedding_size: int = 768
    """Width of the joint space of video and text, after h_v and h_t."""
    text_size: int = 768
    """Width of the text encoder's output."""
    depth: int = 3
    """Levels of the encoder; the decoder returns levels 0 … depth − 1. 0 is an MLP without a graph."""
    num_layers: int = 3
    """TDGC layers per stage."""
    gate_size: int = 256
    """Hidden width of the MLP that maps a temporal distance to a gate."""
    radius_s: float = 1.0
    """Neighbours at level l are closer than radius_s · 2^l seconds (strict)."""
    thread_radius: float = 1.5
    """Neighbours inside a thread are closer than this many ranks."""
    num_threads: int = 4
    sample_points: int | None = 32
    """Number of nodes that each video is resampled to before the cut; None keeps all."""
    kappa: float = 0.05
    """Temperature of the similarity exp(cos/κ) of the cut."""
    dropout: float = 0.1
    standardise: bool = False
    """Standardise each input channel by its mean and deviation over the training videos."""
    centre: bool = False
    """Subtract from each input channel its mean over the video, to remove the look of a room or camera."""
    rescale: bool = False
    """Divide the features of each video by their deviation, to remove differences in confidence."""
    threads_at_inference: bool = True
    """Whether Cut & Match also runs at inference; otherwise the whole video is one thread."""
    random_state: int = 0
    """Random seed of K-Means in the cut."""
    backbone: str | None = None
    """Name of the features that the weights were trained on."""
    clock: Clock = field(default_factory=Clock)
    """Spacing of the nodes in training."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    operator: str = PAPER_OPERATOR
    """Registered name of the layer in the stages. `gate_size` belongs to `tdgc`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_parameters > MAX_PARAMETERS:  # before they are allocated
            size = f"{self.num_parameters / 1e9:.1f} billion parameters"
            raise InputError(f"the network must have at most 1 billion parameters, got {size}; reduce hidden_size")
        if self.sample_points is not None:  # at least one point per thread
            self._check_range("sample_points", self.num_threads, MAX_COUNT)
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be in [0, 1), got {self.dropout}")

    @property
    def num_parameters(self) -> int:
        """The number of weights of the paper's network at this size, without vectors."""
        layer = self.hidden_size * (2 * self.hidden_size + self.gate_size)
        heads = self.embedding_size * (self.hidden_size + 2 * self.embedding_size + self.text_size)
        return 2 * self.depth * self.num_layers * layer + self.input_size * self.hidden_size + heads


@dataclass(frozen=True)
class LossConfig(Config):
    """The two losses. The defaults are the best row of the paper (appendix: α = 1, β = all)."""

    alpha: float = 1.0
    """Narrations within 2^level/α seconds of a node are its positives."""
    beta: float = -1.0
    """Negatives from the same video lie within 2^level·β/α seconds; ≤ 0 uses all of them."""
    temperature: float = 0.05
    mode: Literal["v2t", "t2v", "sym"] = "sym"
    alignment_weight: float = 1.0
    thread_weight: float = 1.0
    inside: float = 0.0
    """Share of L_vna computed within each video; the rest (in the paper all of it) compares across the batch."""
    projected_threads: bool = False
    """Compare threads after h_v, as in the paper, instead of before it, as in the release."""


@dataclass(frozen=True)
class TextConfig(Config):
    """The text encoder and its training."""

    encoder: str = "minilm"
    """minilm, distilbert, or a file or folder with a text tower (EgoVLP, LaViLa, an imported checkpoint)."""
    mode: Literal["frozen", "lora", "full"] = "frozen"
    """frozen: cached embeddings without dropout; lora: trains low-rank updates; full: trains all weights."""
    lora_rank: int = 32
    """32 gives the parameter count of the paper's appendix (0.89 M for DistilBERT)."""
    lora_alpha: int = 32
    drop_tags: bool = False
    """Remove the actor tags of Ego4D ("#C C", "#O X") from the texts."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """Settings of any training run. The defaults are those of the paper (Sec. 4 and appendix B)."""

    epochs: int = 15
    batch_size: int = 8
    """Examples per step, over all processes."""
    accumulate: int = 1
    """Steps whose gradients are accumulated; negatives come from one step."""
    lr: float = 1e-5
    min_lr: float = 1e-8
    warmup_epochs: float = 5.0
    warmup_factor: float = 0.001
    """The rate grows linearly from this share of lr; after the warm-up a cosine lowers it to min_lr."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adam adds weight decay to the gradient, as in the paper; adamw decouples it."""
    weight_decay: float = 1e-5
    """Weight decay of matrices; vectors have none."""
    clip: float = 1.0
    """Maximum norm of the gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on GPUs that support it, otherwise float32."""
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be between 0 and 2³¹, got {self.seed}")
        if not 0 <= self.warmup_epochs <= self.epochs:
            raise InputError(f"warmup_epochs must be between 0 and epochs ({self.epochs}), got {self.warmup_epochs:g}")


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    """A training run of HiERO."""

    model: ModelConfig
    losses: LossConfig = field(default_factory=LossConfig)
    text: TextConfig = field(default_factory=TextConfig)
    noise: float = 0.0
    """Input noise in training, relative to the deviation of each channel if model.standardise is set."""
    jitter: float = 0.0
    """Scale each channel of each video by exp(jitter · N(0, 1)) in training."""
    text_noise: float = 0.0
    """Length of a random vector added to the unit vector of each narration in training."""
    window_s: float = 300.0
    """Length of the training windows in seconds."""


def check_text_encoder(document: Mapping[str, Any]) -> None:
    """Raise InputError if the entry `text_encoder` of a model's config.json is not a description of an encoder."""
    entry = document.get("text_encoder") or {}
    is_entry = isinstance(entry, dict) and all(
        isinstance(entry.get(name), str | None) for name in ("name", "kind", "file")
    )
    heads = (entry.get("heads") or 1) if is_entry else 0
    if not isinstance(heads, int) or heads < 1:
        raise InputError(f"text_encoder must have a name, a kind, a file and a number of heads, got {str(entry)[:80]}")


def read_preset(name: str) -> dict[str, Any]:
    """The settings of a preset, or of a .toml file."""
    presets = Path(__file__).parent / "presets"
    path = Path(name) if name.endswith(".toml") else presets / f"{name}.toml"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in presets.glob("*.toml")))
        raise InputError(f"unknown preset {name}; choose from {names}, or name your own .toml file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def override(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Apply the `--set` options of the command line."""
    values = copy.deepcopy(values)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes key=value, such as lr=1e-4 or model.hidden_size=256; got {setting!r}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a word or path
        except RecursionError:
            raise InputError(f"--set {name}: the value is nested too deeply") from None
        table = values
        *table_names, key = name.split(".")
        for table_name in table_names:
            table = table.setdefault(table_name, {})
            if not isinstance(table, dict):
                raise InputError(f"--set {setting}: {table_name} is a single value, not a group of settings")
        table[key] = value
    return values
