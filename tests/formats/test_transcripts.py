"""Transcripts as programs write them, and as they arrive damaged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiero.engine.transcripts import Transcript, read_transcript
from hiero.errors import InputError
from hiero.formats import subtitles, transcripts
from hiero.formats.registry import write_export
from hiero.formats.transcripts import find_transcript, is_exported_steps
from hiero.types import Hierarchy, Step, Utterance

SRT = "1\n00:00:01,000 --> 00:00:03,500\nCrack the eggs.\n\n2\n00:01:02,250 --> 00:01:04,000\nNow whisk\nthem well.\n"
VTT = """WEBVTT Kind: captions; Language: en

STYLE
::cue { color: yellow }

NOTE a remark
of two lines

intro
00:01.000 --> 00:03.500 align:start position:0%
<v Anna>Crack <i>the</i> eggs.

01:00:02.250 --> 01:00:04.000
Salt &amp; pepper, <00:01:03.000><c>2 &lt; 3</c>

00:10.000 --> 00:11.000
[Music] ♪♪
"""
WORDS = [(1.0, 3.5, "Crack the eggs."), (62.25, 64.0, "Now whisk them well.")]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows(transcript):
    return [(utterance.start_s, utterance.end_s, utterance.text) for utterance in transcript]


@pytest.mark.parametrize(
    "content",
    [
        SRT,
        SRT.replace("\n", "\r\n"),
        SRT.replace("\n", "\r"),
        "\ufeff" + SRT,
        SRT.encode("utf-16"),
        SRT.replace("\n\n", "\n"),  # no blank line between cues
        SRT.replace(",", "."),
        SRT.replace("Crack", "{\\an8}<font color=red>Crack</font>"),
        SRT.replace("the eggs", "thé èggs").encode("cp1252"),
    ],
)
def test_srt_of_all_kinds(tmp_path, content):
    found = rows(read_transcript(write(tmp_path / "a.srt", content)))
    assert [(start_s, end_s, text.replace("é", "e").replace("è", "e")) for start_s, end_s, text in found] == WORDS


def test_webvtt_with_settings_tags_entities_and_notes(tmp_path):
    utterances = rows(read_transcript(write(tmp_path / "a.vtt", VTT)))
    assert utterances == [(1.0, 3.5, "Crack the eggs."), (3602.25, 3604.0, "Salt & pepper, 2 < 3")]  # music is not said


def test_lines_that_scroll_come_once(tmp_path):
    content = (
        "WEBVTT\n\n00:00.000 --> 00:02.000\nnow we cut the\n\n00:02.000 --> 00:02.010\nnow we cut the\n\n"
        "00:02.010 --> 00:04.000\nnow we cut the\nred onion\n"
    )
    found = rows(read_transcript(write(tmp_path / "a.vtt", content)))
    assert found == [(0.0, 2.01, "now we cut the"), (2.01, 4.0, "red onion")]


@pytest.mark.parametrize(
    "document",
    [
        {"text": "…", "segments": [{"id": 0, "start": s, "end": e, "text": f" {t}"} for s, e, t in WORDS]},
        {"segments": [{"start": s, "end": e, "text": t, "words": []} for s, e, t in reversed(WORDS)]},
        [{"start": s, "end": e, "text": t} for s, e, t in WORDS],
        [[0, 0, s, e, t, [], -0.2, 1.1, 0.0, None, 0.0] for s, e, t in WORDS],
        {"transcription": [{"offsets": {"from": 1000 * s, "to": 1000 * e}, "text": t} for s, e, t in WORDS]},
        {"text": "…", "chunks": [{"timestamp": [s, e], "text": t} for s, e, t in WORDS]},
    ],
    ids=["openai-whisper", "whisperx", "list", "faster-whisper tuples", "whisper.cpp", "transformers"],
)
def test_whisper_json(tmp_path, document):
    assert rows(read_transcript(write(tmp_path / "a.json", json.dumps(document)))) == WORDS


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", "", "no words with times"),
        ("a.srt", "hello\n", "no words with times"),
        ("a.srt", "1\n00:00:xx --> 00:00:03\nhello\n", "line 2 is not a time"),
        ("a.srt", "1\n00:00:05,000 --> 00:00:03,000\nhello\n", "invalid times"),
        ("a.txt", "hello", "unknown kind"),
        ("a.json", "{", "not JSON"),
        ("a.json", "[" * 10**5, "not JSON"),
        ("a.json", '{"text": "no times"}', "expected `segments`"),
        ("a.json", '{"segments": [{"start": "1", "end": 2, "text": "x"}]}', "segment 0"),
        ("a.json", '{"segments": [{"start": 1, "text": "x"}]}', "segment 0"),
        ("a.json", '{"segments": [{"start": NaN, "end": 2, "text": "x"}]}', "invalid times"),
        ("a.json", '{"segments": [{"start": 1, "end": 2, "text": "%s"}]}' % ("x" * 6000), "6000 characters"),
    ],
)
def test_what_is_no_transcript_is_said(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as raised:
        read_transcript(write(tmp_path / name, content))
    assert "\n" not in str(raised.value)


def test_sizes_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(transcripts, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="larger than"):
        read_transcript(write(tmp_path / "a.srt", SRT * 2))
    monkeypatch.setattr(transcripts, "MAX_BYTES", 10**6)
    monkeypatch.setattr(subtitles, "MAX_CUES", 1)
    with pytest.raises(InputError, match="more than 1 cues"):
        read_transcript(write(tmp_path / "a.srt", SRT))
    with pytest.raises(InputError, match="no such file"):
        read_transcript(tmp_path / "b.srt")


def test_nobody_says_thousands_of_sentences_in_a_minute(tmp_path):
    rows = [{"start": i / 100, "end": i / 100 + 1, "text": f"now number {i}"} for i in range(5000)]
    with pytest.raises(InputError, match="5000 utterances in 51 s; is it a transcript"):
        read_transcript(write(tmp_path / "a.json", json.dumps({"segments": rows})))
    assert len(read_transcript(write(tmp_path / "a.json", json.dumps({"segments": rows[:1000]})))) == 1000


@given(st.text(max_size=300), st.sampled_from([".srt", ".vtt", ".json"]))
def test_any_text_is_read_or_refused(tmp_path_factory, text, suffix):
    path = tmp_path_factory.mktemp("any") / f"a{suffix}"
    path.write_text(f"1\n00:00:01,000 --> 00:00:02,000\n{text}", encoding="utf-8", newline="")
    try:
        transcript = read_transcript(path)
    except InputError:
        return
    assert len(transcript) >= 1


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(1, 10**5), st.text("abc é.,!-", min_size=1, max_size=20)),
        min_size=1,
        max_size=5,
    )
)
def test_srt_comes_back(tmp_path_factory, cues):
    path, begin_ms, utterances = tmp_path_factory.mktemp("back") / "a.srt", 0, []
    for gap_ms, length_ms, text in cues:
        begin_ms += gap_ms + 200
        utterances.append(Utterance(begin_ms / 1000, (begin_ms + length_ms) / 1000, "x " + " ".join(text.split())))
        begin_ms += length_ms
    path.write_text(Transcript(tuple(utterances)).to_srt())
    for was, now in zip(utterances, read_transcript(path), strict=True):
        assert (now.start_s, now.end_s) == pytest.approx((was.start_s, was.end_s), abs=1e-6)
        assert now.text == was.text.strip()


# Beside a video


def test_the_file_beside_a_video(tmp_path):
    video = write(tmp_path / "kitchen.mp4", b"")
    assert find_transcript(video) is None
    write(tmp_path / "kitchen.de.srt", SRT)  # texts are searched in English
    write(tmp_path / "kitchen2.srt", SRT)
    write(tmp_path / "kitchen.json", '{"annotations": []}')
    assert find_transcript(video) is None
    (tmp_path / "kitchen.srt").mkdir()
    english = write(tmp_path / "kitchen.en-US.vtt", VTT)
    assert find_transcript(video) == english
    whisper = write(tmp_path / "kitchen.json", json.dumps({"segments": [{"start": 1, "end": 2, "text": "hi"}]}))
    assert find_transcript(video) == whisper
    plain = write(tmp_path / "kitchen.VTT", VTT)
    assert find_transcript(video) == plain
    assert find_transcript(tmp_path / "gone" / "x.mp4") is None


def test_our_own_exports_are_no_transcripts(tmp_path):
    """Also where somebody has given them the video's name, so that a player shows them."""
    labels = ["whisk eggs", "pour", "fry"]
    steps = tuple(Step(f"0.{i}", 10.0 * i, 10.0 * i + 10, i, label=label) for i, label in enumerate(labels))
    hierarchy = Hierarchy("kitchen.mp4", "m", 30.0, (steps,))
    for name in ("vtt", "srt"):
        exported = write_export(name, hierarchy, tmp_path / "out")
        exported.rename(tmp_path / f"kitchen.{name}")
        assert is_exported_steps(tmp_path / f"kitchen.{name}")
        assert read_transcript(tmp_path / f"kitchen.{name}")  # whoever names it by hand gets it
    assert find_transcript(tmp_path / "kitchen.mp4") is None
    # Speech without a pause has punctuation.
    spoken = "1\n00:00:00,000 --> 00:00:03,000\nI crack\n\n2\n00:00:03,000 --> 00:00:04,000\nthe eggs.\n"
    write(tmp_path / "kitchen.srt", spoken)
    assert find_transcript(tmp_path / "kitchen.mp4") == tmp_path / "kitchen.srt"


# Times


def test_what_is_said_between():
    transcript = Transcript(tuple(Utterance(*row) for row in WORDS))
    assert transcript.between(0, 10) == transcript.utterances[:1]
    assert rows(transcript.until(63.0)) == [WORDS[0], (62.25, 63.0, WORDS[1][2])]
    assert len(transcript.until(10.0)) == 1
