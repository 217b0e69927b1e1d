"""Commands in this process, to be fast."""

from __future__ import annotations

import pytest

from hiero.cli import app


@pytest.fixture
def run(capsys):
    """Runs a command; gives its exit code, and what it printed."""

    def call(*arguments):
        try:
            app([str(argument) for argument in arguments], result_action="return_value")
            code = 0
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call
