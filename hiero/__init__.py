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
    from hiero.config import Behaviour as Behaviour
    from hiero.config import LossConfig as LossConfig
    from hiero.config import ModelConfig as ModelConfig
    from hiero.data.batch import collate as collate
    from hiero.data.features import read_features as read_features
    from hiero.engine import Engine as Engine
    from hiero.engine import Video as Video
    from hiero.engine import load as load
    from hiero.errors import InputError as InputError
    from hiero.model.embed import embed_features as embed_features
    from hiero.model.hiero import HiERO as HiERO
    from hiero.model.released import read_released as read_released
    from hiero.model.spectral import spectral_cut as spectral_cut
    from hiero.records import Clock as Clock

__version__ = "0.1.0"

_HOMES = {
    "Behaviour": "hiero.config",
    "Clock": "hiero.records",
    "Engine": "hiero.engine",
    "HiERO": "hiero.model.hiero",
    "InputError": "hiero.errors",
    "LossConfig": "hiero.config",
    "ModelConfig": "hiero.config",
    "Video": "hiero.engine",
    "collate": "hiero.data.batch",
    "embed_features": "hiero.model.embed",
    "load": "hiero.engine",
    "read_features": "hiero.data.features",
    "read_released": "hiero.model.released",
    "spectral_cut": "hiero.model.spectral",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hiero' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
