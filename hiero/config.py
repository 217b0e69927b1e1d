"""Settings, as frozen dataclasses that read and write plain JSON.

`Behaviour` is the one place where the release's quirks are switched on or off.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from hiero.errors import InputError
from hiero.records import Clock


class Record:
    """JSON in and out for the dataclasses below. An unknown key is an error, not a silent loss."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _nested: ClassVar[dict[str, Any]] = {}

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        known = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InputError(f"{cls.__name__} has no setting {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
        nested = {name: build(values[name]) for name, build in cls._nested.items() if isinstance(values.get(name), dict)}
        return cls(**{**values, **nested})

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True)
class Behaviour(Record):
    """Named differences between the authors' release and the paper's intent. True means: as the release does it."""

    mixed_threads: bool = False
    """Search thread neighbours with unsorted thread ids, so that most edges cross threads or join equal ranks."""
    truncated_labels: bool = False
    """Propagate thread labels through a weighted mean and an int cast, so that some drop by one."""
    rounded_times: bool = False
    """Take distances from float32 times, rounding included, even on a uniform clock where they are exact multiples."""

    @classmethod
    def corrected(cls) -> Behaviour:
        return cls()

    @classmethod
    def released(cls) -> Behaviour:
        return cls(mixed_threads=True, truncated_labels=True, rounded_times=True)


@dataclass(frozen=True)
class ModelConfig(Record):
    """The network. Defaults are the paper's."""

    input_size: int
    """Width of the backbone's features."""
    hidden_size: int = 768
    embedding_size: int = 768
    """Width of the space that video and text share, after h_v and h_t."""
    text_size: int = 768
    """Width of the text encoder's output."""
    depth: int = 3
    """Levels of the encoder; the decoder puts out levels 0 … depth − 1."""
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
    threads_at_inference: bool = True
    """Cut & Match outside training too; otherwise the whole video is one thread."""
    random_state: int = 0
    """Seed of the K-Means inside the cut."""
    backbone: str | None = None
    """Name of the features that the weights belong to."""
    clock: Clock = field(default_factory=Clock)
    """Spacing of the nodes that the weights were trained with."""
    behaviour: Behaviour = field(default_factory=Behaviour)

    _nested: ClassVar[dict[str, Any]] = {"clock": lambda d: Clock(**d), "behaviour": Behaviour.from_dict}

    def __post_init__(self) -> None:
        for name in ("input_size", "hidden_size", "embedding_size", "text_size", "depth", "num_layers", "gate_size", "num_threads"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("radius_s", "thread_radius", "kappa"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be positive, got {getattr(self, name)}")
        if self.sample_points is not None and self.sample_points < self.num_threads:
            raise InputError(f"sample_points ({self.sample_points}) must not be fewer than num_threads ({self.num_threads})")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True)
class LossConfig(Record):
    """The two losses. Defaults are the paper's best row (appendix: α = 1, β = all)."""

    alpha: float = 1.0
    """Narrations within 2^level/α seconds of a node are its positives: a larger α is narrower."""
    beta: float = -1.0
    """Same-video negatives reach to 2^level·β/α seconds; ≤ 0 means all of them."""
    temperature: float = 0.05
    mode: Literal["v2t", "t2v", "sym"] = "sym"
    alignment_weight: float = 1.0
    thread_weight: float = 1.0
    projected_threads: bool = False
    """Compare threads after h_v, as the paper writes, instead of on the decoder's features, as its release does."""

    def __post_init__(self) -> None:
        if not self.alpha > 0 or not self.temperature > 0:
            raise InputError(f"alpha and temperature must be positive, got {self.alpha} and {self.temperature}")
        if self.mode not in ("v2t", "t2v", "sym"):
            raise InputError(f"mode must be v2t, t2v or sym, got {self.mode}")
