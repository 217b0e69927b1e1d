"""python -m hiero, and the command `hiero`."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line. Its imports take a while: an interruption meanwhile ends as quietly as a later one."""
    atexit.register(gc.freeze)  # at the very end: to look for garbage in all that was imported would take 0.4 s
    try:
        from hiero.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
