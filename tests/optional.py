"""What a machine need not have: packages, programs, weights. Tests without them are skipped."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from hiero.errors import InputError
from hiero.storage import weights

PROGRAMS = {  # by their package of the system; the first of several names that is installed is used
    "chromium-headless-shell": ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"),
    "nginx-light": ("nginx",),
    "caddy": ("caddy",),
    "openssl": ("openssl",),
    "systemd": ("systemd-analyze",),
}
REASON = re.compile(r"apt-get install (\S+)")


def skip_without(module: str, reason: str) -> None:
    """Skip the module that calls it where a package is missing. It is not imported: every worker
    collects every test.
    """
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that would hold it
        is_there = False
    if not is_there:
        pytest.skip(reason, allow_module_level=True)


def weights_or_skip(name: str) -> Path:
    """The folder of weights, downloaded if they are missing; skips the test if they cannot be downloaded."""
    try:
        return weights.get(name)
    except InputError as error:
        pytest.skip(f"{name} cannot be downloaded here: {error}")


def find_program(package: str) -> str | None:
    """Path of the program that a package of the system installs, or None if it is missing."""
    return next((path for name in PROGRAMS[package] if (path := shutil.which(name))), None)


def program_or_skip(package: str) -> str:
    """Path of the program that a package of the system installs; skips the test if it is missing."""
    if (path := find_program(package)) is None:
        pytest.skip(f"needs {PROGRAMS[package][0]}: apt-get install {package}")
    return path


def summarise_skipped(reasons: Iterable[str]) -> str:
    """How many tests were skipped, and which packages of the system would run them."""
    reasons = list(reasons)
    packages = Counter(match[1] for reason in reasons if (match := REASON.search(reason)))
    line = f"{len(reasons)} tests skipped"
    if packages:
        line += f"; apt-get install {' '.join(sorted(packages))} would run {packages.total()} of them"
    return line


if __name__ == "__main__":  # .ci/run installs what this prints
    print(*[package for package in PROGRAMS if find_program(package) is None])
