"""hiero --help: every command is listed, in its group."""

from __future__ import annotations

import io

from rich.console import Console

from hiero.cli import GROUPS, app


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
    assert list(listed) == list(GROUPS) == ["Videos", "Collections", "Models", "Benchmarks", "Server"]
    assert {title: len(names) for title, names in listed.items()} == {t: len(names) for t, names in GROUPS.items()}
    assert {name for names in listed.values() for name in names} == {name for name in app if not name.startswith("-")}
    assert listed["Videos"][:2] == ["steps", "ask"]
