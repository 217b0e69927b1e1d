"""Rows of a corpus' table: which videos are stored in them, and how rows of videos are put in,
replaced and checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hiero.corpus.rows import IndexedVideo, StoredVideo, VideoRows, group_by_video
from hiero.corpus.sql import ALL_ROWS, sql_strings
from hiero.errors import InputError


def query_rows(table: Any, where: str | None, columns: list[str], num: int = ALL_ROWS) -> Any:
    """A query for columns of rows, in the order of the table."""
    query = table.search() if where is None else table.search().where(where)
    return query.select(columns).limit(num)


def find_stored(table: Any, names: Sequence[str] | None) -> dict[str, StoredVideo]:
    where = None if names is None else f"video IN {sql_strings(list(names))}"
    return group_by_video(query_rows(table, where, ["video", "level", "about"]).to_arrow().to_pylist())


def select_changed(videos: Sequence[VideoRows], stored: Mapping[str, StoredVideo], again: bool) -> list[VideoRows]:
    """Those of some videos that are not in as they are."""

    def is_unchanged(video: VideoRows) -> bool:
        present = stored.get(video.record.video)
        if again or present is None or not present.is_whole:
            return False
        old, new = present.records[0], video.record
        return (old.sha256, old.model_key, old.transcripts) == (new.sha256, new.model_key, new.transcripts)

    return [video for video in videos if not is_unchanged(video)]


def put_rows(table: Any, videos: Sequence[VideoRows], stored: Mapping[str, StoredVideo]) -> int:
    """Insert, update and delete rows of videos, in one commit; returns how many videos that were."""
    import pyarrow as pa

    if not videos:
        return 0
    rows = pa.concat_tables([video.rows for video in videos])
    if replaced := [video.record.video for video in videos if video.record.video in stored]:
        where = f"video IN {sql_strings(replaced)}"
        drop_repeated(table, where)  # the merge would update both
        merge = table.merge_insert("uid").when_matched_update_all().when_not_matched_insert_all()
        merge.when_not_matched_by_source_delete(where).execute(rows)
    else:
        table.add(rows)  # takes no longer where many are in
    return len(videos)


def drop_repeated(table: Any, where: str | None = None) -> None:
    """Of rows that are in twice keep the one that was written last."""
    # Again until none is left: where another process puts files together just then, LanceDB tries
    # the deletion again on the new version, in which the rows have other ids, and deletes nothing.
    while True:
        rows = query_rows(table, where, ["uid"]).with_row_id(True).to_arrow()
        ids, uids = rows["_rowid"].to_pylist(), rows["uid"].to_pylist()
        last = {uid: id for id, uid in sorted(zip(ids, uids, strict=True))}
        if not (repeated := sorted(set(ids) - set(last.values()))):
            return
        table.delete(f"_rowid IN ({', '.join(map(str, repeated))})")
        table.checkout_latest()


def check_content(record: IndexedVideo) -> list[str]:
    """What is wrong with the files of a video; what is remote is asked about, not brought."""
    source = record.source
    try:
        key = source.known_key()
    except InputError as error:
        return [f"{record.video}: {error}"]
    # Of a remote file that was never here, or has changed since, the key is not known.
    if key == record.sha256 or (
        key is None and source.is_remote and not any(file.was_downloaded for file in source.files)
    ):
        return []
    return [f"{record.video}: {record.path} has changed; index it again"]
