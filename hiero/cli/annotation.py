"""hiero push-steps: steps become tasks of an annotation project; `hiero import-steps` brings back what
people made of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hiero.cli.console import log, progress_bar
from hiero.cli.options import Flag
from hiero.errors import InputError

if TYPE_CHECKING:
    from hiero.formats.label_studio_api import LabelStudioProject

MAX_TASK_BYTES = 2**26


def push_steps(*files: Path, to: str, media_url: str = "", set_up: Flag = False) -> None:
    """Send steps to a project of Label Studio, as tasks with predictions that people correct.

    The token comes from LABEL_STUDIO_API_KEY (Account & Settings in Label Studio). Videos that the
    project has already are left as they are, so an interrupted command can be run again. Back with:
    hiero import-steps ADDRESS --video VIDEO

    **Examples**

    `hiero push-steps kitchen/steps.json --to http://localhost:8080/projects/3 --media-url
    http://localhost:8000/videos/`

    `hiero push-steps out/*/steps.json --to http://localhost:8080/projects/3`

    Parameters
    ----------
    files
        steps.json as `hiero steps -o` writes it, corrected steps (.hiero.json), or labelstudio.json
        of `--export labelstudio`.
    to
        Address of the project, as the browser shows it.
    media_url
        Where the browser finds the videos: their names are added to it. By default the name alone,
        which Label Studio cannot play before its storage is set up.
    set_up
        Replace a labelling interface that has another purpose. One that is empty, or was made by
        this command, is extended anyway.
    """
    from hiero.formats.label_studio_api import extend_interface, labels_of_tasks

    if not files:
        raise InputError("say what to send: hiero push-steps STEPS.json… --to http://localhost:8080/projects/3")
    project = open_project(to)
    tasks = [task for file in files for task in _read_tasks(file, media_url)]
    present = {str(task.get("data", {}).get("video")) for task in project.tasks()}
    missing = [task for task in tasks if task["data"]["video"] not in present]
    if missing:
        interface, labels = project.read_interface(), labels_of_tasks(missing)
        extended = extend_interface("<View></View>" if set_up else interface, labels)
        if extended is None:
            raise InputError(
                f"{project.address}: its labelling interface lacks {', '.join(sorted(labels))}; use a new project, "
                "or --set-up to replace it"
            )
        if extended.split() != interface.split():
            project.write_interface(extended)
        with progress_bar("sending", len(missing)) as advance:
            for task in missing:
                project.import_tasks([task])
                advance(task["data"]["video"])
    num_present = len(tasks) - len(missing)
    log(
        f"{project.address}: {len(missing)} tasks added"
        + (f", {num_present} were there already" if num_present else "")
    )


def open_project(address: str) -> LabelStudioProject:
    """A project of Label Studio, with the token of the environment."""
    from hiero.formats.label_studio_api import TOKEN_VARIABLE, LabelStudioProject

    return LabelStudioProject(address, os.environ.get(TOKEN_VARIABLE, ""))


def _read_tasks(file: Path, media_url: str) -> list[dict[str, Any]]:
    """Tasks of a file of steps, with the address of the video that the browser opens."""
    from hiero.formats.hiero_json import parse_hierarchy
    from hiero.formats.label_studio import to_task
    from hiero.storage.files import parse_json, read_bounded

    try:
        document = parse_json(read_bounded(file, MAX_TASK_BYTES, "a file of steps"))
        if isinstance(document, dict) and "levels" in document:
            document = [to_task(parse_hierarchy(document))]
        for task in document:
            name = task["data"]["video"]
            task["data"]["video"] = _join(media_url, name) if media_url else name
    except (ValueError, KeyError, TypeError) as error:
        message = str(error)
        if isinstance(error, InputError) and message.startswith(str(file)):
            raise
        raise InputError(f"{file}: neither steps of hiero nor tasks of Label Studio ({message})") from error
    tasks: list[dict[str, Any]] = document
    return tasks


def _join(address: str, name: str) -> str:
    from urllib.parse import quote

    return address.rstrip("/") + "/" + quote(name)
