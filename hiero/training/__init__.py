"""Training steps and loops."""
