"""The shape of the code in numbers: files, lines, the longest, import cycles, names with two meanings,
comments, dialect.

    python -m benchmarks.structure [FOLDER]        a folder that holds the package hiero; by default this one

Imports inside functions and under TYPE_CHECKING count for cycles: a reader meets them too. A name
has two meanings when two modules define a public class or function of that name; `load`, `prepare`
and `untrained` of the backbones are one interface, and commands are named by what the user types.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

DIALECT = ("found", "about", "kept", "held", "said", "mine", "apart", "told", "looks", "say", "heard", "gone", "wanted")
INTERFACE = {"load", "prepare", "untrained", "convert", "main", "app"}


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST, modules: set[str]) -> set[str]:
    """Modules of the package that a module imports, wherever it does; packages themselves do not count."""
    out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            out |= {name if name in modules else node.module for name in names}
        elif isinstance(node, ast.Import):
            out |= {alias.name for alias in node.names}
    return out & modules


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected components of more than one), by
    Tarjan's algorithm.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                out.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return out


def names_in(source: str) -> list[str]:
    """Words of the code's names; strings and comments are left out."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [
        word for token in tokens if token.type == tokenize.NAME for word in token.string.lower().strip("_").split("_")
    ]


def code_lines(source: str) -> int:
    """Lines that hold code: no docstrings, no comments, not blank."""
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return sum(
        number not in docstrings and bool(line.strip()) and not line.lstrip().startswith("#")
        for number, line in enumerate(source.splitlines(), start=1)
    )


def main(folder: Path) -> None:
    root = folder / "hiero"
    files = sorted(root.rglob("*.py"))
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    modules = {module_name(path, folder): path for path in files}
    lines = {path: len(source.splitlines()) for path, source in sources.items()}
    functions = [
        (node.end_lineno - node.lineno + 1, f"{path.relative_to(folder)}:{node.name}")  # type: ignore[operator]
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    inits = {name for name, path in modules.items() if path.name == "__init__.py"}
    graph = {name: imports(trees[path], set(modules)) - inits for name, path in modules.items() if name not in inits}
    defined: dict[str, list[str]] = defaultdict(list)
    for name, path in modules.items():
        for node in trees[path].body:
            if (
                isinstance(node, ast.FunctionDef | ast.ClassDef)
                and not node.name.startswith("_")
                and ".cli." not in name
            ):
                defined[node.name].append(name)
    twice = {name: where for name, where in defined.items() if len(where) > 1 and name not in INTERFACE}
    comments = sum(bool(re.match(r"\s*#", line)) for source in sources.values() for line in source.splitlines())
    words = [word for source in sources.values() for word in names_in(source)]
    longest = max(lines, key=lambda path: lines[path])
    rows = {
        "files": len(files),
        "lines": sum(lines.values()),
        "lines of code": sum(map(code_lines, sources.values())),
        "longest file": f"{lines[longest]} ({longest.relative_to(root)})",
        "files over 300 lines": sum(num > 300 for num in lines.values()),
        "longest function": "{} ({})".format(*max(functions)),
        "functions over 50 lines": sum(num > 50 for num, _ in functions),
        "import cycles": "; ".join(" ↔ ".join(group) for group in cycles(graph)) or "none",
        "names with two meanings": f"{len(twice)} ({', '.join(sorted(twice)[:12])})" if twice else "none",
        "whole-line comments": comments,
        "dialect in names": ", ".join(f"{word} {words.count(word)}" for word in DIALECT),
    }
    for name, value in rows.items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
