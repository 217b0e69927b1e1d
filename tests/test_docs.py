"""Commands in the documentation are commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hiero.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            found += [(page.name, line) for line in block.splitlines() if line.startswith("hiero ")]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_documented_commands_parse(page, line):
    tokens = shlex.split(line, comments=True)[1:]
    function, bound, unused, *_ = app.parse_known_args(tokens)
    assert function.__name__.replace("_", "-").startswith(tuple(tokens[:2]))
    assert not unused
    assert bound.arguments or len(tokens) == 1


def test_there_are_documented_commands():
    assert len(commands()) >= 5
    assert any(page == "README.md" for page, _ in commands())


def test_documented_pages_and_pictures_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
