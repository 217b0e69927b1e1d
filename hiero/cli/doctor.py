"""hiero doctor: is everything here that hiero needs?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from hiero.cli.console import print_json
from hiero.cli.options import Flag, Json

if TYPE_CHECKING:
    from hiero.cli.diagnostics.findings import Finding

SLOW_S = 1.0  # a check that takes longer says how long
STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}


def doctor(
    *,
    state: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 8400,
    online: Flag = False,
    fast: Flag = False,
    json: Json = False,
) -> None:
    """Check this machine: versions, weights, GPU, decoders, disks, rights, the server's state; and
    what to do about each problem.

    Nothing is changed, nothing is fetched, and no other machine is asked without `--online`. The
    exit code is 1 where there is a problem. Warnings are about what can be done without.

    **Examples**

    `hiero doctor`

    `hiero doctor --state /var/lib/hiero --json`

    Parameters
    ----------
    state
        The folder of `hiero serve --state`: its file is read through and verified.
    host
        Where the server would listen.
    port
        The server's port, which should be free.
    online
        Also ask whether the sources of weights can be reached.
    fast
        Leave out what imports torch: shipped models, and computing on a GPU.
    """
    from rich.console import Console

    from hiero.cli.diagnostics import diagnose
    from hiero.cli.diagnostics.findings import Machine

    findings: list[Finding] = []
    console = Console(stderr=True)
    with console.status("") as status:  # on a terminal only
        for finding in diagnose(
            Machine(state, host, port, online, fast), lambda name: status.update(f"checking {name}")
        ):
            findings.append(finding)
            if not json:
                _print_finding(finding)
    counts = {level: sum(finding.level == level for finding in findings) for level in STYLES}
    if json:
        print_json(
            {"ok": not counts["problem"], "counts": counts, "findings": [asdict(finding) for finding in findings]}
        )
    else:
        print(", ".join(f"{count} {level}{'s' * (level != 'ok' and count != 1)}" for level, count in counts.items()))
    sys.exit(1 if counts["problem"] else 0)


def _print_finding(finding: Finding) -> None:
    from rich.console import Console
    from rich.text import Text

    time = f"  ({finding.elapsed_s:.1f} s)" if finding.elapsed_s > SLOW_S else ""
    line = Text.assemble((f"{finding.level:<8}", STYLES[finding.level]), f"{finding.name:<24}{finding.message}{time}")
    if finding.advice:
        line.append(f"\n{'':<32}{finding.advice}", style="dim" if finding.level == "ok" else "")
    Console().print(line, soft_wrap=True, highlight=False)
