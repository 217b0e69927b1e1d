"""Properties of values, checked on examples of hypothesis, which finds the smallest one that breaks them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from hiero.config import ModelConfig, TrainConfig, override, read_preset
from hiero.errors import InputError
from hiero.media.addresses import describe_error, public_address, query_identity
from hiero.types import MAX_TIME_S, Clock, Step, Utterance, VideoFile
from tests.fuzz.damage import ODD_NUMBERS, ODD_TEXTS
from tests.fuzz.suite import LIMIT_S, suite

NUM_EXAMPLES = 20  # of a case
SHRINKING_S = 120.0


def property_suite(name: str, share: int, values: st.SearchStrategy[Any]) -> Callable[[Callable[[Any], None]], None]:
    """Add a check of single values to the suites. A case checks several examples."""

    def add(check: Callable[[Any], None]) -> None:
        def case(_: Path, rng: random.Random) -> None:
            @seed(rng.randrange(2**32))
            @settings(
                max_examples=NUM_EXAMPLES,
                deadline=1000 * LIMIT_S,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
                database=None,
                report_multiple_bugs=False,
            )
            @given(values)
            def run(value: Any) -> None:
                with suppress(InputError):
                    check(value)

            run()

        suite(name, share, SHRINKING_S)(case)

    return add


numbers = st.floats() | st.integers() | st.sampled_from(ODD_NUMBERS)
texts = st.text(max_size=30) | st.text(st.characters(codec=None), max_size=10) | st.sampled_from(ODD_TEXTS)
leaves = st.none() | st.booleans() | numbers | texts
anything = st.recursive(leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(texts, x, max_size=3), max_leaves=8)
seconds = st.floats(0, 1e5) | st.integers(0, 30).map(float) | st.sampled_from((0.0004, 0.0005, MAX_TIME_S, 1e-9))


def documents(kind: type, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[type, dict[str, Any]]]:
    """A type, and a document with its fields; one field may have any value or be unknown."""
    damage = st.dictionaries(st.sampled_from([*fields, "extra"]), anything, max_size=1)
    return st.builds(lambda valid, odd: (kind, {**valid, **odd}), st.fixed_dictionaries(fields), damage)


step = documents(
    Step,
    id=st.text("ab.1-", min_size=1, max_size=4),
    start_s=seconds,
    end_s=seconds,
    thread=st.integers(0, 3),
    label=st.none() | texts,
    probability=st.none() | st.floats(0, 1) | numbers,
    background=st.booleans() | st.sampled_from(("false", "true", 0, 1, None)),
    origin=st.sampled_from(("model", "person", "imported", None)),
)
utterance = documents(Utterance, start_s=seconds, end_s=seconds, text=texts)
video_file = documents(VideoFile, path=texts, start_s=seconds, duration_s=seconds)


@property_suite("parts", 500, step | utterance | video_file)
def check_part(example: tuple[Any, dict[str, Any]]) -> None:
    """An accepted document has possible values, and writing and reading keeps it the same."""
    kind, document = example
    value = kind.from_dict(document)
    if isinstance(value, Step):
        assert value.probability is None or 0 <= value.probability <= 1, "impossible probability accepted"
        assert not isinstance(document.get("background"), str), "a text accepted as a truth value"
    written = json.loads(json.dumps(value.to_dict()))
    assert kind.from_dict(written).to_dict() == written


rates = st.fractions(Fraction(1, 100), 240, max_denominator=1001) | st.sampled_from((Fraction(30000, 1001), 30, 25))
strides = st.integers(1, 64) | st.fractions(Fraction(1, 8), 64, max_denominator=16)


@property_suite("clocks", 300, st.tuples(rates, strides, st.integers(0, 100_000), st.sampled_from((0.0, 1.0, 12.5))))
def check_clock(example: tuple[Fraction, Fraction, int, float]) -> None:
    """The edge of a node belongs to it, and so do its middle and its span."""
    fps, stride, index, start_s = example
    clock = Clock(float(fps), float(stride), start_s)
    if index * clock.spacing_s < 360_000:  # 100 hours
        assert clock.index(clock.edge_s(index)) == index, clock
        assert clock.index(clock.time_s(index)) == index, clock
        assert clock.span(clock.edge_s(index), clock.edge_s(index + 1)) == (index, index + 1), clock


SECRET = "s3cr3tvalue"
SECRET_ADDRESSES = (
    *("{s}://user:{x}@host/{w}", "{s}://{x}@host/{w}", "{s}://user:a@{x}@host/{w}", "{s}://KEY:{x}@bucket/{w}.mp4"),
    *("https://host/{w}?token={x}", "https://host/{w}?X-Amz-Signature={x}&a=1", "s3://bucket/{w}?token={x}"),
    *("zip://{w}::{s}://u:{x}@host/{w}", "https://host/{w}#token={x}"),
)
# Not "az": what stands before its @ is a container, which is shown.
schemes = st.sampled_from(("https", "http", "HTTPS", "s3", "gs", "hf", "ftp", "sftp", "memory", "webdav+https"))
words = st.text("ab1.-_ ", min_size=1, max_size=6)
secrets = st.builds(
    lambda form, s, w: form.format(s=s, w=w, x=SECRET), st.sampled_from(SECRET_ADDRESSES), schemes, words
)


@property_suite("addresses", 400, secrets | texts | st.builds("{}://{}".format, schemes, texts))
def check_address(address: str) -> None:
    """Messages about addresses never show a password."""
    shown = public_address(address)
    messages = describe_error(OSError(f"cannot open {address}: refused"), address), describe_error(OSError(address))
    assert not [text for text in (shown, *messages) if SECRET in text]
    assert public_address(shown) == shown
    query_identity(address)


VALID = TrainConfig(ModelConfig(8)).to_dict(), {"model": {"input_size": 8}, **read_preset("egovlp")}
names = st.sampled_from(
    sorted({f"{a}.{b}" for a, x in VALID[0].items() if isinstance(x, dict) for b in x} | {*VALID[0]})
)
changes = st.tuples(names, anything.map(json.dumps) | texts).map("=".join)


@property_suite("settings", 400, st.tuples(st.sampled_from(VALID), st.lists(changes | texts, max_size=3)))
def check_settings(example: tuple[dict[str, Any], list[str]]) -> None:
    """Settings are refused, or the same after they were written and read."""
    config = TrainConfig.from_dict(override(*example))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
