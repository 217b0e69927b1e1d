"""tools/structure.py finds import cycles, also lazy ones, large classes and long functions."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import benchmarks
import tools
from tools.structure import broken_rules, files_behind, import_graph, measure, read_package


def write_package(folder: Path, **modules: str) -> Path:
    for name, source in {"__init__": "", "cli/__init__": "", **modules}.items():
        path = folder / "hiero" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return folder


def test_lazy_and_typing_imports_make_cycles(tmp_path):
    a = "def f():\n    from hiero.b import g\n"
    b = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hiero.c import h\n"
    folder = write_package(tmp_path, a=a, b=b, c="import hiero.a\n", d="import hiero.a\n")
    assert broken_rules(read_package(folder)) == ["import cycle: hiero.a ↔ hiero.b ↔ hiero.c"]


def test_large_classes_and_long_bodies(tmp_path):
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(21))
    long_body = "def f():\n    '''Doc.'''\n" + "    x = 1\n" * 51
    short_body = "def g():\n    '''Doc.'''\n" + "    x = 1\n" * 50
    folder = write_package(tmp_path, a=f"class A:\n{methods}", b=long_body, c=short_body)
    assert broken_rules(read_package(folder)) == ["class over 20 methods: A 21", "function body over 50 lines: b.f 51"]


def test_files_behind_a_command(tmp_path):
    steps = "def steps():\n    from hiero.room import a\n"
    room = {"room/__init__": "", "room/a": "import hiero.b\n"}
    graph = import_graph(read_package(write_package(tmp_path, **{"cli/videos": steps}, **room, b="", c="")))
    assert files_behind("hiero.cli.videos", graph) == {"hiero.cli.videos", "hiero.room", "hiero.room.a", "hiero.b"}


def test_remote_uses_and_parameters(tmp_path):
    use = "from hiero.media.remote import fetch\nfetch(1)\nfetch(2)\n"
    wide = "def f(a, b, c, d, e, f, g, *h): ...\n"
    kernel = "import triton\n@triton.jit\ndef k(a, b, c, d, e, f, g, h): ...\n"
    paths = {"media/__init__": "", "media/remote": "", "cli/videos": "def steps(): ...\n"}
    rows = measure(read_package(write_package(tmp_path, **paths, use=use, wide=wide, kernel=kernel)))
    assert rows["modules that use remote access"] == "1, 2 call sites"
    assert rows["functions with 8 or more parameters"] == "1 (wide.f 8)"
    assert rows["Triton kernels with 8 or more parameters"] == "1"


MODULES = [
    f"{package.__name__}.{module.name}" for package in (benchmarks, tools) for module in iter_modules(package.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_every_benchmark_and_tool_imports(name):
    import_module(name)
