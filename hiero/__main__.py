"""python -m hiero"""

from hiero.cli import main

main()
