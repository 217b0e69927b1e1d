"""Thousands of generated inputs for every reader, command and route; `python -m tests.fuzz --help` runs them."""
