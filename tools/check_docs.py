"""Check the documents and docstrings: lengths, line widths, links, names of files and modules, numbers that must agree.

python -m tools.check_docs     exits with 1 and lists what is wrong
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import hiero
from tools.reference import PAGES as GENERATED

ROOT = Path(__file__).parent.parent
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
CARDS = sorted((ROOT / "hiero/assets").glob("*/README.md"))
OTHERS = [ROOT / "CHANGELOG.md", ROOT / "benchmarks/README.md"]
PAST = ROOT / "docs/experiments"  # pages about scripts that are no longer part of the repository
PAST_COMMANDS = re.compile(r"At commit [0-9a-f]{7}:\n\n```text.*?```|`benchmarks\.[^`]*`\s+at\s+commit", re.DOTALL)
MAX_WORDS = 18_000
MAX_PAGE_WORDS = {
    "README.md": 600,
    "CONTRIBUTING.md": 900,
    "docs/guides/*.md": 1200,
    "docs/results.md": 2200,
    "docs/*.md": 2200,
}
MAX_WIDTH = 120
# Numbers that stand on several pages. Each pattern must match, and all matches must agree when rounded.
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
    "names after one correction": [
        r"one corrected recording; after eight \| \| (\d+) %",
        r"^\| prototypes \(`hiero adapt`\) \| \*\*([\d.]+)",
    ],
    "absent texts hidden": [r"at 10 % \| \d+ / (\d+)", r"this hid (\d+) % of the texts"],
    "calibration error": [r"calibration error, `ask` / `search` \| ([\d.]+)", r"short clips \(.*?\) \| ([\d.]+)"],
}
CARD_ROWS = ("known recipes", "recipes never seen")
DOCUMENTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Form


def check_lengths() -> Iterator[str]:
    words = {page: len(read(page).split()) for page in DOCS}
    for pattern, limit in MAX_PAGE_WORDS.items():
        for page in ROOT.glob(pattern):
            if words[page] > limit:
                yield f"{name(page)}: {words[page]} words, more than {limit}"
    if sum(words.values()) > MAX_WORDS:
        yield f"README, CONTRIBUTING and docs: {sum(words.values())} words, more than {MAX_WORDS}"


def check_widths() -> Iterator[str]:
    for page in [*DOCS, *OTHERS]:
        fenced = False
        for number, line in enumerate(read(page).splitlines(), start=1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and len(line) > MAX_WIDTH and not line.startswith(("|", "![", "[![")):
                yield f"{name(page)}:{number}: more than {MAX_WIDTH} characters"


# What readers are sent to


def read_anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and MkDocs make them."""
    generate = GENERATED.get(page.stem) if page.parent == ROOT / "docs/reference" else None
    headings = re.findall(r"^#+ (.*)$", read(page) if generate is None else generate(), re.MULTILINE)
    return {re.sub(r" +", "-", re.sub(r"[^\w\- ]", "", heading.lower().strip())) for heading in headings}


def check_links() -> Iterator[str]:
    generated = {ROOT / f"docs/reference/{page}.md" for page in GENERATED}
    for page in [*DOCS, *OTHERS]:
        text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#]*)(?:#([^)]*))?\)", text):
            linked = (page.parent / target).resolve() if target else page
            if linked not in generated and not linked.exists():
                yield f"{name(page)}: links to {target}, which does not exist"
            elif anchor and anchor not in read_anchors(linked):
                yield f"{name(page)}: links to {target}#{anchor}, which does not exist"


def check_files() -> Iterator[str]:
    for page in [*DOCS, *CARDS]:
        for path in re.findall(r"`((?:hiero|tests|docs|benchmarks|examples|deploy|tools)/[\w./-]+)`", read(page)):
            if "MODULE" not in path and not (ROOT / path).exists():
                yield f"{name(page)}: names {path}, which does not exist"
    rooms = "|".join(path.name for path in (ROOT / "hiero").iterdir() if path.is_dir())
    for path in re.findall(rf"`((?:{rooms})/\w+\.py)`", read(ROOT / "docs/design.md")):
        if not (ROOT / "hiero" / path).exists():
            yield f"docs/design.md: names {path}, which does not exist"


def check_modules() -> Iterator[str]:
    for page in [*DOCS, *CARDS, *OTHERS]:
        if page.is_relative_to(PAST):
            continue
        text = PAST_COMMANDS.sub("", read(page))
        for module in re.findall(r"\b((?:benchmarks|examples|tools)\.[a-z]\w*)", text):
            path = ROOT / module.replace(".", "/")
            if not module.endswith((".md", ".py")) and not (path.with_suffix(".py").exists() or path.is_dir()):
                yield f"{name(page)}: names {module}, which does not exist"


def check_python_names() -> Iterator[str]:
    for page in DOCS:
        for dotted in re.findall(r"`hiero\.(\w+\.\w+(?:\.\w+)*)[`(]", read(page)):
            first, *rest = dotted.split(".")
            if first in hiero.__all__ or first == "example":
                continue
            module = ROOT / "hiero" / first
            if module.is_dir() and rest:
                module, rest = module / rest[0], rest[1:]
            file = module.with_suffix(".py")
            exists = module.is_dir() or file.exists()
            if not exists or any(not re.search(rf"\b{part}\b", read(file)) for part in rest[:1]):
                yield f"{name(page)}: names hiero.{dotted}, which does not exist"


# Numbers and lists that must agree


def check_facts() -> Iterator[str]:
    for fact, patterns in FACTS.items():
        found = {}
        for pattern in patterns:
            matches = {}
            for page in [*DOCS, *CARDS]:
                text = re.sub(r"(?<![|\n])\n(?=[^\n|#`-])", " ", read(page))  # a sentence may be wrapped anywhere
                matches |= {f"{name(page)}, {pattern}": n for n in re.findall(pattern, text, re.MULTILINE)}
            if not matches and "HIERO_" not in pattern:
                yield f"{fact}: no page matches {pattern}"
            found |= matches
        digits = min((len(number.partition(".")[2]) for number in found.values()), default=0)
        if len({round(float(number), digits) for number in found.values()}) > 1:
            yield f"{fact}: {found}"


def check_cards() -> Iterator[str]:
    """R1, R5 and steps in order in the model cards and in the results: of known recipes, then of new ones."""
    for model in ("hiero-k400", "hiero-omnivore-b"):
        card = read(ROOT / f"hiero/assets/{model}/README.md")
        rows = [re.search(rf"^\| {row} \|(.*±.*)\|$", card, re.MULTILINE)[1].split("|") for row in CARD_ROWS]
        wanted = [float(row[i].split("±")[0]) for row in rows for i in (0, 1, 4)]
        results = read(ROOT / "docs/results.md")
        row = re.search(rf"^\| \*\*`{model}`.*?\|(.*)\|$", results, re.MULTILINE)[1]
        if [float(cell.split("±")[0]) for cell in row.split("|")] != wanted:
            yield f"docs/results.md: the row of {model} differs from its model card"


def check_lists() -> Iterator[str]:
    """Lists in the documents that must be complete."""
    project = tomllib.loads(read(ROOT / "pyproject.toml"))
    extras = set(project["project"]["optional-dependencies"]) - {"dev", "docs"}
    if extras != set(re.findall(r"^\| `(\w+)` \|", read(ROOT / "docs/index.md"), re.MULTILINE)):
        yield "docs/index.md: the table of extras is not complete"
    layers = [set(layer.split(" | ")) for layer in project["tool"]["importlinter"]["contracts"][0]["layers"]]
    block = re.search(r"```\n(cli.*?)```", read(ROOT / "CONTRIBUTING.md"), re.DOTALL)[1]
    if [set(re.split(r"   +", line)[0].split(" | ")) for line in block.splitlines()] != layers:
        yield "CONTRIBUTING.md: the layers are not those of pyproject.toml"
    if set(re.findall(r"^### (\w+)$", GENERATED["api"](), re.MULTILINE)) != set(hiero.__all__):
        yield "tools/reference/api.py: the sections do not list all public names"
    weights = tomllib.loads(read(ROOT / "hiero/assets/weights.toml"))
    total = sum(weights[each]["megabytes"] for each in ("i3d-k400", "dinov2-text", "minilm"))
    if f"{total} MB of weights" not in read(ROOT / "README.md"):
        yield f"README.md: the first video downloads {total} MB"


def check_environment() -> Iterator[str]:
    table = tomllib.loads(read(ROOT / "hiero/assets/environment.toml"))
    listed = {variable for section in table.values() for variable in section if variable != "note"}
    source = "\n".join(map(read, (ROOT / "hiero").rglob("*.py")))
    used = re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"|_VARIABLE = \"(\w+)\"", source)
    for variable in sorted({direct or constant for direct, constant in used} - listed):
        yield f"hiero/assets/environment.toml: {variable} is missing"
    for variable in sorted(listed - {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"}):
        if f'"{variable}"' not in source:
            yield f"hiero/assets/environment.toml: nothing reads {variable}"


# Docstrings


def public_functions() -> Iterator[tuple[str, object]]:
    for each in hiero.__all__:
        thing = getattr(hiero, each)
        if not inspect.isclass(thing):
            yield each, thing
            continue
        for method, function in vars(thing).items():
            if not method.startswith("_") and inspect.isfunction(function) and function.__module__.startswith("hiero."):
                yield f"{each}.{method}", function


def check_public_docstrings() -> Iterator[str]:
    """A public function with three or more arguments names each in its docstring."""
    for each, function in public_functions():
        text = function.__doc__ or ""
        arguments = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
        if not text and not each.endswith((".to_dict", ".forward")):
            yield f"{each}: has no docstring"
        if len(arguments) >= 3 and "The arguments are those of" not in text:
            yield from (f"{each}: does not describe {argument}" for argument in arguments if argument not in text)


def documented(docstring: str, section: str) -> set[str]:
    """Names under `Args:` or `Attributes:`."""
    match = re.search(rf"^{section}:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    return set(re.findall(r"^    \*{0,2}(\w+):", match[1], re.MULTILINE)) if match else set()


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in listed if argument is not None}


def members(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Fields, methods and arguments of `__init__`, also of base classes in the package."""
    methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
    names = {each.id for child in node.body for each in ast.walk(child) if isinstance(each, ast.Name)}
    names |= {part.attr for method in methods for part in ast.walk(method) if isinstance(part, ast.Attribute)}
    names |= {method.name for method in methods}
    names = names.union(*(parameters(method) for method in methods if method.name == "__init__"))
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id in classes]
    return names.union(*(members(classes[base], classes) for base in bases))


def check_stale_docstrings() -> Iterator[str]:
    """Arguments and attributes that docstrings describe exist."""
    trees = {file: ast.parse(read(file)) for file in sorted((ROOT / "hiero").rglob("*.py"))}
    nodes = [(file, node) for file, tree in trees.items() for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    classes = {node.name: node for _, node in nodes if isinstance(node, ast.ClassDef)}
    for file, node in nodes:
        text = ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            described = documented(text, "Attributes") | documented(text, "Args")
            stale = described - members(node, classes) if described else set()
        else:
            stale = documented(text, "Args") - parameters(node)
        yield from (f"{name(file)}:{node.lineno}: {each} does not exist" for each in sorted(stale))


CHECKS = [
    check_lengths,
    check_widths,
    check_links,
    check_files,
    check_modules,
    check_python_names,
    check_facts,
    check_cards,
    check_lists,
    check_environment,
    check_public_docstrings,
    check_stale_docstrings,
]


def main() -> None:
    problems = [problem for check in CHECKS for problem in check()]
    print("\n".join(problems) or "documents: lengths, links, names and numbers are right")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
