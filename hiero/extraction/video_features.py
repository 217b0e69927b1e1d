"""What reading a video gave, as it is kept in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from hiero.storage.files import load_arrays, save_arrays


@dataclass
class VideoFeatures:
    """Features of a video by backbone (T, width), how long it is, and small JPEG pictures with their times."""

    features: dict[str, np.ndarray]
    duration_s: float
    spacing_s: float
    picture_times: list[float] = field(default_factory=list)
    pictures: list[bytes] = field(default_factory=list)

    @property
    def num_segments(self) -> int:
        return len(next(iter(self.features.values())))

    def thumbnail_at(self, time_s: float) -> bytes | None:
        """The small picture nearest to a moment."""
        if not self.pictures:
            return None
        return self.pictures[int(np.abs(np.array(self.picture_times) - time_s).argmin())]

    def save(self, path: Path) -> None:
        save_arrays(path, {
            **{f"features/{name}": value for name, value in self.features.items()},
            "clock": np.array([self.duration_s, self.spacing_s]),
            "picture_times": np.array(self.picture_times, dtype=np.float64),
            "picture_ends": np.cumsum([len(picture) for picture in self.pictures], dtype=np.int64),
            "pictures": np.frombuffer(b"".join(self.pictures) or bytes(1), dtype=np.uint8),
        })  # fmt: skip

    @classmethod
    def load(cls, path: Path) -> VideoFeatures:
        held = load_arrays(path)
        duration_s, spacing_s = held["clock"].tolist()
        blob, ends = held["pictures"].tobytes(), [0, *held["picture_ends"].tolist()]
        pictures = [blob[a:b] for a, b in pairwise(ends)]
        features = {name.removeprefix("features/"): value for name, value in held.items() if name.startswith("features/")}
        return cls(features, duration_s, spacing_s, held["picture_times"].tolist(), pictures)
