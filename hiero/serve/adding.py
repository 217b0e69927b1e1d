"""Routes that add videos: uploads, the sample, and folders of a server that was started without videos."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any

import anyio
from fastapi import Body, Query, Response

from hiero.errors import InputError
from hiero.media.decode import probe
from hiero.media.recordings import (
    VIDEO_SUFFIXES,
    NoFilesError,
    find_recordings,
    group_chapters,
    have_one_format,
    list_files,
    parse_chapter,
)
from hiero.media.source import VideoSource
from hiero.serve.edits import clear_stale
from hiero.serve.entries import Entry, NotFoundError
from hiero.serve.library import ID_LENGTH, Library
from hiero.serve.routing import ERRORS, UPLOADS, Context, RequestContext, admin, edit
from hiero.storage.cache import content_key
from hiero.storage.files import real_path, user_home
from hiero.types import check_text

MAX_NAME_BYTES = 200  # file systems allow 255, and files of edits have longer names
SAMPLE = Path(__file__).with_name("sample.mp4")  # written by: python -m examples.photographs


@edit.post("/api/upload", status_code=201, responses=ERRORS)
async def upload(
    context: Context, response: Response, name: Annotated[str, Query(min_length=1, max_length=200)]
) -> dict[str, Any]:
    """Upload a video as the body of the request, and process it.

    Chapters of a recording become one video. Of a content that the server has, the existing video is returned.
    """
    file_name = _check_file_name(name)
    folder = _upload_folder(context)
    clear_stale([folder])
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as out:
            async for chunk in context.request.stream():
                await anyio.to_thread.run_sync(out.write, chunk)
            await anyio.to_thread.run_sync(_flush, out)
        added = await context.run(lambda: _place(context, part, file_name), UPLOADS)
    except OSError as error:  # for example a full disk
        raise InputError(f"{file_name}: cannot be saved ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
    response.status_code = 200 if added["existed"] else 201
    return added


@edit.post("/api/sample", status_code=201, responses=ERRORS)
def add_sample(context: Context) -> dict[str, Any]:
    """Add the sample of `make demo`, a short film of photographs, and process it."""
    part = _upload_folder(context) / f".{secrets.token_hex(8)}.part"
    try:
        shutil.copyfile(SAMPLE, part)
        return _place(context, part, SAMPLE.name)
    finally:
        part.unlink(missing_ok=True)


def _place(context: RequestContext, part: Path, file_name: str) -> dict[str, Any]:
    """Give a complete upload its place, and start to process it."""
    library, user = context.library, context.user.name
    try:
        duration_s = probe(part).duration_s
    except InputError:
        raise InputError(f"{file_name}: cannot be read as a video") from None
    with library.adding:
        if (existing := _find_content(library, part)) is not None:
            return {"id": existing.id, "name": existing.name, "existed": True}
        people = part.parent / user_folder(user)
        begun = _find_recording(people, part, file_name) if library.join is not False else None
        target = begun or people / secrets.token_hex(ID_LENGTH // 2)
        target.mkdir(parents=True, exist_ok=True)
        part.rename(target / file_name)
        entry = _add_upload(library, target)
    context.record("upload", entry.id, file_name)
    if context.services.settings.auto:
        with suppress(InputError):  # the queue is full; the video can be processed later
            context.services.jobs.start(entry.id, user, duration_s, again=begun is not None)
    return {"id": entry.id, "name": entry.name, "existed": False}


def _find_content(library: Library, path: Path) -> Entry | None:
    """The video that has a file with the content of this one."""
    length = path.stat().st_size
    for entry in list(library.entries.values()):
        for other in entry.source.paths:
            with suppress(OSError):
                if other.stat().st_size == length and content_key(other) == content_key(path):
                    return entry
    return None


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def user_folder(user: str) -> str:
    """The name of the folder for the uploads of a user."""
    return f"_{user}" if user.startswith((".", "_")) else user


def _find_recording(people: Path, part: Path, file_name: str) -> Path | None:
    """The folder of the newest recording that a file continues, by its name and its format."""
    if parse_chapter(Path(file_name)) is None or not people.is_dir():
        return None
    for folder in sorted(_folders(people), key=_arrival, reverse=True):
        paths = [*list_files(folder, VIDEO_SUFFIXES), folder / file_name]
        recordings = group_chapters(paths)
        if len(recordings) == 1 and len(recordings[0].paths) == len(set(paths)) == len(paths) > 1:
            return folder if have_one_format(VideoSource.of([*paths[:-1], part])) else None
    return None


def _add_upload(library: Library, folder: Path) -> Entry:
    """Add the video of a folder, or its new chapter."""
    files = list_files(folder, VIDEO_SUFFIXES)
    paths = group_chapters(files)[0].paths if library.join is not False else files
    owner = folder.parent.name
    entry = library.add(VideoSource.of(list(paths)), paths[0].stem, folder.name, owner.removeprefix("_"))
    entry.is_upload = True
    return entry


@admin.get("/api/folders", responses=ERRORS)
def folders(context: Context, path: Annotated[str, Query(max_length=1000)] = "") -> dict[str, Any]:
    """The folders in a folder, and how many videos each has. Paths begin in the home folder."""
    folder = _find_folder(context, path)
    _, names, _ = _list_folder(folder)
    rows = [{"name": name, "videos": _count_videos(folder / name)} for name in sorted(names) if name[0] != "."]
    return {"path": path, "videos": _count_videos(folder), "folders": rows}


@admin.post("/api/folders", status_code=201, responses=ERRORS)
def add_folder(context: Context, path: Annotated[str, Body(embed=True, max_length=1000)]) -> dict[str, Any]:
    """Add the videos of a folder and of the folders in it."""
    folder = _find_folder(context, path)
    try:
        recordings = find_recordings([folder], resolve_clashes=True)
    except NoFilesError:
        raise InputError(f"{path or 'your home folder'}: has no videos; choose another folder") from None
    inside = {name: source for name, source in recordings.items() if real_path(source.path).is_relative_to(folder)}
    for name, source in inside.items():
        context.library.add(source, name)
    context.record("add folder", path, f"{len(inside)} videos")
    return {"added": len(inside)}


def _upload_folder(context: RequestContext) -> Path:
    if (folder := context.services.settings.upload_folder) is None:
        raise NotFoundError("uploads are off; start the server with --root FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _find_folder(context: RequestContext, path: str) -> Path:
    """A folder inside the home folder, also after links in its path are followed."""
    if not context.services.settings.choose_folders:
        raise NotFoundError("this server shows only the videos it was started with; start it with: hiero serve FOLDER")
    home = user_home().resolve()
    with suppress(OSError, ValueError):  # for example a null character
        folder = real_path(home / check_text(path))
        if folder.is_relative_to(home) and folder.is_dir():
            return folder
    raise NotFoundError("there is no such folder in your home folder; for others, start with: hiero serve FOLDER")


def _list_folder(folder: Path) -> tuple[str, list[str], list[str]]:
    """The names of the folders and files in a folder, empty if it cannot be read."""
    return next(os.walk(folder), ("", [], []))


def _count_videos(folder: Path) -> int:
    return sum(name.lower().endswith(VIDEO_SUFFIXES) for name in _list_folder(folder)[2])


def _check_file_name(name: str) -> str:
    """A safe file name for an upload. Raises InputError if it is not the name of a video."""
    file_name = re.sub(r"[^\w.() -]", "_", Path(check_text(name)).name).strip(". ")
    if Path(file_name).suffix.lower() not in VIDEO_SUFFIXES:
        raise InputError(f"{file_name or name}: not a supported video format ({', '.join(VIDEO_SUFFIXES)})")
    if len(file_name.encode()) > MAX_NAME_BYTES:
        raise InputError(f"the file name must have at most {MAX_NAME_BYTES} bytes")
    return file_name


def add_uploads(library: Library, folder: Path | None) -> None:
    """Add earlier uploads to a library, oldest first, and remove unfinished ones."""
    if folder is None or not folder.is_dir():
        return
    clear_stale([folder])
    for file in sorted(folder.iterdir()):  # where earlier versions put them
        if file.suffix.lower() in VIDEO_SUFFIXES and not file.name.startswith(".") and file.is_file():
            library.add(file)
    for path in sorted([path for people in _folders(folder) for path in _folders(people)], key=_arrival):
        if list_files(path, VIDEO_SUFFIXES):
            _add_upload(library, path)


def _folders(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]


def _arrival(folder: Path) -> float:
    """When the first file of an upload arrived."""
    return min((file.stat().st_mtime for file in list_files(folder, VIDEO_SUFFIXES)), default=0.0)
