"""Importing this module fills SUITES."""

from tests.fuzz import commands, files, server, values, videos  # noqa: F401
from tests.fuzz.suite import SUITES as SUITES
