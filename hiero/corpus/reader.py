"""CorpusReader: the videos of a corpus, and searches in their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, Hit, IndexedVideo, StoredVideo, group_by_video
from hiero.corpus.same_step import find_same_steps
from hiero.corpus.searching import ScoreSummaries, SpokenMoment, StepQuery, find_spoken, search_steps
from hiero.corpus.table import ALL_ROWS, ANY_ROW, SPEECH, STEPS, WHOLE_VIDEOS, CorpusTables, RowFilter
from hiero.engine import Embedder, SpanSummaries
from hiero.errors import InputError
from hiero.steps.similarity import match_probability
from hiero.text.minilm import encode_minilm


@dataclass
class CorpusReader:
    """What is in a corpus. `Corpus` can change it, too."""

    uri: str
    create: bool = False
    tables: CorpusTables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tables = CorpusTables(self.uri, self.create)

    @property
    def table(self) -> Any:
        """The LanceDB table of the steps, as the last writer left it.

        Raises:
            InputError: No video was added yet.
        """
        return self.tables.get(STEPS)

    def __len__(self) -> int:
        """Number of steps of all videos."""
        return self.tables.count(RowFilter(only_steps=True))

    @property
    def num_videos(self) -> int:
        """Number of videos."""
        return self.tables.count(WHOLE_VIDEOS)

    def first_video(self) -> IndexedVideo | None:
        """Any of the videos: all are of one model."""
        return next(iter(self._records(WHOLE_VIDEOS, 1)), None)

    def videos(self) -> list[IndexedVideo]:
        """All videos, by name."""
        return sorted(self._records(WHOLE_VIDEOS), key=lambda record: record.video)

    def find(self, name: str) -> IndexedVideo:
        """A video by its name, its path, or the name of its file.

        Raises:
            InputError: The corpus has no such video.
        """
        for record in self._records(RowFilter([name], levels=WHOLE_VIDEOS.levels)) or self.videos():
            if name in (record.video, record.path, Path(record.path).name):
                return record
        raise InputError(f"{self.uri}: holds no video {name}; see: hiero corpus list {self.uri}")

    def lookup(self, names: Iterable[str]) -> dict[str, IndexedVideo]:
        """Those of some videos that are in, complete, by name."""
        return {name: stored.records[0] for name, stored in self.stored(list(names)).items() if stored.is_whole}

    def stored(self, names: Sequence[str] | None = None) -> dict[str, StoredVideo]:
        """What the table has under some names, or under all: complete videos, and what else there may be."""
        if self.tables.find(STEPS) is None or (names is not None and not names):
            return {}
        rows = ANY_ROW if names is None else RowFilter(names)
        return group_by_video(self.tables.read(rows, ["video", "level", "about"]).to_pylist())

    def _records(self, rows: RowFilter, num: int = ALL_ROWS) -> list[IndexedVideo]:
        if self.tables.find(STEPS) is None:
            return []
        return [IndexedVideo.from_json(row["about"]) for row in self.tables.read(rows, ["about"], num).to_pylist()]

    def steps(self, name: str, level: int | None = None) -> list[Hit]:
        """The steps of a video, level by level, in time order.

        Args:
            name: Of the video, as `IndexedVideo.video`.
            level: Only of this level, 0 the coarsest.

        Returns:
            The steps, each with score 1; none where there is no such video.
        """
        rows = StepQuery(None, 1, [name], level).rows
        hits = [Hit.from_row(row, 1.0) for row in self.tables.read(rows, HIT_COLUMNS).to_pylist()]
        return sorted(hits, key=lambda hit: (hit.level, hit.start_s))

    def described_steps(self, name: str, level: int) -> list[tuple[Hit, np.ndarray, bytes | None]]:
        """The steps of one level of a video in time order, each with its vector and its picture.

        Args:
            name: Of the video, as `IndexedVideo.video`.
            level: 0 the coarsest.
        """
        found = self.tables.read(RowFilter([name], levels=(level,)), [*HIT_COLUMNS, "vector", "picture"])
        rows = sorted(found.to_pylist(), key=lambda row: row["start_s"])
        return [(Hit.from_row(row, 1.0), np.array(row["vector"], dtype=np.float32), row["picture"]) for row in rows]

    def search_text(self, engine: Embedder, text: str, num: int = 20, **options: Any) -> list[Hit]:
        """The steps that fit a text best: near by their vectors, then compared with all that is stored of them.

        Where videos have transcripts, also what is said is searched: see `Hit.rests_on`. By speech
        alone where the model has no text encoder.

        Args:
            engine: The model that the corpus was made with.
            text: What to look for.
            num: How many hits at most.
            options: More arguments of `search`.
        """

        def score(summaries: list[bytes]) -> np.ndarray:
            similarity = SpanSummaries.from_bytes(summaries).similarity([text])
            return match_probability(similarity[0])

        filters = {name: options[name] for name in ("videos", "exclude", "exact") if name in options}
        spoken = self.search_speech(text, num, **filters)
        vector = None if spoken is not None and not engine.has_text else engine.embed_queries([text])[0]
        return search_steps(
            self.tables,
            StepQuery(vector, num, **options, score=score if engine.has_pictures else None, spoken=spoken),
        )

    def search_speech(
        self, text: str, num: int = 20, *, videos: Sequence[str] = (), exclude: str | None = None, exact: bool = False
    ) -> list[SpokenMoment] | None:
        """When a text, or something near to it, is said in videos of the corpus; None where none has a transcript.

        Args:
            text: What to look for.
            num: How many steps are wanted; there are some times as many moments.
            videos: Only in these; by default in all.
            exclude: Not in this video.
            exact: Compare with all that is said; without it a large corpus is searched by its index.
        """
        if num < 1 or not self.tables.count(ANY_ROW, SPEECH):
            return None
        return find_spoken(self.tables, encode_minilm([text])[0], num, RowFilter(videos, exclude), exact)

    def search(
        self,
        vector: np.ndarray,
        num: int = 20,
        *,
        videos: Sequence[str] = (),
        level: int | None = None,
        exclude: str | None = None,
        exact: bool = False,
        score: ScoreSummaries | None = None,
    ) -> list[Hit]:
        """The steps nearest to a vector, each moment once: of hits that overlap on two levels the nearer stays.

        Args:
            vector: (D,), such as a row of `Engine.embed_queries` or `Video.embed_spans`.
            num: How many hits at most.
            videos: Only in these; by default in all.
            level: Only steps of this level, 0 the coarsest; by default of all.
            exclude: Not in this video.
            exact: Compare with every step; without it a large corpus is searched by its index.
            score: How well steps fit by their summaries: the nearest ones are then ordered by it.

        Returns:
            Hits, nearest first.

        Raises:
            InputError: `num` is below 1, the corpus is empty, or its vectors have another size.
        """
        return search_steps(self.tables, StepQuery(vector, num, videos, level, exclude, exact, score))

    def like(
        self,
        name: str,
        time_s: float,
        num: int = 20,
        level: int | None = None,
        *,
        videos: Sequence[str] = (),
        exact: bool = False,
    ) -> tuple[Hit, list[Hit]]:
        """The same step elsewhere: the step of a video at a moment, and the steps of other videos that
        are most likely the same.

        Steps are compared by what they show and by what comes before and after them
        (`hiero.steps.correspondence`): of the videos that have the nearest steps, and of those that
        are nearest as a whole.

        Args:
            name: Of the video, as `find` takes it.
            time_s: The moment.
            num: How many hits at most.
            level: Of the step and of the hits; by default the finest of the video.
            videos: Only in these; by default in all others.
            exact: Compare with every step to find the videos; without it a large corpus is searched by its index.

        Returns:
            The step at the moment, and the hits, most likely first; their score is how likely it is the same step.

        Raises:
            InputError: There is no such video, no step of this level at that moment, or `num` is below 1.
        """
        record = self.find(name)
        level = len(record.levels) - 1 if level is None else level
        answer = find_same_steps(self.tables, record.video, level, time_s, num, videos, exact)
        if answer is None:
            raise InputError(
                f"{record.video}: no step of level {level} at {time_s:g} s; it is {record.duration_s:.0f} s long"
            )
        return answer

    def check_query_model(self, engine: Embedder) -> None:
        """Raise InputError where queries of an engine cannot be searched for: they must be embedded by
        the model of the steps.
        """
        if model := self.other_model(engine):
            raise InputError(f"{self.uri} was made with {model}; say where that model is: --model FOLDER")

    def other_model(self, engine: Embedder) -> str | None:
        """The name of the model of the corpus, if that is not an engine's."""
        record = self.first_video()
        if record is None or record.model_key == engine.key:
            return None
        if record.model == engine.name:
            raise InputError(
                f"{self.uri}: was made by another version of {engine.name}; make its steps anew: hiero index --to "
                f"{self.uri}"
            )
        return record.model

    def is_stale(self, engine: Embedder) -> bool:
        """Whether the steps were made by another version of an engine's model: `renew` makes them anew."""
        record = self.first_video()
        return record is not None and record.model == engine.name and record.model_key != engine.key
