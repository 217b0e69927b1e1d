"""The engine turns a video or a feature file into steps, answers and labels.

The command line, the server and notebooks share it. `embedder` puts features and texts into one space,
`engine` reads and caches, and `video` answers.
"""

from hiero.engine.embedder import NO_TEXT, Embedder
from hiero.engine.engine import Engine, load
from hiero.engine.video import Video

__all__ = ["NO_TEXT", "Embedder", "Engine", "Video", "load"]
