"""Numerical kernels of our own, each beside the plain version that it replaces."""
