"""The shape of the code in numbers: size, import cycles, files behind one command, and what is too large.

    python -m tools.structure [FOLDER]     the package hiero in FOLDER, by default in this repository
    python -m tools.structure --check      exit with 1 if a rule of the project is broken

Definitions:

- Lines of code are lines without comments, docstrings and blank lines.
- Import cycles include imports inside functions and under TYPE_CHECKING: a reader meets them too.
- Files behind `hiero steps` are the module that defines the command and every module that it imports,
  directly or through others, at the top, inside functions or under TYPE_CHECKING, with the
  `__init__.py` of their packages. `hiero/__init__.py` and `hiero/cli/__init__.py` list everything and
  are left out. Plug-ins that are loaded by name (backbones, text encoders, exporters) are not counted.
- Remote access is `hiero.media.remote*` (`hiero.storage.remote*` in earlier versions). A call site is
  a use of a name that was imported from there, by a module outside it.
- The body of a function is counted from its first statement after the docstring to its last line.
- Parameters are counted without self and cls. Triton kernels are counted separately: their
  parameters are the pointers, sizes and strides that the GPU gets.
- A name has two meanings if two modules outside `cli/` define a public class or function of that
  name. `load`, `prepare` and `untrained` of the backbones are one interface.

The check fails on an import cycle, a class over 20 methods or a function body over 50 lines.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MAX_METHODS, MAX_BODY_LINES, MANY_PARAMETERS = 20, 50, 8
COMMAND = "steps"
LISTS = {"hiero", "hiero.cli"}
REMOTE = ("hiero.media.remote", "hiero.storage.remote")
INTERFACE = {"load", "prepare", "untrained", "convert", "main", "app"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    path: Path
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @property
    def num_lines(self) -> int:
        return len(self.source.splitlines())

    @property
    def num_code_lines(self) -> int:
        docstrings: set[int] = set()
        for node in ast.walk(self.tree):
            if is_text(node):
                docstrings |= set(range(node.lineno, end_line(node) + 1))
        return sum(
            number not in docstrings and bool(line.strip()) and not line.lstrip().startswith("#")
            for number, line in enumerate(self.source.splitlines(), start=1)
        )

    @cached_property
    def functions(self) -> list[Function]:
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    def imported_names(self, modules: set[str]) -> Iterator[tuple[str, str]]:
        """Modules of the package that this one imports, and the name that each import binds."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    submodule = f"{node.module}.{alias.name}"
                    home = submodule if submodule in modules else node.module
                    if home in modules:
                        yield home, alias.asname or alias.name
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in modules:
                        yield alias.name, alias.asname or alias.name


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def end_line(node: ast.AST) -> int:
    return int(node.end_lineno)  # type: ignore[attr-defined]


def body_lines(function: Function) -> int:
    body = function.body[1:] if is_text(function.body[0]) else function.body
    return end_line(body[-1]) - body[0].lineno + 1 if body else 0


def num_parameters(function: Function) -> int:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return sum(argument is not None and argument.arg not in ("self", "cls") for argument in named)


def is_kernel(function: Function) -> bool:
    decorators = [ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list]
    return "jit" in decorators or "triton.jit" in decorators


def num_methods(node: ast.ClassDef) -> int:
    return sum(isinstance(member, Function) for member in node.body)


def read_package(folder: Path) -> dict[str, Module]:
    modules = {}
    for path in sorted((folder / "hiero").rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return modules


def import_graph(modules: dict[str, Module]) -> dict[str, set[str]]:
    return {
        name: {home for home, _ in module.imported_names(set(modules))} - {name} for name, module in modules.items()
    }


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other: strongly connected components, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

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
                cycles.append(sorted(group))

    for node in graph:
        if node not in index:
            visit(node)
    return cycles


def files_behind(start: str, graph: dict[str, set[str]]) -> set[str]:
    """Modules that a module imports, directly or through others, with the packages that hold them."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        if name in found or name in LISTS or name not in graph:
            continue
        found.add(name)
        waiting += [*graph[name], name.rpartition(".")[0]]
    return found


def command_module(modules: dict[str, Module]) -> str:
    """The module that defines the command whose files are counted."""
    return next(
        name
        for name, module in modules.items()
        if name.startswith("hiero.cli.")
        and any(isinstance(node, ast.FunctionDef) and node.name == COMMAND for node in module.tree.body)
    )


def remote_uses(modules: dict[str, Module]) -> dict[str, int]:
    """How often each module uses a name of remote access; modules of remote access themselves are left out."""
    uses: dict[str, int] = {}
    for name, module in modules.items():
        names = {bound for home, bound in module.imported_names(set(modules)) if home.startswith(REMOTE)}
        if names and not name.startswith(REMOTE):
            uses[name] = sum(isinstance(node, ast.Name) and node.id in names for node in ast.walk(module.tree))
    return uses


def names_with_two_meanings(modules: dict[str, Module]) -> list[str]:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, module in modules.items():
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and ".cli." not in name:
                homes[node.name].append(name)
    return sorted(
        name for name, where in homes.items() if len(where) > 1 and name not in INTERFACE and not name.startswith("_")
    )


def listed(items: list[str]) -> str:
    return f"{len(items)} ({', '.join(items)})" if items else "0"


def long_bodies(modules: dict[str, Module]) -> list[str]:
    lengths = [
        (body_lines(function), f"{name.removeprefix('hiero.')}.{function.name}")
        for name, module in modules.items()
        for function in module.functions
    ]
    return [f"{name} {length}" for length, name in sorted(lengths, reverse=True) if length > MAX_BODY_LINES]


def large_classes(modules: dict[str, Module]) -> list[str]:
    classes = [
        (num_methods(node), node.name)
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    return [f"{name} {number}" for number, name in sorted(classes, reverse=True) if number > MAX_METHODS]


def many_parameters(modules: dict[str, Module], *, kernels: bool) -> list[str]:
    counts = [
        (num_parameters(function), f"{name.removeprefix('hiero.')}.{function.name}")
        for name, module in modules.items()
        for function in module.functions
        if is_kernel(function) == kernels
    ]
    return [f"{name} {number}" for number, name in sorted(counts, reverse=True) if number >= MANY_PARAMETERS]


def measure(modules: dict[str, Module]) -> dict[str, str]:
    """The rows of the table."""
    graph = import_graph(modules)
    uses = remote_uses(modules)
    longest = max(modules.values(), key=lambda module: module.num_lines)
    cycles = [" ↔ ".join(group) for group in find_cycles(graph)]
    two_meanings = names_with_two_meanings(modules)
    return {
        "files": str(len(modules)),
        "lines": f"{sum(module.num_lines for module in modules.values()):,}",
        "lines of code": f"{sum(module.num_code_lines for module in modules.values()):,}",
        "longest file": f"{longest.num_lines} ({longest.name})",
        "import cycles": listed(cycles),
        f"files behind `hiero {COMMAND}`": str(len(files_behind(command_module(modules), graph))),
        "modules that use remote access": f"{len(uses)}, {sum(uses.values())} call sites",
        f"classes over {MAX_METHODS} methods": listed(large_classes(modules)),
        f"function bodies over {MAX_BODY_LINES} lines": listed(long_bodies(modules)),
        f"functions with {MANY_PARAMETERS} or more parameters": listed(many_parameters(modules, kernels=False)),
        f"Triton kernels with {MANY_PARAMETERS} or more parameters": str(len(many_parameters(modules, kernels=True))),
        "names with two meanings": listed(two_meanings),
    }


def broken_rules(modules: dict[str, Module]) -> list[str]:
    """What the check complains about."""
    return [
        *(f"import cycle: {' ↔ '.join(group)}" for group in find_cycles(import_graph(modules))),
        *(f"class over {MAX_METHODS} methods: {item}" for item in large_classes(modules)),
        *(f"function body over {MAX_BODY_LINES} lines: {item}" for item in long_bodies(modules)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    modules = read_package(options.folder)
    if options.check:
        problems = broken_rules(modules)
        print("\n".join(problems) or "structure: no import cycles, no class and no function is too large")
        sys.exit(1 if problems else 0)
    for name, value in measure(modules).items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
