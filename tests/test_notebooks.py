"""The notebooks have outputs, and run from the first cell to the last."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.engine.conftest import photographs as photographs
from tests.optional import weights_or_skip

pytestmark = pytest.mark.slow

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install nbclient ipykernel")

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NEEDS = {
    "a_researchers_afternoon": ("minilm",),
    "steps_of_a_video": ("i3d-k400", "dinov2-text", "minilm"),
    "train_on_your_own_features": ("minilm",),
}
# fewer sessions and epochs, which are enough for what is asked below
QUICKER = {
    '"epochs=16"': '"epochs=5"',
    '"epochs=12"': '"epochs=4"',
    "range(21)": "range(13)",
    "sessions[:20]": "sessions[:12]",
    "sessions[20]": "sessions[12]",
}


def test_all_notebooks_are_tested():
    assert {file.stem for file in NOTEBOOKS.glob("*.ipynb")} == set(NEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_it_runs(name, tmp_path, request):
    for needed in NEEDS[name]:
        weights_or_skip(needed)
    if name == "steps_of_a_video":
        film, truth, _ = request.getfixturevalue("photographs")  # the notebook's own film, which is cached already
        shutil.copy(film, tmp_path / "film.mp4")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert shown, "run the notebook before committing, so that readers see its outputs"
    assert all(output.get("name") != "stderr" for output in shown)
    for cell in notebook.cells:
        for shipped, quick in QUICKER.items():
            cell.source = cell.source.replace(shipped, quick)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    results = [
        output.data["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "execute_result"
    ]
    if name == "steps_of_a_video":
        assert str([start_s for start_s, _, _ in truth]) in results  # the cuts of the film
    elif name == "a_researchers_afternoon":
        scores = eval(results[-1], {})
        assert {"tdgc", "mean-of-neighbours"} == set(scores)
        assert all(row["F1"] > 50 for row in scores.values())
    else:
        scores = eval(results[-1], {})
        assert scores["HiERO"] > scores["equal parts"]
