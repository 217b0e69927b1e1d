"""Many files into a corpus, one after the other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hiero.corpus.corpus import Corpus, add_video
from hiero.engine import Engine, Video
from hiero.errors import InputError


@dataclass
class IndexResult:
    """What happened to the files: how many were added, how many were in unchanged, and what is wrong with the others."""

    num_added: int = 0
    num_unchanged: int = 0
    problems: list[str] = field(default_factory=list)


def index_files(
    corpus: Corpus,
    engine: Engine,
    files: Mapping[str, Path],
    read: Callable[[Path], Video],
    *,
    num_steps: Sequence[int] | None = None,
    labels: Sequence[str] | None = None,
    again: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> IndexResult:
    """Add videos or feature files to a corpus; one that cannot be read does not stop the others.

    Args:
        corpus: Where to.
        engine: The model whose steps the corpus holds.
        files: By the name that each gets in the corpus.
        read: Reads a file with the engine.
        num_steps: Number of steps of each level; by default three levels that follow from the length.
        labels: Names for steps; by default the bundled everyday phrases.
        again: Also those that are in unchanged.
        progress: Called with the name of each file when it is done.

    Raises:
        InputError: The corpus holds steps of another model.

    Warns:
        UserWarning: It holds steps of another version of the model; they are made anew.
    """
    if corpus.is_stale(engine):
        warnings.warn(
            f"{corpus.uri} was made by another version of {engine.name}: its {len(corpus.videos())} videos are indexed anew",
            stacklevel=2,
        )
        corpus.renew(engine, read, labels)
    corpus.check_model(engine)  # before anything is read, which takes long
    result = IndexResult()
    for name, path in files.items():
        try:
            _, is_new = add_video(corpus, engine, path, read, num_steps=num_steps, labels=labels, name=name, again=again)
            result.num_added += is_new
            result.num_unchanged += not is_new
        except InputError as error:
            result.problems.append(str(error))
        progress(name)
    corpus.optimize()
    return result
