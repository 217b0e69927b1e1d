"""The videos of a corpus, and searches in their steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hiero.corpus.rows import HIT_COLUMNS, Hit, IndexedVideo, StoredVideo, group_by_video
from hiero.corpus.searching import StepQuery, find_same_steps, find_words, search_steps, step_filter
from hiero.corpus.table import ALL_ROWS, STEPS, WHOLE_VIDEOS, CorpusTables, RowFilter, report_damage
from hiero.engine import Embedder
from hiero.engine.summaries import SpanSummaries
from hiero.errors import InputError
from hiero.storage.locks import WAIT_S


@dataclass
class CorpusReader:
    """Read access to a corpus."""

    uri: str
    create: bool = False
    wait_s: float = WAIT_S
    tables: CorpusTables = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tables = CorpusTables(self.uri, self.create, self.wait_s)

    @property
    def table(self) -> Any:
        """The LanceDB table of the steps in its latest version. Raises InputError if the corpus is empty."""
        return self.tables.get(STEPS)

    def __len__(self) -> int:
        """Number of steps of all videos."""
        return self.tables.count(RowFilter(only_steps=True))

    @property
    def num_videos(self) -> int:
        """Number of videos."""
        return self.tables.count(WHOLE_VIDEOS)

    def first_video(self) -> IndexedVideo | None:
        """Any of the videos. All were indexed with the same model."""
        return next(iter(self._records(WHOLE_VIDEOS, 1)), None)

    def videos(self) -> list[IndexedVideo]:
        """All videos, sorted by name."""
        return sorted(self._records(WHOLE_VIDEOS), key=lambda record: record.video)

    def find(self, name: str) -> IndexedVideo:
        """Find a video by its name, its path or the name of its file. Raises InputError if there is none."""
        for record in self._records(RowFilter([name], levels=WHOLE_VIDEOS.levels)) or self.videos():
            if name in (record.video, record.path, Path(record.path).name):
                return record
        raise InputError(f"{self.uri}: has no video {name}; list its videos with: hiero corpus list {self.uri}")

    def lookup(self, names: Iterable[str]) -> dict[str, IndexedVideo]:
        """The complete videos among these names, by name."""
        return {name: stored.records[0] for name, stored in self.stored(list(names)).items() if stored.is_whole}

    def stored(self, names: Sequence[str] | None = None) -> dict[str, StoredVideo]:
        """The stored rows by name, of some videos or of all, including incomplete and repeated videos."""
        if names is not None and not names:
            return {}
        return group_by_video(self.tables.read(RowFilter(names or ()), ["video", "level", "about"]))

    def _records(self, rows: RowFilter, num: int = ALL_ROWS) -> list[IndexedVideo]:
        found = self.tables.read(rows, ["about"], num)
        with report_damage(self.uri):
            return [IndexedVideo.from_json(row["about"]) for row in found]

    def steps(self, name: str, level: int | None = None) -> list[Hit]:
        """The steps of a video in time order, of one level (0 is the coarsest) or level by level, each with score 1."""
        hits = [Hit.from_row(row, 1.0) for row in self.tables.read(step_filter([name], level), HIT_COLUMNS)]
        return sorted(hits, key=lambda hit: (hit.level, hit.start_s))

    def step_names(self) -> dict[str, tuple[str, ...]]:
        """The names of the finest steps of each video in time order, each once."""
        rows = self.tables.read(RowFilter(only_steps=True), ["video", "level", "start_s", "label"])
        rows.sort(key=lambda row: (row["level"], row["start_s"]))
        finest = {row["video"]: row["level"] for row in rows}
        names: dict[str, dict[str, None]] = {video: {} for video in finest}
        for row in rows:
            if row["label"] and row["level"] == finest[row["video"]]:
                names[row["video"]][row["label"]] = None
        return {video: tuple(each) for video, each in names.items()}

    def described_steps(self, name: str, level: int) -> list[tuple[Hit, np.ndarray, bytes | None]]:
        """The steps of one level of a video in time order, each with its vector and its thumbnail."""
        rows = self.tables.read(RowFilter([name], levels=(level,)), [*HIT_COLUMNS, "vector", "picture"])
        rows.sort(key=lambda row: row["start_s"])
        return [(Hit.from_row(row, 1.0), np.array(row["vector"], dtype=np.float32), row["picture"]) for row in rows]

    def search_text(
        self,
        engine: Embedder,
        text: str,
        num: int = 20,
        *,
        videos: Sequence[str] = (),
        level: int | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """Find the steps that match a text best.

        Transcripts and the names that people gave are searched, too (see `Hit.rests_on`). If the model
        has no text encoder, only these are searched.

        Args:
            engine: The model that indexed the corpus.
            text: The query.
            num: Maximum number of hits.
            videos: Search only these videos.
            level: Search only this level (0 is the coarsest).
            exact: Compare with every step, also in a corpus that is large enough for an index.

        Returns:
            Hits, best first.

        Raises:
            InputError: `num` is below 1, or the corpus is empty.
        """

        def score(summaries: list[bytes]) -> np.ndarray:
            return SpanSummaries.from_bytes(summaries).similarity([text], engine.image_text_head)[0]

        query = StepQuery(num, videos, level, exact, by_text=True)
        words = find_words(self.tables, text, query)
        if words is not None and not engine.has_text:
            return search_steps(self.tables, query, None, None, words)
        vector = engine.embed_queries([text])[0]
        return search_steps(self.tables, query, vector, score if engine.has_pictures else None, words)

    def search(
        self,
        vector: np.ndarray,
        num: int = 20,
        *,
        videos: Sequence[str] = (),
        level: int | None = None,
        exact: bool = False,
    ) -> list[Hit]:
        """Find the steps nearest to a vector. Of overlapping hits in one video, only the best is kept.

        Args:
            vector: (D,), such as a row of `Engine.embed_queries` or `Video.embed_spans`.
            num, videos, level, exact: As for `search_text`.

        Returns:
            Hits, nearest first.

        Raises:
            InputError: `num` is below 1, the corpus is empty, or its vectors have another size.
        """
        return search_steps(self.tables, StepQuery(num, videos, level, exact), vector)

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
        """Find the same step in other videos.

        Steps are compared by their content and by the steps before and after them
        (`hiero.steps.correspondence`), in the videos with the most similar steps and in the most
        similar videos.

        Args:
            name: Name of the video, as for `find`.
            time_s: A moment of the step.
            level: Level of the step and of the hits. Defaults to the finest level of the video.
            num, videos, exact: As for `search_text`.

        Returns:
            The step at the moment, and the hits in descending order of the probability (their score)
            that they are the same step.

        Raises:
            InputError: There is no such video, no step of this level at that moment, or `num` is below 1.
        """
        record = self.find(name)
        level = len(record.levels) - 1 if level is None else level
        answer = find_same_steps(self.tables, record.video, level, time_s, StepQuery(num, videos, exact=exact))
        if answer is None:
            raise InputError(
                f"{record.video}: has no step of level {level} at {time_s:g} s; it is {record.duration_s:.0f} s long"
            )
        return answer

    def check_model(self, engine: Embedder) -> None:
        """Raise InputError unless the corpus is empty or was indexed with the model of an engine."""
        record = self.first_video()
        if record is None or record.model_key == engine.key:
            return
        if self.is_stale(engine):
            reason = f"another version of {engine.name}; run: hiero index --to {self.uri}"
        else:
            reason = f"the model {record.model}, not {engine.name}; choose that model with --model"
        raise InputError(f"{self.uri}: was indexed with {reason}")

    def is_stale(self, engine: Embedder) -> bool:
        """Whether the corpus was indexed with another version of the model of an engine."""
        record = self.first_video()
        return record is not None and record.model == engine.name and record.model_key != engine.key
