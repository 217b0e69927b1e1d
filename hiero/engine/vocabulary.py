"""Words that hiero knows: the bundled names of steps, and the classes of Kinetics-400."""

from __future__ import annotations

from functools import cache

import numpy as np

from hiero.networks.minilm import encode_minilm
from hiero.steps.similarity import ClassEvidence
from hiero.storage.files import ASSETS

NUM_VERBS, NUM_THINGS = 50, 100  # in the small list of words
CLASS_TEMPERATURE = 0.15  # of the softmax that compares a text with the names of classes


@cache
def default_labels() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return _read_asset("steps.txt")


@cache
def rich_labels() -> list[str]:
    """The bundled vocabulary of verbs and objects beyond `default_labels`, for videos with an image-text network."""
    rows = [line.split("|") for line in _read_asset("vocabulary.txt")]
    pairs = [(verb, thing) for verbs, things in rows for verb in verbs.split(",") for thing in things.split(",")]
    labels = dict.fromkeys(f"{verb.strip()} {thing.strip()}" for verb, thing in pairs)
    everyday = set(default_labels())
    return [label for label in labels if label not in everyday]


@cache
def words(is_large: bool = False) -> tuple[list[str], list[str]]:
    """Verbs and things that steps are described with, from the small list or the large one."""
    lines = _read_asset("words.txt")
    middle = lines.index("[things]")
    verbs, things = lines[1:middle], lines[middle + 1 :]
    return (verbs, things) if is_large else (verbs[:NUM_VERBS], things[:NUM_THINGS])


def word_texts(is_large: bool = False) -> tuple[list[str], list[str]]:
    """`words` as texts that pictures are compared with."""
    verbs, things = words(is_large)
    return [f"{verb} something" for verb in verbs], [f"a {thing}" for thing in things]


def _read_asset(name: str) -> list[str]:
    lines = (ASSETS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def class_names() -> list[str]:
    """Names of the 400 Kinetics classes, in order."""
    return (ASSETS / "kinetics400.txt").read_text(encoding="utf-8").splitlines()


@cache
def class_name_vectors() -> np.ndarray:
    """Unit vectors of `class_names` by MiniLM, (400, 384)."""
    return encode_minilm(class_names())


def class_evidence(probabilities: np.ndarray, weight: float) -> ClassEvidence:
    """The class probabilities of I3D, (N, 400), as evidence for texts."""
    return ClassEvidence(probabilities, class_name_vectors(), weight, CLASS_TEMPERATURE)
