"""hiero --help: every command is listed, in its group."""

from __future__ import annotations

import io

from rich.console import Console

from hiero.cli import COMMANDS, app


def test_every_command_is_listed_in_its_group():
    output = io.StringIO()
    app.help_print([], console=Console(file=output, width=80))
    listed: dict[str, list[str]] = {}
    for line in output.getvalue().splitlines():
        if line.startswith("╭─ "):
            listed[line.split()[1]] = names = []
        elif line.startswith("│ ") and line[2] != " ":
            names.append(line.split()[1])
    assert listed.pop("Options") == ["--help", "--version"]
    assert listed == {title: list(commands) for title, commands in COMMANDS.items()}
    assert {name for names in listed.values() for name in names} == {name for name in app if not name.startswith("-")}
