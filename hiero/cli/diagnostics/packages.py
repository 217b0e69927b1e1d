"""Python, hiero, and the packages that it needs."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import hiero
from hiero.cli.diagnostics.findings import GIB, Finding, Level, Machine
from hiero.plugins import DISTRIBUTION, read_project
from hiero.storage.memory import available_bytes

MIN_MEMORY_BYTES = 2 * GIB  # below this a long video may not fit
# What does not work without an extra of pyproject.toml. One that is not named here can do without.
NEEDED_EXTRAS = {"video": "no video can be read", "serve": "hiero serve, hiero index and hiero search do not work"}
TOOL_EXTRAS = ("dev", "docs")  # for work on hiero itself
MODULE_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn"}  # where it is not the name of the package
REQUIREMENT = re.compile(
    r"""(?P<package>[\w.-]+)(?:\[[\w,-]+\])?\s*(?:>=\s*(?P<minimum>\d+(?:\.\d+)*))?[^;]*"""
    r"""(?:;.*extra\s*==\s*['"](?P<extra>[\w-]+)['"].*)?"""
)


def check_python(_: Machine) -> Iterator[Finding]:
    """The interpreter, the processor and the memory."""
    available = available_bytes()
    memory = "" if available is None else f", {available / GIB:.1f} GiB of memory free"
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    message = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {num_cores} CPU cores{memory}"
    if available is not None and available < MIN_MEMORY_BYTES:
        yield Finding(
            "python", "warning", message, "long videos need 2 GiB: end other programs, or raise the container's limit"
        )
    else:
        yield Finding("python", "ok", message)


def check_hiero(_: Machine) -> Iterator[Finding]:
    """Which hiero runs, and whether it is the one that is installed."""
    message = f"{hiero.__version__} in {Path(hiero.__file__).parent}"
    try:
        installed = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield Finding("hiero", "warning", f"{message}, not installed", "plug-ins need an installation: pip install .")
        return
    if installed != hiero.__version__:
        advice = f"install one of them again: pip install {DISTRIBUTION}=={hiero.__version__}"
        yield Finding("hiero", "warning", f"{message}, while {installed} is installed", advice)
    else:
        yield Finding("hiero", "ok", message)


def check_packages(_: Machine) -> Iterator[Finding]:
    """Packages that hiero needs, and those of its extras."""
    for extra, packages in read_requirements().items():
        if extra in TOOL_EXTRAS:
            continue
        there: list[str] = []
        missing: list[str] = []
        for package, minimum in packages.items():
            version = _installed_version(package)
            if version is None:
                missing.append(package)
            elif _parse_version(version) < _parse_version(minimum):
                missing.append(f"{package} {minimum} or later, not {version}")
            else:
                there.append(f"{package} {version}")
        name = f"packages [{extra}]" if extra else "packages"
        message = "; ".join(
            part for part in (", ".join(there), "missing: " + ", ".join(missing) if missing else "") if part
        )
        if not missing:
            yield Finding(name, "ok", message)
        elif not extra:
            yield Finding(name, "problem", message, f"pip install {DISTRIBUTION}")
        elif extra in NEEDED_EXTRAS:
            yield Finding(
                name, "warning", f"{message}; {NEEDED_EXTRAS[extra]}", f"pip install '{DISTRIBUTION}[{extra}]'"
            )
        else:  # of its own choice: half of it is more likely a mistake than none
            level: Level = "warning" if there else "ok"
            yield Finding(
                name, level, f"{message} (optional)", f"if you want it: pip install '{DISTRIBUTION}[{extra}]'"
            )


def read_requirements() -> dict[str, dict[str, str]]:
    """Extra → package → its smallest version; what is always needed under an empty name."""
    project = read_project()
    lines = list(project["dependencies"])
    for extra, requirements in project["optional-dependencies"].items():
        lines += [f"{requirement}; extra == '{extra}'" for requirement in requirements]
    out: dict[str, dict[str, str]] = {"": {}}
    for line in lines:
        if (match := REQUIREMENT.fullmatch(line)) is not None:
            out.setdefault(match["extra"] or "", {})[match["package"]] = match["minimum"] or "0"
    return out


def _installed_version(package: str) -> str | None:
    """None where it is not installed, or its module is not to be found."""
    try:
        version = metadata.version(package)
        module = MODULE_NAMES.get(package.lower(), package.replace("-", "_"))
        return version if importlib.util.find_spec(module) is not None else None
    except (ImportError, ValueError):  # PackageNotFoundError is an ImportError
        return None


def _parse_version(text: str) -> tuple[int, ...]:
    """Numbers of a version up to what is none: 2.13.0+cpu is (2, 13, 0)."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()
