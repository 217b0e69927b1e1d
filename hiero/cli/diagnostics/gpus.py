"""GPUs, and whether torch can compute on them."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from hiero.cli.diagnostics.findings import GIB, Finding, Machine, first_line


def check_gpu(machine: Machine) -> Iterator[Finding]:
    """GPUs, and whether this torch can compute on them. torch is imported only where both are there."""
    gpus, build = find_nvidia_gpus(), _torch_gpu_build()
    is_for_amd = build is not None and build.startswith("ROCm")
    if platform.system() == "Darwin":
        yield Finding("gpu", "ok", "Apple's is used with --device mps")
    elif not gpus and not is_for_amd:
        surplus = f"; this torch is built for {build}, which is larger than the one for CPUs" if build else ""
        yield Finding("gpu", "ok", f"no NVIDIA GPU: networks run on the CPU{surplus}")
    elif not is_for_amd and not any(Path("/dev").glob("nvidia[0-9]*")):
        advice = "in a container: install the NVIDIA container toolkit and start it with --gpus all"
        yield Finding("gpu", "warning", f"{', '.join(gpus)}: in this machine, but not reachable from here", advice)
    elif build is None:
        advice = (
            "pip install torch --force-reinstall --index-url https://download.pytorch.org/whl/cu130 "
            "(your driver's CUDA)"
        )
        yield Finding("gpu", "warning", f"{', '.join(gpus)}: not used, since this torch is built for CPUs only", advice)
    elif machine.fast:
        yield Finding("gpu", "ok", f"{', '.join(gpus) or 'AMD'}; torch is built for {build} (not tried: --fast)")
    else:
        yield from _try_gpus(build)


def _try_gpus(build: str) -> Iterator[Finding]:
    import torch

    if not torch.cuda.is_available():
        advice = (
            f"update the driver to one for {build}, "
            "or install a torch for the driver that is here (nvidia-smi shows it)"
        )
        yield Finding("gpu", "problem", f"torch for {build} can use none", advice)
        return
    for index in range(torch.cuda.device_count()):
        name = f"gpu cuda:{index}"
        try:
            total = torch.cuda.get_device_properties(index).total_memory
            free, _ = torch.cuda.mem_get_info(index)
            assert torch.ones(2, device=f"cuda:{index}").sum().item() == 2
        except (RuntimeError, AssertionError) as error:
            advice = "update the driver, or install a torch that is built for this GPU"
            yield Finding(name, "problem", f"torch cannot compute on it: {first_line(error)}", advice)
            continue
        message = f"{torch.cuda.get_device_name(index)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free, {build}"
        if any(shutil.which(compiler) for compiler in ("cc", "gcc", "clang")):
            yield Finding(name, "ok", message)
        else:
            yield Finding(
                name, "warning", f"{message}; no C compiler, which GPU kernels need", "apt install gcc libc6-dev"
            )


def find_nvidia_gpus() -> list[str]:
    """Names of NVIDIA GPUs as the driver lists them, without a library of it."""
    names = []
    for information in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"Model:\s*(.+)", information.read_text(errors="replace"))
        names.append(model[1].strip() if model else information.parent.name)
    return names or [device.name for device in sorted(Path("/dev").glob("nvidia[0-9]*"))]


def _torch_gpu_build() -> str | None:
    """What torch is built for, such as CUDA 13.0, read from its files; None: for CPUs."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    for name, kind in (("cuda", "CUDA"), ("hip", "ROCm")):
        if version := re.search(rf"^{name}\b[^=\n]*=\s*['\"](\d[\w.-]*)['\"]", text, re.MULTILINE):
            return f"{kind} {version[1]}"
    return None
