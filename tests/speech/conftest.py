"""The film that tests of the engine share."""

from tests.engine.conftest import photographs as photographs
