"""Protocols of the paper's zero-shot benchmarks: as the released scripts compute them, or corrected.

docs/protocols.md explains each difference. Both protocols switch Cut & Match on, as the released
scripts do, whatever the configuration of a checkpoint says.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from hiero.config import Behaviour
from hiero.engine import Engine


@dataclass(frozen=True)
class Protocol:
    """Differences between the released and the corrected evaluation. True follows the release."""

    name: str
    trained_edges: bool = False
    stretched_times: bool = False
    truncated_rates: bool = False
    f1_of_means: bool = False
    sparse_segments: bool = False
    zero_filled: bool = False
    whole_videos: bool = False
    shifted_spans: bool = False
    early_last_run: bool = False

    def configure(self, engine: Engine) -> Engine:
        """Return the engine with Cut & Match on, and with the edges that it was trained with or with corrected ones."""
        if engine.folder is None:
            return engine
        trained = engine.folder.config.behaviour  # that of the release for imported checkpoints
        behaviour = trained if self.trained_edges else Behaviour.corrected()
        config = engine.folder.config.replace(threads_at_inference=True, behaviour=behaviour)
        return replace(engine, folder=replace(engine.folder, config=config))


CORRECTED = Protocol("corrected")
RELEASE = Protocol("release", **{option.name: True for option in fields(Protocol) if option.name != "name"})
PROTOCOLS = {protocol.name: protocol for protocol in (CORRECTED, RELEASE)}
