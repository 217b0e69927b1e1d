"""Checks of a machine: is what hiero needs here, and does it work? Each finding says what to do about it.

Nothing is changed and nothing is fetched. Only `server.check_network` talks to other machines.
Modules that take long to import are imported by the check that needs them, so that one that is
broken costs only its own check.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from hiero.cli.diagnostics import decoders, folders, gpus, networks, packages, server
from hiero.cli.diagnostics.findings import Check, Finding, Machine, first_line

CHECKS = (
    Check("python", packages.check_python),
    Check("hiero", packages.check_hiero),
    Check("packages", packages.check_packages),
    Check("folders", folders.check_folders),
    Check("sqlite", server.check_sqlite),
    Check("state", server.check_state),
    Check("port", server.check_port),
    Check("gpu", gpus.check_gpu),
    Check("decoders", decoders.check_decoders),
    Check("onnxruntime", networks.check_onnxruntime),
    Check("weights", networks.check_weights),
    Check("network", server.check_network),
    Check("models", networks.check_models),
)
"""All checks; what takes longest comes last."""


def diagnose(machine: Machine, on_check: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Run all checks, one after the other. One that fails itself is a problem, and the others go on.

    Args:
        machine: What is to be checked.
        on_check: Called with the name of each check before it begins.
    """
    for check in CHECKS:
        on_check(check.name)
        begin = time.perf_counter()
        try:
            for finding in check.run(machine):
                yield replace(finding, elapsed_s=time.perf_counter() - begin)
                begin = time.perf_counter()
        except Exception as error:  # whatever a broken package or a strange system raises: that is what is looked for
            elapsed_s = time.perf_counter() - begin
            yield Finding(check.name, "problem", f"could not be checked: {first_line(error)}", elapsed_s=elapsed_s)
