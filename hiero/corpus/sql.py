"""Literals of LanceDB's SQL."""

from __future__ import annotations

ALL_ROWS = 100_000_000  # LanceDB returns 10 rows where no limit is given


def sql_string(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_strings(texts: list[str]) -> str:
    """A list of string literals, for IN."""
    return f"({', '.join(map(sql_string, texts))})"
