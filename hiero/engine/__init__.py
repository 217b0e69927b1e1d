"""Engine: a video or a feature file in, its steps, answers and labels out. What the command line, the server and notebooks share.

    >>> engine = hiero.load()                          # doctest: +SKIP
    >>> video = engine.read("kitchen.mp4")             # doctest: +SKIP
    >>> video.steps().levels[0]                        # doctest: +SKIP
    >>> video.ask("cut the onion")[0].matches[0]       # doctest: +SKIP

`reader` reads and keeps, `asked` answers.
"""

from hiero.engine.asked import CLASS_NAMES, NO_WORDS, WEIGHTS, Video, class_names, everyday_phrases
from hiero.engine.reader import Engine, Reading, load

__all__ = ["CLASS_NAMES", "NO_WORDS", "WEIGHTS", "Engine", "Reading", "Video", "class_names", "everyday_phrases", "load"]
