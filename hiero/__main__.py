"""python -m hiero, and the command `hiero`."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line. Ctrl-C during the slow imports is handled like a later one."""
    atexit.register(gc.freeze)  # skips a last garbage collection, which would take 0.4 s
    try:
        from hiero.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
