"""hiero: hours of first-person video in, a searchable hierarchy of what was done out; no labels needed.

    >>> import hiero
    >>> engine = hiero.load()                                        # doctest: +SKIP
    >>> video = engine.read("kitchen.mp4")                           # doctest: +SKIP
    >>> video.ask("cut the onion")                                   # doctest: +SKIP

Names load on first use, so that `import hiero` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hiero.backbones.registry import Backbone as Backbone
    from hiero.config import Behaviour as Behaviour
    from hiero.config import LossConfig as LossConfig
    from hiero.config import ModelConfig as ModelConfig
    from hiero.config import TextConfig as TextConfig
    from hiero.config import TrainConfig as TrainConfig
    from hiero.corpus.corpus import Corpus as Corpus
    from hiero.corpus.corpus import Hit as Hit
    from hiero.corpus.corpus import IndexedVideo as IndexedVideo
    from hiero.data.batches import Batch as Batch
    from hiero.data.batches import collate as collate
    from hiero.data.features import read_features as read_features
    from hiero.engine import Embedder as Embedder
    from hiero.engine import Engine as Engine
    from hiero.engine import Video as Video
    from hiero.engine import load as load
    from hiero.errors import InputError as InputError
    from hiero.extraction.video_features import VideoFeatures as VideoFeatures
    from hiero.formats.exports import Exporter as Exporter
    from hiero.formats.transcripts import Transcript as Transcript
    from hiero.formats.transcripts import read_transcript as read_transcript
    from hiero.model.embed import embed_features as embed_features
    from hiero.model.ensemble import HieroEnsemble as HieroEnsemble
    from hiero.model.hiero import HiERO as HiERO
    from hiero.model.hiero import Losses as Losses
    from hiero.model.released import Released as Released
    from hiero.model.released import read_released as read_released
    from hiero.model.spectral import spectral_cut as spectral_cut
    from hiero.model.unet import Level as Level
    from hiero.types import Answer as Answer
    from hiero.types import Clock as Clock
    from hiero.types import Hierarchy as Hierarchy
    from hiero.types import Match as Match
    from hiero.types import Narration as Narration
    from hiero.types import ProgressEvent as ProgressEvent
    from hiero.types import Step as Step
    from hiero.types import Utterance as Utterance
    from hiero.types import VideoFile as VideoFile
    from hiero.types import Window as Window

__version__ = "0.1.0"

_HOMES = {
    "hiero.config": ("Behaviour", "LossConfig", "ModelConfig", "TextConfig", "TrainConfig"),
    "hiero.corpus.corpus": ("Corpus", "Hit", "IndexedVideo"),
    "hiero.data.batches": ("Batch", "collate"),
    "hiero.data.features": ("read_features",),
    "hiero.formats.transcripts": ("Transcript", "read_transcript"),
    "hiero.engine": ("Embedder", "Engine", "Video", "load"),
    "hiero.errors": ("InputError",),
    "hiero.extraction.video_features": ("VideoFeatures",),
    "hiero.model.embed": ("embed_features",),
    "hiero.model.ensemble": ("HieroEnsemble",),
    "hiero.model.hiero": ("HiERO", "Losses"),
    "hiero.model.released": ("Released", "read_released"),
    "hiero.model.spectral": ("spectral_cut",),
    "hiero.model.unet": ("Level",),
    "hiero.formats.exports": ("Exporter",),
    "hiero.types": (
        "Answer",
        "Clock",
        "Hierarchy",
        "Match",
        "Narration",
        "ProgressEvent",
        "Step",
        "Utterance",
        "VideoFile",
        "Window",
    ),
    "hiero.backbones.registry": ("Backbone",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hiero' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
