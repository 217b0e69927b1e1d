"""Files on disk and how far they are trusted: atomic writes, caches, weights, checkpoints, pickles."""
