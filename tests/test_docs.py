"""The documentation is true: its commands exist, its Python blocks run, and its sessions print what they show."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib

import pytest

import hiero
from examples.photographs import write_film
from hiero.cli import app
from tests.documentation import (
    PAGES,
    ROOT,
    SCHEMAS,
    check_schema,
    read_blocks,
    read_commands,
    read_options,
    read_shell_blocks,
)
from tests.optional import skip_without, weights_or_skip
from tests.processes import run_python
from tools.reference import PAGES as PAGES_OF_THE_REFERENCE

SHELL_PAGES = [*PAGES, ROOT / "benchmarks" / "README.md", *sorted((ROOT / "hiero/assets").glob("*/README.md"))]
# Programs that the documentation may use without a check of their arguments.
PROGRAMS = {"apt-get", "cat", "cd", "cp", "curl", "docker", "ffmpeg", "git", "install", "ls", "mkdir", "pip", "podman"}
PROGRAMS |= {"ollama", "pre-commit", "rm", "source", "systemctl", "tee", "torchrun", "useradd"}
PYTHON = ["python", "-m", "json"]
PERCENTAGE = re.compile(r"\d+(?= ?%)")
SECOND_WORD = re.compile(r"(?<=\w, )\w+\? *")
OFFLINE = """
import socket

def refuse(*_):
    raise OSError("the documentation is run without a network")

socket.socket.connect = socket.getaddrinfo = refuse
"""
# Videos that the documentation reads are replaced by features, so that no video has to be decoded.
STAND_IN = """
import numpy as np
import hiero

read = hiero.Engine.read

def read_or_stand_in(engine, path, **options):
    if not str(path).endswith(".mp4"):
        return read(engine, path, **options)
    features = np.random.default_rng(0).normal(size=(48, 400)).astype(np.float32)
    return engine.read_array(features, hiero.Clock(fps=1, stride=1), str(path))

hiero.Engine.read = read_or_stand_in
"""


@pytest.mark.parametrize("page", SHELL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist_and_take_their_options(page):
    for block in read_shell_blocks(page):
        for command in read_commands(block.code):
            check_command(command)
    for command in re.findall(r"`(python -m (?:benchmarks|examples|tools|tests)\.[^`]+)`", page.read_text()):
        check_command(read_commands(" ".join(command.split()))[0])


def check_command(words: list[str]) -> None:
    """A documented command can be run: it exists, and takes these options."""
    match words:
        case ["hiero", *arguments]:
            check_hiero(arguments)
        case ["python" | "python3", "-m", module, *arguments]:
            check_module(module, arguments)
        case ["python" | "python3", "-c", code]:
            compile(code, "<documentation>", "exec")
        case ["python" | "python3", path, *_]:
            assert (ROOT / path).exists(), f"{path} does not exist"
        case ["make", *arguments]:
            targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
            assert {argument for argument in arguments if "=" not in argument} <= targets
        case ["pip", "install", *arguments]:
            for names in re.findall(r"hiero-video\[([\w,]+)\]", " ".join(arguments)):
                assert set(names.split(",")) <= set(read_extras())
        case [program, *_]:
            assert program in PROGRAMS, f"{program} is not a program that the documentation may use"


def check_hiero(arguments: list[str]) -> None:
    if {"--help", "-h", "--version"} & set(arguments):
        return
    if "--plugin" in arguments:  # every command takes it
        place = arguments.index("--plugin")
        arguments = arguments[:place] + arguments[place + 2 :]
    function, bound, unused, *_ = app.parse_known_args(arguments)
    assert any(argument.replace("-", "_") in function.__name__ for argument in arguments[:3])
    assert not unused
    assert bound.arguments or len(arguments) <= 2


def check_module(module: str, arguments: list[str]) -> None:
    if module in ("venv", "pip", "pytest"):
        return
    if module == "hiero":
        check_hiero(arguments)
        return
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"python -m {module} does not exist"
    if module.startswith("benchmarks."):
        options, choices = read_options(module)
        used = {argument for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert used <= options, f"python -m {module} has no option {', '.join(used - options)}"
        assert not choices or arguments[0] in choices


def read_extras() -> list[str]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("A=x hiero ask a.mp4 \\\n'cut it' > b | python -m json  # c", [["hiero", "ask", "a.mp4", "cut it"], PYTHON]),
        ("cat > .env <<END\nhiero nonsense\nEND\nmake test", [["cat"], ["make", "test"]]),
        ("sudo -u hiero /opt/bin/hiero doctor && docker compose exec hiero hiero doctor", [["hiero", "doctor"]] * 2),
        ("for f in *.mp4; do hiero steps $f; done", [["hiero", "steps", "$f"]]),
    ],
)
def test_commands_of_a_shell_script(script, wanted):
    assert read_commands(script) == wanted


@pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks(page, tmp_path):
    """The blocks of a page share a namespace, as in a notebook."""
    blocks = [block for block in read_blocks(page, "python") if block.reason is None]
    # Each block begins at its line of the page, so that a traceback names the right one.
    program = [OFFLINE + STAND_IN, f"import os\nos.chdir({str(tmp_path)!r})\nnamespace = {{'__name__': '__main__'}}"]
    for block in blocks:
        code = "\n" * (block.line - 1) + block.code
        program.append(f"exec(compile({code!r}, {str(page)!r}, 'exec'), namespace)")
    done = run_python("\n".join(program), check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if read_blocks(page, "json")], ids=lambda page: page.name)
def test_json_blocks_can_be_parsed(page):
    for block in read_blocks(page, "json"):
        json.loads(block.code)


def compare(printed: str, shown: str) -> None:
    """Probabilities may differ by 2 %, and so the second word of a step: sums are rounded in another order."""
    same, other = (SECOND_WORD.sub("W ", PERCENTAGE.sub("N", text)) for text in (printed, shown))
    assert same == other
    pairs = zip(PERCENTAGE.findall(printed), PERCENTAGE.findall(shown), strict=True)
    assert all(abs(int(a) - int(b)) <= 2 for a, b in pairs), printed


@pytest.mark.slow
def test_sessions_with_the_sample_film_print_what_the_pages_show(tmp_path):
    skip_without("skimage", "needs the photographs of scikit-image")
    for weights in ("i3d-k400", "dinov2-text", "minilm"):
        weights_or_skip(weights)
    write_film(tmp_path / "photographs.mp4")
    readme, tutorial = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
    labels = re.search(r"labels.txt <<END\n(.*?)END\n", tutorial.read_text(), re.DOTALL)[1]
    (tmp_path / "labels.txt").write_text(labels)

    def run(code):
        printed = run_python(f"import os\nos.chdir({str(tmp_path)!r})\n{code}").stdout
        return re.sub(r" +$", "", printed, flags=re.MULTILINE).strip()

    for block in [*read_blocks(readme, "console"), *read_blocks(tutorial, "console")]:
        for command, shown in re.findall(r"^\$ hiero (.*)\n((?:(?!\$ ).*\n?)*)", block.code, re.MULTILINE):
            arguments = f"import sys\nsys.argv[1:] = {shlex.split(command)}\n"
            compare(run(f"{arguments}from hiero.__main__ import main\nmain()"), shown.strip())
    (program,), (shown,) = read_blocks(readme, "python"), read_blocks(readme, "text")
    compare(run(program.code), shown.code.strip())


def test_the_reference_has_all_public_names_commands_and_documents():
    pages = {name: write() for name, write in PAGES_OF_THE_REFERENCE.items()}
    assert [name for name in hiero.__all__ if f"### {name}\n" not in pages["api"]] == []
    assert [name for name in app if name.isalpha() and f"hiero {name}" not in pages["commands"]] == []
    titles = [json.loads(schema.read_text())["title"] for schema in SCHEMAS.glob("*.json")]
    assert [title for title in titles if title not in pages["json"]] == []
    assert "`HIERO_HOME`" in pages["environment"]


@pytest.mark.slow
def test_the_site_has_the_generated_pages(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    assert "hiero steps" in (tmp_path / "reference" / "commands" / "index.html").read_text()


@pytest.mark.parametrize("schema", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_examples_follow_their_schemas(schema):
    for example in json.loads(schema.read_text())["examples"]:
        check_schema(example, schema.stem)
