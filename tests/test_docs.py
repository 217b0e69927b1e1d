"""The documentation is true: commands parse, Python blocks run, pages and files exist, generated pages are up to date,
pages keep to their length, and numbers that stand in several places agree.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import tomllib
from pathlib import Path

import pytest

import hiero
from hiero.cli import app
from hiero.types import ANSWER_THRESHOLD
from tests.documentation import (
    PAGES,
    ROOT,
    SCHEMAS,
    check_schema,
    count_words,
    read_blocks,
    read_commands,
    read_options,
    read_shell_blocks,
)
from tests.processes import run_python

LINKED_PAGES = [*PAGES, ROOT / "CHANGELOG.md"]
PAGES_AND_CARDS = [*PAGES, *sorted((ROOT / "hiero/assets").glob("*/README.md"))]
SHELL_BLOCKS = [block for page in PAGES_AND_CARDS for block in read_shell_blocks(page)]
# Programs that the documentation may use without a check of their arguments.
PROGRAMS = {"apt-get", "cat", "cd", "cp", "curl", "docker", "ffmpeg", "git", "install", "ls", "mkdir", "pip", "podman"}
PROGRAMS |= {"pre-commit", "rm", "source", "systemctl", "tee", "torchrun", "useradd"}
WORD_LIMITS = {
    "README.md": 700,
    "CONTRIBUTING.md": 1000,
    "docs/guides/*.md": 1200,
    "docs/results.md": 2200,
    "docs/experiments/*.md": 200,
    "docs/performance.md": 900,
    "docs/benchmarks.md": 800,
    "docs/protocols.md": 800,
    "docs/method.md": 900,
    "docs/design.md": 900,
    "docs/reference/api.md": 1800,
    "docs/reference/commands.md": 6500,
    "docs/reference/json.md": 1300,
    "docs/reference/environment.md": 480,
}
MAX_DOCS_WORDS = 26_000
# Numbers that stand on several pages. Each pattern finds at least one, and all of them agree when rounded.
FACTS = {
    "weights that the first video downloads, MB": [r"(\d+) MB of weights"],
    "weights on disk, MB": [r"(\d+) MB on disk"],
    "exposure of the systemd service": [r"exposure of ([\d.]+)"],
    "cache of remote videos, GB": [r"cache holds (\d+) GB", r"`HIERO_REMOTE_CACHE_GB` \|.*\| (\d+) \|"],
    "speed of reading a video": [r"(\d+\.\d) × real time", r"(\d+\.\d) times faster than real time"],
    "hours of CaptainCook4D": [r"19 recipes[ (,]+(\d+\.\d) hours"],
    "F1 of steps, known recipes": [r"F1 \(known / new recipes\) \| (\d+) /", r"HiERO \(`hiero steps`\) \| ([\d.]+)"],
    "first answer, known recipes": [
        r"[Ff]irst answer .*?\| (\d+) % (?:/|\|)",
        r"`hiero-k400`, the mean of three\*\* \| ([\d.]+)",
    ],
    "first answer, new recipes": [r"[Ff]irst answer .*?\| \d+ % [/|] (\d+) %", r"`hiero-k400`.* ± 1\.6 .*? ([\d.]+) ±"],
    "chores found": [r"15 real videos \| (\d+) %", r"15 chores, `search` .*?\| (\d+) /", r"this chore\?.*?\| (\d+) %"],
    "names before corrections": [r"corrected video \| (\d+) %", r"^\| no adaptation \| ([\d.]+)"],
    "names after one correction": [r"corrected video .* / (\d+) %", r"^\| prototypes .*?\| \*\*([\d.]+)"],
    "absent texts hidden": [r"at 10 % \| \d+ / (\d+)", r"this hid (\d+) % of the texts"],
    "calibration error": [r"calibration error, `ask` / `search` \| ([\d.]+)", r"short clips \(.*?\) \| ([\d.]+)"],
}
CARD_ROWS = ("known recipes", "recipes never seen")
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


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=str)
def test_shell_blocks(block):
    commands = read_commands(block.code)
    assert commands or "=" in block.code
    for command in commands:
        check_command(command)


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
    assert (ROOT / f"{module.replace('.', '/')}.py").exists(), f"python -m {module} does not exist"
    if module.startswith("benchmarks."):
        options, choices = read_options(module)
        used = {argument for argument in arguments if re.match(r"--?[a-z]", argument)}
        assert used <= options, f"python -m {module} has no option {', '.join(used - options)}"
        assert not choices or arguments[0] in choices


def read_extras() -> list[str]:
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_there_are_documented_commands():
    assert len(SHELL_BLOCKS) >= 20
    assert any(block.page.name == "README.md" for block in SHELL_BLOCKS)


@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("hiero ask a.mp4 'cut it'  # where", [["hiero", "ask", "a.mp4", "cut it"]]),
        ("hiero steps a.mp4 \\\n  --json > out.json", [["hiero", "steps", "a.mp4", "--json"]]),
        ("HIERO_HOME=x hiero steps a | python -m json.tool", [["hiero", "steps", "a"], ["python", "-m", "json.tool"]]),
        ("cat > .env <<END\nhiero nonsense\nEND\nmake test", [["cat"], ["make", "test"]]),
        ("sudo -u hiero /opt/bin/hiero doctor && docker compose exec hiero hiero doctor", [["hiero", "doctor"]] * 2),
        ("for f in *.mp4; do hiero steps $f; done", [["hiero", "steps", "$f"]]),
    ],
)
def test_commands_of_a_shell_script(script, wanted):
    assert read_commands(script) == wanted


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if read_blocks(page, "python")],
    ids=lambda page: page.name,
)
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


def test_reasons_are_given_for_blocks_that_are_not_run():
    for page in PAGES:
        marks = page.read_text().count("<!-- not run")
        assert marks == len([block for block in read_blocks(page, "python") if block.reason]), page.name


def test_pages_keep_to_their_length():
    for pattern, limit in WORD_LIMITS.items():
        for page in ROOT.glob(pattern):
            assert count_words(page) <= limit, f"{page.relative_to(ROOT)} has {count_words(page)} words"
    assert sum(map(count_words, (ROOT / "docs").rglob("*.md"))) <= MAX_DOCS_WORDS


@pytest.mark.parametrize("fact", FACTS)
def test_numbers_agree(fact):
    found = {}
    for pattern in FACTS[fact]:
        for page in PAGES_AND_CARDS:
            text = re.sub(r"(?<![|\n])\n(?=[^\n|#`-])", " ", page.read_text())  # a sentence may be wrapped anywhere
            found.update({f"{page.relative_to(ROOT)}: {pattern}": n for n in re.findall(pattern, text, re.MULTILINE)})
        assert any(key.endswith(pattern) for key in found), f"no page matches {pattern}"
    digits = min(len(number.partition(".")[2]) for number in found.values())
    assert len({round(float(number), digits) for number in found.values()}) == 1, found


@pytest.mark.parametrize("model", ["hiero-k400", "hiero-omnivore-b"])
def test_results_are_those_of_the_model_cards(model):
    """R1, R5 and the steps in order: of known recipes, then of new ones."""
    card = (ROOT / f"hiero/assets/{model}/README.md").read_text()
    rows = [re.search(rf"^\| {name} \|(.*±.*)\|$", card, re.MULTILINE)[1] for name in CARD_ROWS]
    columns = [row.split("|") for row in rows]
    wanted = [float(row[i].split("±")[0]) for row in columns for i in (0, 1, 4)]
    row = re.search(rf"^\| \*\*`{model}`.*?\|(.*)\|$", (ROOT / "docs/results.md").read_text(), re.MULTILINE)[1]
    assert [float(cell.split("±")[0]) for cell in row.split("|")] == wanted


def test_numbers_are_those_of_the_code():
    weights = tomllib.loads((ROOT / "hiero/assets/weights.toml").read_text())
    default = sum(weights[name]["megabytes"] for name in ("i3d-k400", "dinov2-text", "minilm"))
    assert f"{default} MB of weights" in (ROOT / "README.md").read_text()
    assert f"threshold of {ANSWER_THRESHOLD:.0%}".replace("%", " %") in (ROOT / "docs/results.md").read_text()


def test_all_extras_are_listed():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(set(read_extras()) - {"dev", "docs"})


def test_linked_pages_and_pictures_exist():
    for page in LINKED_PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#]*)(?:#([^)]*))?\)", text):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in read_anchors(linked), f"{page.name} links to {target}#{anchor}"


def read_anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r" +", "-", re.sub(r"[^\w\- ]", "", heading.lower().strip())) for heading in headings}


@pytest.mark.parametrize("name", ["commands", "api", "json", "environment"])
def test_generated_pages_are_up_to_date(name):
    generate = runpy.run_path(str(ROOT / "docs" / f"_{name}.py"))["generate"]
    assert (ROOT / f"docs/reference/{name}.md").read_text() == generate(), f"run: python docs/_{name}.py"


def test_all_public_names_are_in_the_reference():
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE)
    assert sorted(headings) == hiero.__all__


def test_all_environment_variables_are_in_the_table():
    table = tomllib.loads((ROOT / "hiero/assets/environment.toml").read_text())
    listed = {name for section in table.values() for name in section if name != "note"}
    source = "\n".join(file.read_text() for file in (ROOT / "hiero").rglob("*.py"))
    read = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"|_VARIABLE = \"(\w+)\"", source))
    names = {direct or constant for direct, constant in read}
    assert len(names) >= 8
    assert names <= listed
    assert {name for name in listed if f'"{name}"' not in source} <= {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"}


@pytest.mark.parametrize("schema", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_examples_follow_their_schemas(schema):
    for example in json.loads(schema.read_text())["examples"]:
        check_schema(example, schema.stem)


def test_the_example_of_a_plugin_is_the_one_that_is_tested():
    page = (ROOT / "docs/guides/plugins.md").read_text()
    for name in ("pyproject.toml", "hiero_example_plugin.py"):
        assert (ROOT / "tests/fixtures/plugin" / name).read_text().strip() in page


def test_the_layers_in_the_guide_for_contributors():
    contract, _ = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [sorted(layer.split(" | ")) for layer in contract["layers"]]
    block = re.search(r"```\w*\n(cli\n.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert [sorted(line.split()) for line in block[1].splitlines()] == layers


def test_files_that_readers_are_sent_to_exist():
    for page in PAGES_AND_CARDS:
        for path in re.findall(r"`((?:hiero|tests|docs|benchmarks|examples|deploy)/[\w./-]+)`", page.read_text()):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
    packages = "|".join(path.name for path in (ROOT / "hiero").iterdir() if path.is_dir())
    for path in re.findall(rf"`((?:{packages})/[\w./]+)`", (ROOT / "docs/design.md").read_text()):
        assert (ROOT / "hiero" / path).exists(), f"design.md names {path}"


def test_modules_that_readers_are_sent_to_exist():
    for page in PAGES_AND_CARDS:
        for module in re.findall(r"\b((?:benchmarks|examples)(?:\.[a-z]\w*)+)", page.read_text()):
            name = ".".join(module.split(".")[:2])
            if not name.endswith((".md", ".py", ".png", ".json")):
                assert (ROOT / f"{name.replace('.', '/')}.py").exists(), f"{page.name} names {name}"


def test_python_names_that_readers_are_sent_to_exist():
    for page in PAGES:
        for name in re.findall(r"`hiero\.(\w+\.\w+(?:\.\w+)*)[`(]", page.read_text()):
            first, *rest = name.split(".")
            if first in hiero.__all__ or first == "example":
                continue
            module = ROOT / "hiero" / first
            if module.is_dir() and rest:
                module, rest = module / rest[0], rest[1:]
            assert module.is_dir() or module.with_suffix(".py").exists(), f"{page.name} names hiero.{name}"
            for part in rest[:1]:
                assert re.search(rf"\b{part}\b", module.with_suffix(".py").read_text()), f"{page.name}: hiero.{name}"


def test_prose_is_wrapped():
    for page in LINKED_PAGES:
        fenced = False
        for number, line in enumerate(page.read_text().splitlines(), start=1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith(("|", "![", "[![")):
                assert len(line) <= 120, f"{page.name}:{number}"
