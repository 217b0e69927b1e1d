"""Rows of files on one timeline, row by row: which file is on at the middle of the row, and which
of its rows is that.
"""

from __future__ import annotations

from fractions import Fraction


def row_origins(durations: list[Fraction], num_rows: list[int], spacing: Fraction) -> list[tuple[int, int]]:
    """(file, row in it) of each row of the joined video, in exact arithmetic."""
    total = sum(durations)
    out = []
    for i in range(max(1, round(total / spacing))):
        middle = (i + Fraction(1, 2)) * spacing
        file = 0
        while file + 1 < len(durations) and middle >= durations[file]:
            middle -= durations[file]
            file += 1
        out.append((file, min(int(middle / spacing), num_rows[file] - 1)))
    return out
