"""Texts that come with the package: labels for steps, and the names of the classes that I3D scores."""

from __future__ import annotations

from functools import cache

import numpy as np

from hiero.storage.files import ASSETS
from hiero.text.minilm import encode_minilm


@cache
def default_labels() -> list[str]:
    """The bundled vocabulary of everyday steps."""
    return [
        line
        for line in (ASSETS / "steps.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]


@cache
def rich_labels() -> list[str]:
    """The bundled vocabulary of verbs and things, beyond `default_labels`: texts for pictures, which
    tell more things apart.
    """
    lines = (ASSETS / "vocabulary.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|") for line in lines if line and not line.startswith("#")]
    pairs = [(verb, thing) for verbs, things in rows for verb in verbs.split(",") for thing in things.split(",")]
    everyday = set(default_labels())
    return [
        label
        for label in dict.fromkeys(f"{verb.strip()} {thing.strip()}" for verb, thing in pairs)
        if label not in everyday
    ]


@cache
def class_names() -> list[str]:
    """Names of the 400 classes of Kinetics, in order."""
    return (ASSETS / "kinetics400.txt").read_text(encoding="utf-8").splitlines()


@cache
def class_name_vectors() -> np.ndarray:
    """MiniLM's unit vectors of `class_names`, (400, 384)."""
    return encode_minilm(class_names())
