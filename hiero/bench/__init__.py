"""Benchmarks of the paper: metrics, readers, protocols."""
