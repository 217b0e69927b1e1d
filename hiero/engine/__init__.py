"""Engine: a video or a feature file in, its steps, answers and labels out. What the command line, the
server and notebooks share.

`embedder` puts features and texts into one space, `engine` reads and caches, `video` answers.
"""

from hiero.engine.embedder import NO_TEXT, Embedder
from hiero.engine.engine import Engine, engine_for, load
from hiero.engine.video import Video
from hiero.engine.video_nodes import CLASS_TEMPERATURE, CLASS_WEIGHT, SpanSummaries, class_names, default_labels

__all__ = [
    "CLASS_TEMPERATURE",
    "CLASS_WEIGHT",
    "NO_TEXT",
    "Embedder",
    "Engine",
    "SpanSummaries",
    "Video",
    "class_names",
    "default_labels",
    "engine_for",
    "load",
]
