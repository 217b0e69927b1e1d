"""Commands and programs in processes of their own, without waiting for each to import torch.

They are forked from a process that has imported it (the forkserver of multiprocessing, one for each
worker of a run), which takes milliseconds where `python -m hiero` takes seconds. Like those they
have their own memory, environment, signals, limits and exit code.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO, Any

from tests.waiting import PATIENCE_S

# None of these starts a thread, which a fork would lose. lancedb and onnxruntime do; what lancedb
# imports in turn does not.
PRELOADED = [
    "torch",
    "scipy.linalg",
    "safetensors.torch",
    "av",
    "lance_namespace",
    "pandas",
    "pyarrow.dataset",
    "uvicorn",
    "hiero.cli",
    "hiero.engine.engine",
    "hiero.features.collection",
    "hiero.model.embed_files",
    "hiero.model.released",
    "hiero.features.stores",
    "hiero.serve.server",
    "hiero.training.from_files",
    "hiero.networks.minilm",
    "lightning_fabric",
    "torch.utils.tensorboard",
    "transformers.models.distilbert.modeling_distilbert",
]
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(PRELOADED)


def end_programs() -> None:
    """End what tests have left running: Python would wait for it when it exits."""
    for process in multiprocessing.active_children():
        process.kill()


class Program:
    """A running process, with the methods of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        target: str | None,
        *arguments: object,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """Start Python code, or the command `hiero` if it is None, with arguments.

        Its environment is that of this process if `env` is None, and its standard input is empty if
        `stdin`, an open file, is None. With `limit_bytes`, no file may grow beyond this size.
        """
        readers, writers = zip(*(FORKSERVER.Pipe(duplex=False) for _ in range(2)), strict=True)
        with open(os.devnull) as empty:  # noqa: PTH123
            source = Connection(os.dup(empty.fileno() if stdin is None else stdin), writable=False)
        environment = dict(os.environ if env is None else env)
        settings = (target, [*map(str, arguments)], environment, limit_bytes, os.getcwd())  # noqa: PTH109
        self._process = FORKSERVER.Process(target=_run, args=((source, *writers), *settings))
        self._process.start()
        self.pid = self._process.pid
        self.stdout, self.stderr = (os.fdopen(os.dup(reader.fileno()), errors="backslashreplace") for reader in readers)
        for connection in (source, *writers, *readers):
            connection.close()

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it; None while it runs."""
        return self._process.exitcode

    returncode = property(poll)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """Wait for its end; the exit code."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("hiero", timeout)
        return code

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[str, str]:
        """Wait for its end; what it printed to both of its outputs."""
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(_read_and_close, file) for file in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
            return reading[0].result(), reading[1].result()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        """It does not outlive the test."""
        self.kill()
        self.wait()

    def __del__(self) -> None:
        self.stdout.close()
        self.stderr.close()


def start_hiero(*arguments: object, **options: Any) -> Program:
    """`hiero` with arguments; options as those of `Program`."""
    return Program(None, *arguments, **options)


def start_python(code: str, *arguments: object, **options: Any) -> Program:
    """Python code whose sys.argv is `-c` and the arguments; options as those of `Program`."""
    return Program(code, *arguments, **options)


def run_hiero(*arguments: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """`hiero` with arguments to its end; fails where it fails, unless `check` is False."""
    return _finish(start_hiero(*arguments, **options), check)


def run_python(code: str, *arguments: object, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python code to its end; fails where it fails, unless `check` is False."""
    return _finish(start_python(code, *arguments, **options), check)


def _finish(program: Program, check: bool) -> subprocess.CompletedProcess[str]:
    out, errors = program.communicate()
    result = subprocess.CompletedProcess("hiero", program.poll(), out, errors)
    assert not check or result.returncode == 0, result.stderr
    return result


def _read_and_close(file: IO[str]) -> str:
    with file:
        return file.read()


def _run(
    files: tuple[Connection, ...],
    target: str | None,
    arguments: list[str],
    environment: dict[str, str],
    limit_bytes: int | None,
    folder: str,
) -> None:
    """What the forked process does."""
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
        file.close()
    sys.stdin, sys.stdout = (open(number, mode, closefd=False) for number, mode in enumerate("rw"))  # noqa: SIM115
    sys.stderr = open(2, "w", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [
        path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path
    ]
    os.setsid()
    # a shell in the background ignores it, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if limit_bytes is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    main: Callable[[], object]
    if target is None:
        from hiero.__main__ import main

        sys.argv = ["hiero", *arguments]
    else:
        code = compile(target, "<string>", "exec")
        sys.argv = ["-c", *arguments]
        main = lambda: exec(code, {"__name__": "__main__"})  # noqa: E731
    main()
