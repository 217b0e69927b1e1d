"""Uploads: new videos from clients, off unless the server has a folder for them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import anyio
from fastapi import Query

from hiero.decoding.decode import probe
from hiero.decoding.recordings import VIDEO_SUFFIXES
from hiero.errors import InputError
from hiero.serve.edits import clear_stale
from hiero.serve.entries import NotFoundError
from hiero.serve.library import Library
from hiero.serve.routing import ERRORS, Context, role_router
from hiero.serve.workers import READS
from hiero.types import check_text

MAX_NAME_BYTES = 200  # a file system takes 255, and files of edits have longer names
PART = re.compile(r"\.[0-9a-f]{16}\.part")  # an upload that is under way


edit = role_router("edit")


@edit.post("/api/upload", status_code=201, responses=ERRORS)
async def upload(context: Context, name: Annotated[str, Query(min_length=1, max_length=200)]) -> dict[str, Any]:
    """A new video, as the body of the request. Off unless the server was started with --upload."""
    folder = context.services.settings.upload
    if folder is None:
        raise NotFoundError("uploads are off; start the server with --upload FOLDER")
    file_name = _check_file_name(name)
    target = folder / file_name
    if target.exists():
        raise InputError(f"{file_name}: there is a video of that name already")
    clear_stale(folder, PART)
    part = folder / f".{os.urandom(8).hex()}.part"
    try:
        with part.open("xb") as out:
            async for chunk in context.request.stream():
                await anyio.to_thread.run_sync(out.write, chunk)
        if not await context.run(lambda: _is_readable(part), READS):
            raise InputError(f"{file_name}: not a video that can be read")
        os.link(part, target)  # fails where another upload was first, where a rename would replace it
    except FileExistsError:
        raise InputError(f"{file_name}: there is a video of that name already") from None
    except OSError as error:  # such as a full disk
        raise InputError(f"{file_name}: cannot be stored ({error.strerror})") from error
    finally:
        part.unlink(missing_ok=True)
    entry = context.library.add(target)
    context.record("upload", entry.id, file_name)
    return {"id": entry.id, "name": entry.name}


def _check_file_name(name: str) -> str:
    """The name of a new file, of its folder and not hidden. Raises InputError where it is not one of a video."""
    file_name = re.sub(r"[^\w.() -]", "_", Path(check_text(name)).name).strip(". ")
    if Path(file_name).suffix.lower() not in VIDEO_SUFFIXES:
        raise InputError(f"{file_name or name}: not a kind of video ({', '.join(VIDEO_SUFFIXES)})")
    if len(file_name.encode()) > MAX_NAME_BYTES:
        raise InputError(f"the name is too long; at most {MAX_NAME_BYTES} bytes")
    return file_name


def add_uploads(library: Library, folder: Path | None) -> None:
    """Show what was uploaded before, and clear what a server that was killed left of uploads."""
    if folder is None or not folder.is_dir():
        return
    clear_stale(folder, PART)
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in VIDEO_SUFFIXES and not file.name.startswith(".") and file.is_file():
            library.add(file)


def _is_readable(path: Path) -> bool:
    try:
        probe(path)
    except InputError:
        return False
    return True
