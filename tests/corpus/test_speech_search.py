"""What is said in the videos of a corpus is searched with what is seen."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest

from hiero.cli import app
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.corpus.rows import Hit, transcripts_key
from hiero.corpus.searching import WordEvidence
from hiero.corpus.table import SPEECH
from hiero.engine import load
from hiero.engine.transcripts import load_transcript
from hiero.formats.subtitles import format_srt
from hiero.media.source import VideoSource
from tests.documentation import check_schema
from tests.optional import skip_without, weights_or_skip

skip_without("lancedb", "needs LanceDB: pip install 'hiero-video[serve]'")
SCENES = np.random.default_rng(0).normal(size=(4, 400)).astype(np.float32)
TRANSCRIPTS = {
    "a": [(5, 8, "My grandmother gave me this recipe."), (40, 43, "Now I fold the laundry.")],
    "b": [(12, 15, "Remember to call the dentist on Monday.")],
}


def write_srt(path, lines):
    path.write_text(format_srt(lines))


@pytest.fixture
def engine():
    weights_or_skip("minilm")
    return load("hiero-k400", device="cpu")


def with_transcript(engine, source):
    video = engine.read(source, cache=False)
    video.transcript = load_transcript(video.files, video.origin)
    return video


@pytest.fixture
def read(engine):
    return partial(with_transcript, engine)


@pytest.fixture
def corpus(tmp_path, engine, read):
    """Three feature files of a minute with two steps; two have transcripts beside them."""
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    for number, name in enumerate("abc"):
        rng = np.random.default_rng(number + 1)
        rows = [3 * SCENES[(number + k) % 4] + rng.normal(size=(30, 400)) for k in range(2)]
        np.save(tmp_path / f"{name}.npy", np.concatenate(rows).astype(np.float32))
        if name in TRANSCRIPTS:
            write_srt(tmp_path / f"{name}.srt", TRANSCRIPTS[name])
        add_video(corpus, engine, tmp_path / f"{name}.npy", read, IndexSettings([1, 2]))
    return corpus


def test_words_are_found_in_the_step_where_they_are_said(corpus, engine):
    first, *others = corpus.search_text(engine, "grandmother's recipe", 4)
    assert (first.video, first.level, first.start_s, first.rests_on) == ("a", 1, 0.0, "speech")
    assert first.quote == "My grandmother gave me this recipe."
    assert first.probability > 0.8 > others[0].probability
    assert {hit.rests_on for hit in others} == {"pictures"}
    assert all(hit.quote is None for hit in others)
    assert first.to_dict()["rests_on"] == "speech"
    (hit,) = corpus.search_text(engine, "appointment with a dentist", 1)
    assert (hit.video, hit.start_s) == ("b", 0.0)
    # Filters hold for what is said too, and a level has its own step.
    assert corpus.search_text(engine, "grandmother's recipe", 1, videos=["b"])[0].video == "b"
    (coarse,) = corpus.search_text(engine, "grandmother's recipe", 1, level=0)
    assert (coarse.level, coarse.end_s, coarse.quote) == (0, 60.0, first.quote)
    (laundry,) = corpus.search_text(engine, "fold the laundry", 1)
    assert (laundry.video, laundry.rests_on) == ("a", "speech")
    assert laundry.start_s <= 40.0 < laundry.end_s


def test_transcripts_that_come_change_and_go(corpus, engine, read, tmp_path):
    def index(name, **options):
        return add_video(corpus, engine, tmp_path / f"{name}.npy", read, IndexSettings([1, 2], **options))[1]

    assert not index("a")
    assert not index("c")
    write_srt(tmp_path / "c.srt", [(35, 38, "This is how grandmother made her recipe.")])
    assert not index("c", transcripts=False)
    assert index("c")
    assert not index("c")
    assert {hit.video for hit in corpus.search_text(engine, "grandmother's recipe", 2)} == {"a", "c"}
    write_srt(tmp_path / "a.srt", [(5, 8, "Nothing of that kind.")])
    assert index("a")
    assert corpus.search_text(engine, "grandmother's recipe", 1)[0].video == "c"
    assert corpus.tables.get(SPEECH).count_rows("video = 'a'") == 1  # in place of the old ones
    corpus.remove(["c"])
    assert corpus.tables.get(SPEECH).count_rows("video = 'c'") == 0
    # A process that was killed between the two tables
    rows = corpus.tables.get(SPEECH).to_arrow().slice(0, 1).to_pylist()
    corpus.tables.get(SPEECH).add([{**rows[0], "uid": "gone\n0", "video": "gone", "text": "zebra crossing"}])
    assert "gone" not in {hit.video for hit in corpus.search_text(engine, "zebra crossing", 5)}


def test_a_corpus_without_speech_is_as_before(engine, tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(60, 400)).astype(np.float32))
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    record, _ = add_video(corpus, engine, tmp_path / "a.npy", lambda path: engine.read(path, cache=False))
    assert "transcripts" not in record.to_dict()
    assert corpus.tables.find(SPEECH) is None
    assert not (tmp_path / "corpus" / f"{SPEECH}.lance").exists()
    hits = corpus.search_text(engine, "anything", 3)
    assert all(hit.rests_on is None and "rests_on" not in hit.to_dict() for hit in hits)


def test_raw_features_are_searched_by_words_alone(tmp_path):
    weights_or_skip("minilm")
    engine = load("raw")
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(60, 32)).astype(np.float32))
    write_srt(tmp_path / "a.srt", TRANSCRIPTS["a"])
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    add_video(corpus, engine, tmp_path / "a.npy", partial(with_transcript, engine), IndexSettings([2]))
    (hit,) = corpus.search_text(engine, "grandmother's recipe", 5)
    assert (hit.rests_on, hit.quote) == ("speech", "My grandmother gave me this recipe.")


def test_as_typed(corpus, capsys, tmp_path):
    def run(*arguments):
        app([*map(str, arguments), "--device", "cpu"], result_action="return_value")
        return capsys.readouterr().out

    document = json.loads(run("search", corpus.uri, "grandmother's recipe", "-n", "2", "--json"))
    check_schema(document, "ask")
    hit, _ = document["queries"][0]["matches"]
    assert (hit["rests_on"], hit["quote"]) == ("speech", "My grandmother gave me this recipe.")
    table = run("search", corpus.uri, "grandmother's recipe", "-n", "1")
    assert "speech" in table
    assert "“My" in table


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (WordEvidence(0.5, "words"), (0.75, "both", "words")),
        (WordEvidence(0.1, "words"), (0.55, "pictures", None)),
        (WordEvidence(0.9), (0.95, "name", None)),
        (WordEvidence(0.05), (0.525, "pictures", None)),
    ],
)
def test_words_are_evidence_beside_pictures(words, expected):
    joined = words.join(Hit("a", 1, "fine-1", 0.0, 9.0, 0, None, 0.5))
    assert (joined.probability, joined.rests_on, joined.quote) == (pytest.approx(expected[0]), *expected[1:])


def test_key_of_transcripts(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.npy").write_bytes(b"")
    joined = VideoSource.of((tmp_path / "a.npy", tmp_path / "b.npy"))
    assert transcripts_key(joined) == ""
    write_srt(tmp_path / "a.srt", TRANSCRIPTS["a"])
    first = transcripts_key(joined)
    (tmp_path / "a.srt").rename(tmp_path / "b.srt")
    assert "" != transcripts_key(joined) != first  # of another file
