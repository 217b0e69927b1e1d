"""From enriched nodes to steps: contiguous runs of threads, found, ranked and named."""
