"""Routes that add videos: uploads, the sample, and folders of a server that was started without videos."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import Body, Query

from hiero.errors import InputError
from hiero.media.decode import probe
from hiero.media.recordings import VIDEO_SUFFIXES, NoFilesError, find_recordings
from hiero.serve.edits import clear_stale
from hiero.serve.entries import NotFoundError
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS, READS, Context, RequestContext, admin, edit
from hiero.storage.files import real_path, user_home, write_bytes
from hiero.types import check_text

MAX_NAME_BYTES = 200  # file systems allow 255, and files of edits have longer names
SAMPLE = Path(__file__).with_name("sample.mp4")  # written by: python -m examples.photographs


@edit.post("/api/upload", status_code=201, responses=ERRORS)
async def upload(context: Context, name: Annotated[str, Query(min_length=1, max_length=200)]) -> dict[str, Any]:
    """Upload a video as the body of the request, if the server was started with --upload."""
    folder, file_name = _upload_folder(context), _check_file_name(name)
    target = folder / file_name
    if target.exists():
        raise InputError(f"{file_name}: a video with this name already exists")
    clear_stale([folder])
    part = folder / f".{os.urandom(8).hex()}.part"
    try:
        with part.open("xb") as out:
            async for chunk in context.request.stream():
                await anyio.to_thread.run_sync(out.write, chunk)
        await context.run(lambda: probe(part), READS)
        os.link(part, target)  # unlike a rename, this does not overwrite another upload
    except InputError:
        raise InputError(f"{file_name}: cannot be read as a video") from None
    except FileExistsError:
        raise InputError(f"{file_name}: a video with this name already exists") from None
    except OSError as error:  # for example a full disk
        raise InputError(f"{file_name}: cannot be saved ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
    return await context.run(lambda: _add(context, target))


@edit.post("/api/sample", status_code=201, responses=ERRORS)
def add_sample(context: Context) -> dict[str, Any]:
    """Add the sample of `make demo`: a short film of photographs."""
    target = _upload_folder(context) / SAMPLE.name
    if not target.exists():
        write_bytes(target, SAMPLE.read_bytes())
    return _add(context, target)


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
    if (folder := context.services.settings.upload) is None:
        raise NotFoundError("uploads are off; start the server with --upload FOLDER")
    return folder


def _add(context: RequestContext, target: Path) -> dict[str, Any]:
    entry = context.library.add(target)
    context.record("upload", entry.id, target.name)
    return {"id": entry.id, "name": entry.name}


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
    """Add earlier uploads to a library, and remove unfinished ones."""
    if folder is None or not folder.is_dir():
        return
    clear_stale([folder])
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in VIDEO_SUFFIXES and not file.name.startswith(".") and file.is_file():
            library.add(file)
