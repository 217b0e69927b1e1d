"""Checks of a machine: is what hiero needs here, and does it work? Each finding says what to do about it.

Nothing is changed and nothing is fetched. Only `server.check_network` talks to other machines.
Modules that take long to import are imported by the check that needs them, so that one that is
broken costs only its own check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from hiero.cli.diagnostics import machine, networks, server
from hiero.cli.diagnostics.findings import Finding, Machine, first_line, problem

# What takes longest comes last.
CHECKS = {
    "python": machine.check_python,
    "hiero": machine.check_hiero,
    "packages": machine.check_packages,
    "folders": machine.check_folders,
    "sqlite": server.check_sqlite,
    "state": server.check_state,
    "port": server.check_port,
    "gpu": machine.check_gpu,
    "decoders": networks.check_decoders,
    "onnxruntime": networks.check_onnxruntime,
    "weights": networks.check_weights,
    "network": server.check_network,
    "models": networks.check_models,
}


def diagnose(settings: Machine, on_check: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Run all checks, one after the other. One that fails itself is a problem, and the others go on."""
    for name, check in CHECKS.items():
        on_check(name)
        begin = time.perf_counter()
        try:
            for finding in check(settings):
                yield replace(finding, elapsed_s=time.perf_counter() - begin)
                begin = time.perf_counter()
        except Exception as error:  # whatever a broken package or a strange system raises: that is what is looked for
            finding = problem(name, f"could not be checked: {first_line(error)}", "")
            yield replace(finding, elapsed_s=time.perf_counter() - begin)
