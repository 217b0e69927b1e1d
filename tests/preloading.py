"""Imported first by the process that others are forked from: all that it imports stays, so that there
is no garbage to look for.
"""

from __future__ import annotations

import gc

gc.disable()  # until `_run` of tests/processes.py
