"""hiero: hours of first-person video in, a searchable hierarchy of what was done out; no labels needed.

    >>> import hiero
    >>> engine = hiero.load()                                        # doctest: +SKIP
    >>> video = engine.read("kitchen.mp4")                           # doctest: +SKIP
    >>> video.ask("cut the onion")                                   # doctest: +SKIP

Names load on first use, so that `import hiero` stays light. `__init__.pyi` lists them, for this module
and for type checkers.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def _read_public_names() -> dict[str, str]:
    """The module of each public name."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"hiero.{node.module}" for node in imports for alias in node.names}


_MODULE_OF = _read_public_names()

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hiero' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
