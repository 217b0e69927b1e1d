"""The engine turns a video or a feature file into steps, answers and labels.

`model_engine` loads an engine by name, `engine` reads and caches, and `video` answers, with the `evidence`
that a video has for texts.
"""

from hiero.engine.embedder import NO_TEXT, Embedder
from hiero.engine.engine import Engine
from hiero.engine.model_engine import load
from hiero.engine.video import Video

__all__ = ["NO_TEXT", "Embedder", "Engine", "Video", "load"]
