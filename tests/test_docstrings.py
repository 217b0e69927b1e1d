"""What is public is documented, and the examples in its docstrings run."""

from __future__ import annotations

import ast
import doctest
import functools
import inspect
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import hiero
from tests.conftest import FIXTURES
from tests.optional import weights_or_skip

MODULES = sorted({getattr(hiero, name).__module__ for name in hiero.__all__})
EXAMPLES = {
    test.name: test
    for module in MODULES
    for test in doctest.DocTestFinder(exclude_empty=True).find(import_module(module), module)
    if test.examples
}
DOCUMENTED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
ANSWERING = ("Video.ask", "Video.label")  # their examples need a text encoder


@pytest.fixture
def names(tmp_path):
    """What examples may use: modules, a file with features, a video."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "tea.npy", rng.normal(size=(120, 16)).astype(np.float32))
    video = hiero.load("raw").read_array(np.load(tmp_path / "tea.npy"))
    checkpoint = FIXTURES / "official_small.pth"
    files = {"feature_file": tmp_path / "tea.npy", "checkpoint": checkpoint}
    return {"hiero": hiero, "np": np, "torch": torch, "video": video, **files}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, names, monkeypatch, tmp_path):
    if name.endswith(ANSWERING):
        weights_or_skip("minilm")
        scores = np.random.default_rng(0).normal(0, 2, (120, 400)).astype(np.float32)
        names["text_video"] = hiero.load("hiero-k400", device="cpu").read_array(scores)
    monkeypatch.chdir(tmp_path)
    test = EXAMPLES[name]
    test.globs = {**test.globs, **names}
    output: list[str] = []
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(
        test, out=output.append
    )
    assert not results.failed, "".join(output)


def test_the_main_names_have_examples():
    documented = {name.rsplit(".", 1)[-1] for name in EXAMPLES}
    assert {
        "load",
        "read",
        "steps",
        "ask",
        "label",
        "Clock",
        "Hierarchy",
        "ProgressEvent",
        "HiERO",
        "spectral_cut",
    } <= documented


def public_methods():
    for name in hiero.__all__:
        thing = getattr(hiero, name)
        if inspect.isclass(thing):
            for method, function in vars(thing).items():
                if (
                    not method.startswith("_")
                    and inspect.isfunction(function)
                    and function.__module__.startswith("hiero.")
                ):
                    yield f"{name}.{method}", function
        else:
            yield name, thing


@pytest.mark.parametrize(("name", "function"), list(public_methods()))
def test_what_takes_several_arguments_documents_them(name, function):
    """Each argument of a public function with three or more is named in its docstring."""
    arguments = [p for p in inspect.signature(function).parameters if p not in ("self", "cls")]
    assert function.__doc__ or name.endswith((".to_dict", ".forward")), f"{name} has no docstring"
    if len(arguments) >= 3 and "The arguments are those of" not in function.__doc__:
        missing = [argument for argument in arguments if argument not in (function.__doc__ or "")]
        assert not missing, f"{name} does not say what {', '.join(missing)} is"


def documented(docstring: str, section: str) -> list[str]:
    """Names under `Args:` or `Attributes:`."""
    match = re.search(rf"^{section}:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    return re.findall(r"^    \*{0,2}(\w+):", match[1], re.MULTILINE) if match else []


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {argument.arg for argument in listed if argument is not None}


FILES = sorted(Path(hiero.__file__).parent.rglob("*.py"))


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """All classes of the package by name. Not at import: every worker of a run imports this module."""
    nodes = (node for file in FILES for node in ast.walk(parse(file)))
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}


@functools.cache
def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def members(node: ast.ClassDef) -> set[str]:
    """Fields, methods, and arguments of `__init__`, also those of base classes of the package."""
    methods = [child for child in node.body if isinstance(child, ast.FunctionDef)]
    names = {name.id for child in node.body for name in ast.walk(child) if isinstance(name, ast.Name)}
    names |= {part.attr for method in methods for part in ast.walk(method) if isinstance(part, ast.Attribute)}
    names |= {method.name for method in methods}
    made_of = (parameters(method) for method in methods if method.name == "__init__")
    inherited = (
        members(classes()[base.id]) for base in node.bases if isinstance(base, ast.Name) and base.id in classes()
    )
    return names.union(*made_of, *inherited)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_docstrings_name_arguments_and_fields_that_exist(file):
    stale = []
    for node in ast.walk(parse(file)):
        docstring = ast.get_docstring(node) or "" if isinstance(node, DOCUMENTED) else ""
        if isinstance(node, ast.ClassDef):
            stale += {*documented(docstring, "Attributes"), *documented(docstring, "Args")} - members(node)
        elif docstring:
            stale += set(documented(docstring, "Args")) - parameters(node)
    assert not stale
