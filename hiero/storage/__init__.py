"""What is on disk, and how far it is trusted: files, caches, weights, checkpoints."""
