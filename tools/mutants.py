"""What can be mutated, and which tests concern it. A mutant is a source file with one small change."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

PACKAGES = {  # sources, their tests, number of mutants; kernels (*_triton.py) need a GPU and are left out
    "model": ("hiero/model/*.py", "tests/model tests/parity", 200),
    "storage": ("hiero/storage/*.py", "tests/storage tests/features/test_files.py tests/model/test_released.py", 110),
    "serve": ("hiero/serve/*.py", "tests/serve", 110),
    "steps": ("hiero/steps/*.py", "tests/steps", 120),
    "objective": ("hiero/training/objective*.py hiero/training/step.py", "tests/training", 40),
    "metrics": ("hiero/evaluation/metrics*.py", "tests/evaluation", 60),
}
_NUM_CONTROLS = 3  # mutants of each package that change nothing
_SWAPS = {"Lt": "LtE", "Gt": "GtE", "Eq": "NotEq", "Is": "IsNot", "In": "NotIn", "And": "Or", "BitAnd": "BitOr"}
_SWAPS |= {"Add": "Sub", "Mult": "Div", **{new: old for old, new in _SWAPS.items()}}
_SWAPS |= {"Sub": "Add", "Div": "Mult", "FloorDiv": "Mult", "Mod": "Div", "Pow": "Mult"}
_SKIPPED_FIELDS = ("annotation", "returns", "decorator_list")
_LOGGING = re.compile(r"(.*logger|logging)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Mutant:
    id: str
    file: str
    line: int
    operator: str
    before: str
    after: str
    source: bytes  # of the whole changed file


def find_mutants(tree: Path, package: str, count: int, seed: int) -> list[Mutant]:
    """A sample. It depends on the seed, the paths and the text of the changed lines alone.

    Two versions of the source therefore share the mutants of most lines that they have in common.
    """
    paths = [path for pattern in PACKAGES[package][0].split() for path in sorted(tree.glob(pattern))]
    paths = [path for path in paths if not path.stem.endswith("_triton")]
    mutants = sorted((mutant for path in paths for mutant in _mutants(tree, path, seed)), key=lambda mutant: mutant.id)
    control = Mutant("", mutants[0].file, 0, "none", "", "", (tree / mutants[0].file).read_bytes())
    return [replace(control, id=f"{package}-{i}") for i in range(_NUM_CONTROLS)] + mutants[:count]


def find_tests(tree: Path, package: str, left_out: list[str], module: str = "") -> list[str]:
    """Arguments of pytest: the test files of a package, those that import the module first."""
    folder, _, name = module.removesuffix(".py").replace("/", ".").rpartition(".")
    imports = re.compile(rf"{re.escape(folder)}(\.| import .*\b){name}\b")
    paths = [tree / place for place in PACKAGES[package][1].split()]
    files = {file for path in paths for file in ([path] if path.is_file() else path.rglob("test_*.py"))}
    first = sorted(files, key=lambda file: (not imports.search(file.read_text()), file))
    options = [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in left_out]
    return options + [str(file.relative_to(tree)) for file in first]


def _mutants(tree: Path, path: Path, seed: int) -> Iterator[Mutant]:
    lines, file = path.read_bytes().splitlines(keepends=True), path.relative_to(tree).as_posix()
    text, seen = b"".join(lines), Counter[str]()
    for operator, old, new in (change for node in _nodes(ast.parse(text)) for change in _changes(node)):
        start = sum(map(len, lines[: old.lineno - 1])) + old.col_offset
        end = sum(map(len, lines[: old.end_lineno - 1])) + old.end_col_offset
        before, after = text[start:end].decode(), ast.unparse(new)
        if isinstance(old, ast.expr):
            after = f"({after})"
        key = f"{seed} {file} {operator} {before} {after} {lines[old.lineno - 1].strip()!r}"
        seen[key] += 1
        digest = sha256(f"{key} {seen[key]}".encode()).hexdigest()[:16]
        yield Mutant(digest, file, old.lineno, operator, before, after, text[:start] + after.encode() + text[end:])


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without annotations, decorators, f-strings, logging and code for type checkers."""
    match tree:
        case ast.JoinedStr() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return
        case ast.Expr(value=ast.Call(func=function)) if _LOGGING.match(ast.unparse(function)):
            return
    yield tree
    for name, value in ast.iter_fields(tree):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in _SKIPPED_FIELDS:
                yield from _nodes(child)


def _changes(node: Any) -> Iterator[tuple[str, Any, ast.AST]]:
    """Each mutation of a node: its operator, the node to replace and the new one."""
    fields = dict(ast.iter_fields(node))
    match node:
        case ast.Compare(ops=ops):
            for i in range(len(ops)):
                yield "comparison", node, ast.Compare(**fields | {"ops": [*ops[:i], _swap(ops[i]), *ops[i + 1 :]]})
        case ast.BoolOp(op=op):
            yield "and/or", node, ast.BoolOp(**fields | {"op": _swap(op)})
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op).__name__ in _SWAPS:
            yield "arithmetic", node, type(node)(**fields | {"op": _swap(op)})
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield "remove not or minus", node, operand
        case ast.Constant(value=bool(value)):
            yield "true/false", node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", node, ast.Constant(value - 1 if value > 1 else value + 1)
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None", node, ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "delete call", node, ast.Pass()
        case ast.If(test=ast.Name() | ast.Call() | ast.Attribute() as test):
            yield "negate condition", test, ast.UnaryOp(ast.Not(), test)


def _swap(operator: ast.AST) -> ast.AST:
    return getattr(ast, _SWAPS[type(operator).__name__])()
