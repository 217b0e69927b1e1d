"""Settings, as frozen dataclasses that read and write plain JSON.

`Behaviour` is the one place where the release's quirks are switched on or off.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

from hiero.errors import InputError
from hiero.types import Clock

MAX_DEPTH = 16  # level 16 has a node for every 65,536 segments: nine hours
MAX_LAYERS = 64
MAX_SIZE = 2**16  # of any width
MAX_COUNT = 10**6  # of threads, sample points, epochs, examples in a step
MAX_PARAMETERS = 10**9  # of a network: 4 GB, and four times that in training


class Config:
    """JSON in and out for the dataclasses below. An unknown key is an error, not a silent loss."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _nested: ClassVar[dict[str, Any]] = {}  # how fields that are dataclasses themselves are built from a dict

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in JSON and TOML."""
        values = dataclasses.asdict(self)
        nested = {name: getattr(self, name) for name in values}
        return {**values, **{name: value.to_dict() for name, value in nested.items() if isinstance(value, Config)}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The reverse of `to_dict`; missing settings get their defaults."""
        names = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - names):
            raise InputError(f"{cls.__name__} has no setting {', '.join(unknown)}; it knows {', '.join(sorted(names))}")
        try:
            nested = {
                name: build(values[name]) for name, build in cls._nested.items() if isinstance(values.get(name), dict)
            }
        except TypeError as error:  # a clock, which is no Config, with an unknown setting
            raise InputError(f"{cls.__name__}: {error}") from error
        hints = get_type_hints(cls)
        for name, value in values.items():
            is_infinite = isinstance(value, float) and not math.isfinite(value)
            if name not in nested and (is_infinite or not _has_type(value, hints[name])):
                raise InputError(f"{cls.__name__}.{name} cannot be {value!r}")
        return cls(**{**values, **nested})

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed."""
        return dataclasses.replace(self, **changes)


def _has_type(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON or TOML is of a field's plain type. Choices are checked by the
    dataclasses themselves.
    """
    if get_origin(hint) is Literal:
        return isinstance(value, str)
    options = get_args(hint) or (hint,)
    if isinstance(value, bool):  # which Python counts as a number
        return bool in options
    return any(isinstance(value, option) for option in options) or (float in options and isinstance(value, int))


@dataclass(frozen=True)
class Behaviour(Config):
    """Named differences between the authors' release and the paper's intent. True means: as the release does it."""

    mixed_threads: bool = False
    """Search thread neighbours with unsorted thread ids, so that most edges cross threads or join equal ranks."""
    truncated_labels: bool = False
    """Propagate thread labels through a weighted mean and an int cast, so that some drop by one."""
    rounded_times: bool = False
    """Take distances from float32 times, rounding included, even on a uniform clock where they are exact multiples."""
    rounded_samples: bool = False
    """Find the nearest sample from float32 positions, rounding included: a node half-way between
    two then takes the later one.
    """

    @classmethod
    def corrected(cls) -> Behaviour:
        """As the paper intends."""
        return cls()

    @classmethod
    def released(cls) -> Behaviour:
        """As the authors' release does it."""
        return cls(mixed_threads=True, truncated_labels=True, rounded_times=True, rounded_samples=True)


# The parts of the network that other packages and scripts can replace; see hiero/model/parts.py.
PAPER_PARTS = {"operator": "tdgc", "pooling": "mean", "clustering": "spectral"}


@dataclass(frozen=True)
class ModelConfig(Config):
    """The network. Defaults are the paper's."""

    input_size: int
    """Width of the backbone's features."""
    hidden_size: int = 768
    embedding_size: int = 768
    """Width of the space that video and text share, after h_v and h_t."""
    text_size: int = 768
    """Width of the text encoder's output."""
    depth: int = 3
    """Levels of the encoder; the decoder puts out levels 0 … depth − 1. With 0 there is no graph:
    an MLP on each segment.
    """
    num_layers: int = 3
    """TDGC layers in a stage."""
    gate_size: int = 256
    """Hidden width of the MLP that turns a temporal distance into a gate."""
    radius_s: float = 1.0
    """Neighbours at level l are closer than radius_s · 2^l seconds (strict)."""
    thread_radius: float = 1.5
    """Neighbours inside a thread are closer than this many ranks."""
    num_threads: int = 4
    sample_points: int | None = 32
    """Nodes that each video is resampled to before the cut; None cuts all nodes."""
    kappa: float = 0.05
    """Temperature of the similarity exp(cos/κ) that the cut works on."""
    dropout: float = 0.1
    standardise: bool = False
    """Shift and scale each input channel by its mean and deviation over the training videos, kept with the weights."""
    centre: bool = False
    """Subtract from each input channel its mean over the video, so that a room or a camera's own look says nothing."""
    rescale: bool = False
    """Divide each video by its overall deviation, so that a classifier that is surer of everything says the same."""
    threads_at_inference: bool = True
    """Cut & Match outside training too; otherwise the whole video is one thread."""
    random_state: int = 0
    """Seed of the K-Means inside the cut."""
    backbone: str | None = None
    """Name of the features that the weights belong to."""
    clock: Clock = field(default_factory=Clock)
    """Spacing of the nodes that the weights were trained with."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    operator: str = PAPER_PARTS["operator"]
    """Layer of the stages, by its registered name. `gate_size` is a setting of the paper's, `tdgc`."""
    pooling: str = PAPER_PARTS["pooling"]
    """How the encoder halves the rate, by its registered name."""
    clustering: str = PAPER_PARTS["clustering"]
    """How the decoder finds threads, by its registered name. `kappa` is a setting of the paper's, `spectral`."""

    _nested: ClassVar[dict[str, Any]] = {"clock": lambda d: Clock(**d), "behaviour": Behaviour.from_dict}

    def __post_init__(self) -> None:
        for name in ("input_size", "hidden_size", "embedding_size", "text_size", "gate_size"):
            _check_range(self, name, 1, MAX_SIZE)
        _check_range(self, "num_layers", 1, MAX_LAYERS)
        _check_range(self, "num_threads", 1, MAX_COUNT)
        _check_range(self, "depth", 0, MAX_DEPTH)
        if self.sample_points is not None:
            _check_range(self, "sample_points", 1, MAX_COUNT)
        if self.num_parameters > MAX_PARAMETERS:  # before they are allocated
            raise InputError(
                f"depth {self.depth}, num_layers {self.num_layers} and hidden_size {self.hidden_size} make a "
                f"network of {self.num_parameters / 1e9:.1f} billion parameters; at most {MAX_PARAMETERS / 1e9:.0f} "
                "billion are supported"
            )
        for name in ("radius_s", "thread_radius", "kappa"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.sample_points is not None and self.sample_points < self.num_threads:
            raise InputError(
                f"sample_points ({self.sample_points}) must not be fewer than num_threads ({self.num_threads})"
            )
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be in [0, 1), got {self.dropout}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values. Parts are recorded where they are not the paper's, so that fingerprints and
        files of the paper's network stay the same.
        """
        other_parts = self.other_parts
        return {k: v for k, v in super().to_dict().items() if k not in PAPER_PARTS or k in other_parts}

    @property
    def other_parts(self) -> dict[str, str]:
        """Operator, pooling and clustering where they are not the paper's."""
        return {kind: getattr(self, kind) for kind, name in PAPER_PARTS.items() if getattr(self, kind) != name}

    @property
    def num_parameters(self) -> int:
        """How many weights the paper's network of this size has, but for vectors."""
        layer = self.hidden_size * (2 * self.hidden_size + self.gate_size)
        heads = self.embedding_size * (self.hidden_size + 2 * self.embedding_size + self.text_size)
        return 2 * self.depth * self.num_layers * layer + self.input_size * self.hidden_size + heads


@dataclass(frozen=True)
class LossConfig(Config):
    """The two losses. Defaults are the paper's best row (appendix: α = 1, β = all)."""

    alpha: float = 1.0
    """Narrations within 2^level/α seconds of a node are its positives: a larger α is narrower."""
    beta: float = -1.0
    """Same-video negatives reach to 2^level·β/α seconds; ≤ 0 means all of them."""
    temperature: float = 0.05
    mode: Literal["v2t", "t2v", "sym"] = "sym"
    alignment_weight: float = 1.0
    thread_weight: float = 1.0
    inside: float = 0.0
    """Share of L_vna that is taken within each video alone; the rest, and all of it in the paper,
    compares across the batch.
    """
    projected_threads: bool = False
    """Compare threads after h_v, as the paper writes, instead of on the decoder's features, as its release does."""

    def __post_init__(self) -> None:
        if not self.alpha > 0 or not self.temperature > 0:
            raise InputError(f"alpha and temperature must be positive, got {self.alpha} and {self.temperature}")
        if self.mode not in ("v2t", "t2v", "sym"):
            raise InputError(f"mode must be v2t, t2v or sym, got {self.mode}")
        if not 0 <= self.inside <= 1:
            raise InputError(f"inside must be between 0 and 1, got {self.inside}")


@dataclass(frozen=True)
class TextConfig(Config):
    """The text encoder and how it takes part in training."""

    encoder: str = "minilm"
    """minilm, distilbert, or a file or folder with a text tower (EgoVLP's, LaViLa's, an imported checkpoint's)."""
    mode: Literal["frozen", "lora", "full"] = "frozen"
    """frozen: vectors are computed once and cached, dropout off; lora: low-rank corrections learn;
    full: all of it learns.
    """
    lora_rank: int = 32
    """With corrections of query, key and value this is the parameter count of the paper's appendix
    (0.89 M for DistilBERT).
    """
    lora_alpha: int = 32
    drop_tags: bool = False
    """Leave Ego4D's marks of who acts ("#C C", "#O X") out of the texts."""

    def __post_init__(self) -> None:
        _check_choice(self, "mode", ("frozen", "lora", "full"))
        for name in ("lora_rank", "lora_alpha"):
            _check_range(self, name, 1, MAX_SIZE)


@dataclass(frozen=True, kw_only=True)
class RunConfig(Config):
    """How a network is trained, whichever it is. Defaults are the paper's (Sec. 4 and appendix B)."""

    epochs: int = 15
    batch_size: int = 8
    """Examples in a step, over all processes together."""
    accumulate: int = 1
    """Steps whose gradients are added before the weights change; negatives come from within one of them."""
    lr: float = 1e-5
    min_lr: float = 1e-8
    warmup_epochs: float = 5.0
    warmup_factor: float = 0.001
    """The rate starts at this share of lr and grows linearly; after the warm-up it falls to min_lr on a cosine."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adam adds weight decay to the gradient, as the paper does; adamw shrinks the weights by it,
    whatever the gradient.
    """
    weight_decay: float = 1e-5
    """Of matrices; vectors have none."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 on GPUs that have it, else float32."""
    seed: int = 0

    def __post_init__(self) -> None:
        _check_choice(self, "precision", ("auto", "float32", "bfloat16"))
        _check_choice(self, "optimizer", ("adam", "adamw"))
        for name in ("epochs", "batch_size", "accumulate"):
            _check_range(self, name, 1, MAX_COUNT)
        if not 0 <= self.seed < 2**31:
            raise InputError(f"seed must be between 0 and 2³¹, got {self.seed}")
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")


@dataclass(frozen=True)
class TrainConfig(RunConfig):
    """A training run of HiERO."""

    model: ModelConfig
    losses: LossConfig = field(default_factory=LossConfig)
    text: TextConfig = field(default_factory=TextConfig)
    noise: float = 0.0
    """Noise added to the inputs in training, in deviations of each channel (with model.standardise)
    or in their own units.
    """
    jitter: float = 0.0
    """Each channel of each video is stretched by exp(jitter · N(0, 1)): another classifier is surer of other things."""
    text_noise: float = 0.0
    """Length of a random vector added to each narration's unit vector, so that words near to it mean the same."""
    window_s: float = 300.0
    """Length of the windows that videos are cut into."""

    _nested: ClassVar[dict[str, Any]] = {
        "model": ModelConfig.from_dict,
        "losses": LossConfig.from_dict,
        "text": TextConfig.from_dict,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.window_s > 0:
            raise InputError(f"window_s must be positive, got {self.window_s}")


def _check_range(config: Any, name: str, least: int, most: int) -> None:
    value = getattr(config, name)
    if value < least:
        raise InputError(f"{name} must be at least {least}, got {value}")
    if value > most:
        raise InputError(f"{name} must be at most {most}, got {value}")


def _check_choice(config: Any, name: str, choices: tuple[str, ...]) -> None:
    if getattr(config, name) not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, got {getattr(config, name)!r}")


def read_preset(name: str) -> dict[str, Any]:
    """Settings of a training run."""
    presets = Path(__file__).parent / "presets"
    path = Path(name) if name.endswith(".toml") else presets / f"{name}.toml"
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in presets.glob("*.toml")))
        raise InputError(f"no preset {name}; known are {names}, or a .toml file of your own")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not TOML ({error})") from error
    except RecursionError:
        raise InputError(f"{path}: not TOML (its lists or tables are nested too deep)") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def override(values: dict[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Change settings from the command line."""
    values = copy.deepcopy(values)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes key=value, such as lr=1e-4 or model.hidden_size=256; got {setting!r}")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text  # a plain word or path
        except RecursionError:
            raise InputError(f"--set {name}: its value is nested too deep") from None
        table = values
        *table_names, key = name.split(".")
        for table_name in table_names:
            table = table.setdefault(table_name, {})
            if not isinstance(table, dict):
                raise InputError(f"--set {setting}: {table_name} is a value, not a group of settings")
        table[key] = value
    return values
