"""Errors in the content of annotation files and reports."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager

from hiero.errors import InputError

# What a missing, damaged or strange file may raise while it is read
WRONG_CONTENT = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(RecursionError, SyntaxError, csv.Error),
)


@contextmanager
def parsing(problem: str) -> Iterator[None]:
    """Raise whatever is wrong with the content of a file as InputError: the problem, and its cause."""
    try:
        yield
    except InputError:
        raise
    except WRONG_CONTENT as error:
        raise InputError(f"{problem} ({type(error).__name__}: {error})") from error
