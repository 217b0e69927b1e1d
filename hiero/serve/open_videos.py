"""Recently used videos and their steps, in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

from hiero.engine.video import Video
from hiero.types import Hierarchy

MAX_OPEN_BYTES = 512 * 2**20  # memory for open videos; one is kept even if it is larger
MAX_CACHED_HIERARCHIES = 100  # per video


class OpenVideos:
    """Recently used videos and their steps, in memory."""

    def __init__(self) -> None:
        self._videos: OrderedDict[str, Video] = OrderedDict()  # by entry, last used last
        self._hierarchies: WeakKeyDictionary[Video, dict[tuple[int, ...], Hierarchy]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """Approximate memory used by the open videos."""
        with self._lock:
            return sum(map(_num_bytes, self._videos.values()))

    def find(self, id: str) -> Video | None:
        with self._lock:
            if id in self._videos:
                self._videos.move_to_end(id)
            return self._videos.get(id)

    def add(self, id: str, video: Video) -> None:
        with self._lock:
            self._videos[id] = video
            while len(self._videos) > 1 and sum(map(_num_bytes, self._videos.values())) > MAX_OPEN_BYTES:
                self._videos.popitem(last=False)

    def steps(self, video: Video, num_steps: list[int] | None, labels: list[str] | None) -> Hierarchy:
        """The steps of a video, from the cache if possible."""
        key = tuple(num_steps or ())
        with self._lock:
            cached = self._hierarchies.setdefault(video, {})
        if (hierarchy := cached.get(key)) is not None:
            return hierarchy
        hierarchy = video.steps(num_steps, labels=labels)
        with self._lock:
            cached[key] = hierarchy
            while len(cached) > MAX_CACHED_HIERARCHIES:
                del cached[next(iter(cached))]
        return hierarchy

    def known_steps(self, video: Video) -> dict[tuple[int, ...], Hierarchy]:
        """The hierarchies of a video that are in memory, by their numbers of steps."""
        with self._lock:
            return dict(self._hierarchies.get(video, {}))

    def forget_steps(self) -> None:
        with self._lock:
            self._hierarchies.clear()


def _num_bytes(video: Video) -> int:
    """Approximate memory used by an open video."""
    arrays = {id(rows): rows for rows in (*video.source.features.values(), video.sight.features) if rows is not None}
    num_feature_bytes = sum(rows.nbytes for rows in arrays.values())
    return video.nodes.nbytes + num_feature_bytes + sum(map(len, video.source.thumbnails))
