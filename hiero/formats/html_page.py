"""Pages in one file: the style sheets and modules of the web page, inlined, so that they work offline."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hiero.storage.files import write_text

STATIC = Path(__file__).parents[1] / "serve" / "static"
IMPORT = re.compile(r'(?<=from ")([\w./]+\.(?:js|json))(?=")')
TYPES = {".js": "text/javascript", ".json": "application/json"}


def write_page(path: Path, template: str, styles: Sequence[str], data: dict[str, Any]) -> None:
    """Write a page of this package with its data, its style sheets and the modules that it imports."""
    page = (Path(__file__).parent / template).read_text(encoding="utf-8")
    modules = {name: _address(name, source) for name, source in collect_modules(page).items()}
    document = json.dumps(data, ensure_ascii=False, allow_nan=False)
    parts = {
        "/*STYLE*/": "\n".join(_read(name) for name in styles),
        "/*MODULES*/": json.dumps({"imports": modules}),
        "/*DATA*/": document.replace("<", "\\u003c"),  # a label must not close the script element
    }
    for mark, content in parts.items():
        page = page.replace(mark, content)
    write_text(path, page)


def collect_modules(source: str) -> dict[str, str]:
    """The modules that a script imports, directly or through others, by their paths.

    Their imports name these paths, too: an import map resolves them, because a module without an
    address cannot import by a relative path.
    """
    modules: dict[str, str] = {}
    waiting = IMPORT.findall(source)
    while waiting:
        name = waiting.pop()
        if name not in modules:
            modules[name] = _name_imports(_read(name), posixpath.dirname(name))
            waiting += IMPORT.findall(modules[name])
    return modules


def _name_imports(source: str, folder: str) -> str:
    """A module whose imports are paths from the top folder instead of its own."""
    return IMPORT.sub(lambda match: posixpath.normpath(posixpath.join(folder, match[0])), source)


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _address(name: str, source: str) -> str:
    return f"data:{TYPES[posixpath.splitext(name)[1]]};base64,{base64.b64encode(source.encode()).decode()}"
