"""What a recording with skipped windows should become, slowly: each skipped window is a copy of the one before it."""

from __future__ import annotations


def fill_skipped(windows: dict[int, list[list[float]]]) -> list[list[float]]:
    """Rows of all windows in order, from those of the windows that were not skipped."""
    out = []
    for index in range(max(windows) + 1):
        source = index
        while source >= 0 and source not in windows:
            source -= 1
        if source < 0:
            source = min(windows)
        out += windows[source]
    return out
