"""VideoFeatures: the features and thumbnails of one video, and their file format."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from hiero.storage.files import load_arrays, save_arrays

MAX_REACH_S = 3.0  # from the middle of a step to its thumbnail


@dataclass
class VideoFeatures:
    """Features and thumbnails of a video.

    Attributes:
        features: Features (T, D) by the name of the backbone, with a row for each segment.
        duration_s: Length of the video.
        spacing_s: Seconds from row to row.
        thumbnail_times: Times of the thumbnails in seconds.
        thumbnails: Thumbnails as JPEG files, in time order.

    Examples:
        >>> source = VideoFeatures({"i3d-k400": np.zeros((3, 400), np.float32)}, duration_s=3.2, spacing_s=1.0)
        >>> source.num_segments
        3
        >>> source.thumbnail_at(1.5) is None
        True
    """

    features: dict[str, np.ndarray]
    duration_s: float
    spacing_s: float
    thumbnail_times: list[float] = field(default_factory=list)
    thumbnails: list[bytes] = field(default_factory=list)

    @property
    def num_segments(self) -> int:
        """Number of rows, T."""
        return len(next(iter(self.features.values())))

    def thumbnail_at(self, time_s: float) -> bytes | None:
        """The thumbnail nearest to a time as a JPEG file, or None."""
        if not self.thumbnails:
            return None
        return self.thumbnails[int(np.abs(np.array(self.thumbnail_times) - time_s).argmin())]

    def thumbnail_of(self, start_s: float, end_s: float) -> bytes | None:
        """The sharpest thumbnail near the middle of a step as a JPEG file, or None."""
        middle_s = (start_s + end_s) / 2
        reach_s = min((end_s - start_s) / 4, MAX_REACH_S)
        near = np.flatnonzero(np.abs(np.array(self.thumbnail_times) - middle_s) <= reach_s)
        # Of pictures that show almost the same, the sharpest one is the largest file.
        return max((self.thumbnails[i] for i in near), key=len, default=None) or self.thumbnail_at(middle_s)

    def save(self, path: Path) -> None:
        """Write a safetensors file atomically."""
        save_arrays(
            path,
            {
                **{f"features/{name}": value for name, value in self.features.items()},
                "clock": np.array([self.duration_s, self.spacing_s]),
                "picture_times": np.array(self.thumbnail_times, dtype=np.float64),
                # All JPEG files concatenated; a single zero byte if there are none.
                "picture_ends": np.cumsum([len(picture) for picture in self.thumbnails], dtype=np.int64),
                "pictures": np.frombuffer(b"".join(self.thumbnails) or bytes(1), dtype=np.uint8),
            },
        )

    @classmethod
    def load(cls, path: Path) -> VideoFeatures:
        """Read what `save` wrote.

        Raises:
            InputError: The file is damaged.
            KeyError: It is another kind of safetensors file.
        """
        arrays = load_arrays(path)
        duration_s, spacing_s = arrays["clock"].tolist()
        joined, ends = arrays["pictures"].tobytes(), [0, *arrays["picture_ends"].tolist()]
        thumbnails = [joined[start:end] for start, end in pairwise(ends)]
        features = {
            name.removeprefix("features/"): value for name, value in arrays.items() if name.startswith("features/")
        }
        return cls(features, duration_s, spacing_s, arrays["picture_times"].tolist(), thumbnails)
