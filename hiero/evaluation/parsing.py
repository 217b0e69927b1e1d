"""Errors in the content of annotation files and reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hiero.errors import InputError

WRONG_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@contextmanager
def parsing(problem: str) -> Iterator[None]:
    """Raise whatever is wrong with the content of a file as InputError: the problem, and its cause."""
    try:
        yield
    except InputError:
        raise
    except WRONG_CONTENT as error:
        raise InputError(f"{problem} ({type(error).__name__}: {error})") from error
