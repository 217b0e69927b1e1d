"""Scores: metrics, the paper's benchmarks, one's own videos, and the paper's tables."""
