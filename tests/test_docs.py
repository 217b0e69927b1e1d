"""What the documentation says is so: commands parse, files exist, generated pages are up to date,
lines are wrapped.
"""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest

import hiero
from hiero.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def documented_commands() -> list[tuple[str, str]]:
    """The page and the text of each command in a block of shell code."""
    commands = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            commands += [(page.name, line) for line in block.splitlines() if line.startswith("hiero ")]
    return commands


@pytest.mark.parametrize(("page", "line"), documented_commands())
def test_documented_commands_parse(page, line):
    tokens = shlex.split(line, comments=True)[1:]
    function, bound, unused, *_ = app.parse_known_args(tokens)
    assert function.__name__.replace("_", "-").startswith(tuple(tokens[:3]))
    assert not unused
    assert bound.arguments or len(tokens) == 1


def test_there_are_documented_commands():
    assert len(documented_commands()) >= 5
    assert any(page == "README.md" for page, _ in documented_commands())


def test_documented_pages_and_pictures_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_of_commands_is_up_to_date():
    generate = runpy.run_path(str(ROOT / "docs" / "_commands.py"))["generate"]
    assert (ROOT / "docs/reference/commands.md").read_text() == generate(), "run: python docs/_commands.py"


def test_all_public_names_are_in_the_reference():
    named = re.findall(r"^::: hiero\.(\w+)$", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    assert sorted(named) == hiero.__all__


def test_all_environment_variables_are_documented():
    page = (ROOT / "docs/reference/environment.md").read_text()
    sources = [file.read_text() for file in (ROOT / "hiero").rglob("*.py")]
    names = {name for text in sources for name in re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", text)}
    assert len(names) >= 5
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_the_example_of_a_plugin_is_the_one_that_is_tested():
    page = (ROOT / "docs/guides/plugins.md").read_text()
    for name in ("pyproject.toml", "hiero_example_plugin.py"):
        assert (ROOT / "tests/fixtures/plugin" / name).read_text().strip() in page


def test_the_layers_in_the_guide_for_contributors():
    contract, _ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [sorted(layer.split(" | ")) for layer in contract["layers"]]
    block = re.search(r"```\n(cli\n.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert [sorted(line.split()) for line in block[1].splitlines()] == layers


def test_files_that_contributors_are_sent_to_exist():
    for name in ("CONTRIBUTING.md", "docs/design.md", "docs/method.md", "docs/results.md", "docs/performance.md"):
        for path in re.findall(r"`((?:hiero|tests|docs|benchmarks)/[\w./]+)`", (ROOT / name).read_text()):
            assert (ROOT / path).exists(), f"{name} names {path}"


def test_prose_is_wrapped():
    for page in PAGES:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith(("|", "![")):
                assert len(line) <= 120, f"{page.name}:{number}"
