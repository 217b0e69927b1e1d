"""hiero doctor: check the installation and the machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace

from hiero.cli.console import echo, print_json
from hiero.cli.diagnostics import Finding, Machine, first_line, problem
from hiero.cli.options import Json
from hiero.types import printable

SLOW_S = 1.0  # the time of a slower check is shown
STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(*, machine: Machine = Machine(), json_: Json = False) -> None:
    """Check this machine (packages, weights, GPU, decoders, disks, server) and say how to fix problems.

    Nothing is changed or downloaded. The exit code is 1 if there is a problem. Warnings are about
    optional parts.

    **Examples**

    * `hiero doctor`
    * `hiero doctor --state /var/lib/hiero --json`
    """
    from rich.console import Console

    findings: list[Finding] = []
    with Console(stderr=True).status("") as status:  # shown on a terminal only
        for finding in diagnose(machine, lambda name: status.update(f"checking {name}")):
            findings.append(finding)
            if not json_:
                _print_finding(finding)
    counts = {level: sum(finding.level == level for finding in findings) for level in STYLES}
    if json_:
        print_json({"ok": not counts["problem"], "counts": counts, "findings": list(map(asdict, findings))})
    else:
        echo(", ".join(f"{count} {level}{'s' * (level != 'ok' and count != 1)}" for level, count in counts.items()))
    sys.exit(1 if counts["problem"] else 0)


def load_checks() -> dict[str, Callable[[Machine], Iterator[Finding]]]:
    """The checks by name, the slowest ones last."""
    from hiero.cli.diagnostics import machine, networks, server

    return {
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


def diagnose(machine: Machine, on_check: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """Run all checks. A check that raises an error is a problem, and the others still run."""
    for name, check in load_checks().items():
        on_check(name)
        begin = time.perf_counter()
        try:
            for finding in check(machine):
                yield replace(finding, elapsed_s=time.perf_counter() - begin)
                begin = time.perf_counter()
        except Exception as error:  # any error of a broken package or an unusual system
            finding = problem(name, f"could not be checked: {first_line(error)}", "")
            yield replace(finding, elapsed_s=time.perf_counter() - begin)


def _print_finding(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    elapsed = f"  ({finding.elapsed_s:.1f} s)" if finding.elapsed_s > SLOW_S else ""
    level = f"{finding.level:<8}", STYLES[finding.level]
    line = Text.assemble(level, f"{finding.name:<24}{printable(finding.message)}{elapsed}")
    if finding.advice:
        line.append(f"\n{'':<32}{printable(finding.advice)}", style="dim" if finding.level == "ok" else "")
    Console().print(line, soft_wrap=True, highlight=False)
