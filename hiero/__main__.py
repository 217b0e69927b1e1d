"""python -m hiero, and the command `hiero`."""

import sys


def main() -> None:
    """Run the command line. Its imports take a while: an interruption meanwhile ends as quietly as a later one."""
    try:
        from hiero.cli import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
