"""How the paper's zero-shot benchmarks are computed: as the release's scripts do it, or corrected.

`Protocol` is the one place where they differ. docs/protocols.md says for each option what the paper
says, what the release does, what we think is right and what it changes. In both, Cut & Match is on,
whatever a checkpoint says of itself: the release's scripts switch it on for these benchmarks, and
threads are the method.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from hiero.config import Behaviour
from hiero.engine import Engine
from hiero.errors import InputError


@dataclass(frozen=True)
class Protocol:
    """Named differences between the release's evaluation and a corrected one. True means: as the release does it."""

    name: str
    released_edges: bool = False
    stretched_times: bool = False
    truncated_rates: bool = False
    f1_of_means: bool = False
    sparse_segments: bool = False
    zero_filled: bool = False
    whole_videos: bool = False
    shifted_spans: bool = False
    early_last_run: bool = False

    def configure(self, engine: Engine) -> Engine:
        """The engine with the network as this protocol runs it: Cut & Match on, with the protocol's edges."""
        if engine.folder is None:
            return engine
        behaviour = Behaviour.released() if self.released_edges else Behaviour.corrected()
        config = engine.folder.config.replace(threads_at_inference=True, behaviour=behaviour)
        return replace(engine, folder=replace(engine.folder, config=config))


CORRECTED = Protocol("corrected")
_OPTIONS = [option.name for option in dataclasses.fields(Protocol) if option.name != "name"]
RELEASE = Protocol("release", **dict.fromkeys(_OPTIONS, True))
PROTOCOLS = {protocol.name: protocol for protocol in (CORRECTED, RELEASE)}


def find_protocol(name: str) -> Protocol:
    """A protocol by its name. Raises InputError where there is none."""
    if name not in PROTOCOLS:
        raise InputError(f"--protocol is {' or '.join(PROTOCOLS)}, got {name}")
    return PROTOCOLS[name]
