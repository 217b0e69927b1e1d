"""Engine: a video or a feature file in, its steps, answers and labels out. What the command line, the server and notebooks share.

`embedder` puts features and texts into one space, `engine` reads and caches, `video` answers.
"""

from hiero.engine.embedder import NO_TEXT, Embedder
from hiero.engine.engine import Engine, load
from hiero.engine.video import CLASS_EVIDENCE_WEIGHTS, CLASS_NAMES, Video, class_names, default_labels

__all__ = [
    "CLASS_EVIDENCE_WEIGHTS", "CLASS_NAMES", "NO_TEXT", "Embedder", "Engine", "Video", "class_names", "default_labels", "load",
]  # fmt: skip
