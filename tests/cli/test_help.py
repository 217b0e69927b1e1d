"""hiero --help: every command is listed, in its group."""

from __future__ import annotations

from hiero.cli import COMMANDS, app


def test_every_command_is_listed_below_a_group(run):
    printed = run("--help")[1]
    listed = {line.split()[1] for line in printed.splitlines() if line.startswith("│ ") and line[2] != " "}
    assert listed >= {name for name in app if not name.startswith("-")}
    assert all(f"╭─ {title} " in printed for title in COMMANDS)
