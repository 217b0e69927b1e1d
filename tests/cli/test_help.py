"""hiero --help: every command is listed, in its group."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console

from hiero.cli import GROUPS, app, main


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


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("table mcq", "hiero reproduce DATA TABLE"),
        ("data check data/", "hiero reproduce DATA --check"),
        ("steps tea.mp4 --split 0", "hiero clips"),
        ("steps tea.mp4 --method pieces", "--method contiguous"),
    ],
)
def test_an_earlier_spelling_names_the_new_one(old, new, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hiero", *old.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert new in capsys.readouterr().err
