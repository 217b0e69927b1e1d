"""The whole path on real photographs: the film of `make demo`, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from examples.photographs import ABSENT, PHOTOGRAPHS
from hiero.corpus.corpus import Corpus, IndexSettings, add_video
from hiero.engine.summaries import SpanSummaries
from tests.optional import skip_without

pytestmark = pytest.mark.slow

skip_without("skimage", "needs the photographs of scikit-image")


def test_steps_are_the_photographs(photographs):
    _, truth, video = photographs
    starts_s = [step.start_s for step in video.steps([len(truth)], labels=[]).levels[0]]
    np.testing.assert_allclose(starts_s, [start for start, _, _ in truth], atol=1.0)


def test_words_find_their_photograph(photographs):
    _, truth, video = photographs
    texts = [(i, text) for i, own in enumerate(PHOTOGRAPHS.values()) for text in own]
    answers = video.ask([text for _, text in texts])
    middles = [(answer.matches[0].start_s + answer.matches[0].end_s) / 2 for answer in answers]
    correct = [truth[i][0] <= middle <= truth[i][1] for (i, _), middle in zip(texts, middles, strict=True)]
    assert sum(correct) >= len(correct) - 2, [text for (_, text), good in zip(texts, correct, strict=True) if not good]
    assert correct[0], "a cup of coffee"


def test_what_is_not_there_is_refused(photographs):
    _, _, video = photographs
    present = [answer.probability for answer in video.ask([texts[0] for texts in PHOTOGRAPHS.values()])]
    absent = [answer.probability for answer in video.ask(list(ABSENT))]
    assert max(absent) < 0.5
    assert np.median(present) > max(absent)


def test_an_improbable_label_is_no_name(photographs):
    _, truth, video = photographs
    assert {step.label for step in video.steps([len(truth)], labels=list(ABSENT)).levels[0]} == {None}
    (whole,) = video.label(list(ABSENT))
    assert (whole.label, whole.probability, whole.end_s) == (None, None, video.duration_s)


@pytest.mark.slow
def test_a_corpus_of_it(photographs, tmp_path):
    path, truth, video = photographs
    engine = video.engine
    corpus = Corpus(str(tmp_path / "corpus"), create=True)
    add_video(corpus, engine, path, lambda _: video, IndexSettings([len(truth)]))
    best = corpus.search_text(engine, "a cup of coffee", 3)[0]
    assert truth[0][0] <= (best.start_s + best.end_s) / 2 <= truth[0][1]
    assert 0 <= best.probability <= 1


def test_summaries_survive_their_bytes(photographs):
    _, _, video = photographs
    summaries = video.sight.summaries.find(np.array([[0, 6], [6, 7]]))
    again = SpanSummaries.from_bytes(summaries.to_bytes())
    before, after = (each.similarity(["a cat", "coffee"], "research") for each in (summaries, again))
    np.testing.assert_allclose(after, before, atol=0.01)
