"""What each difference between the release's evaluation and a corrected one changes, on the made data
of tests/fixtures/protocols.

python -m benchmarks.protocols        one line for each option of `Protocol`: the release's numbers
with this one option corrected
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import replace
from pathlib import Path

from hiero.engine import Engine, load
from hiero.evaluation import egoprocel, egoprocel_data
from hiero.evaluation.cases import EvalOptions, TextEmbeddings
from hiero.evaluation.goalstep import read_goalstep_cases, read_grounding, read_groups
from hiero.evaluation.grounding import evaluate_runs
from hiero.evaluation.protocols import CORRECTED, RELEASE, Protocol
from hiero.model.released import read_released
from hiero.types import Clock

DATA = Path(__file__).parent.parent / "tests" / "fixtures" / "protocols"


def score(engine: Engine, protocol: Protocol) -> list[str]:
    """Cells of a line: EgoProceL with HiERO and with raw features, Goal-Step."""
    rates = egoprocel_data.read_rates(DATA / "egoprocel" / "rates.csv")
    videos, _, _ = egoprocel_data.find_egoprocel_videos(
        DATA / "egoprocel/annotations", DATA / "egoprocel/features/egovlp", rates
    )
    rows = {row.method: row.scores for row in egoprocel.evaluate_egoprocel(engine, videos, protocol=protocol)[0].rows}
    cells = [
        f"{rows[name]['mean F1']:.2f} / {rows[name]['mean IoU']:.2f}" for name in ("HiERO, spectral", "raw, spectral")
    ]
    groups = read_groups(DATA / "goalstep" / "goalstep_video_groups.tsv")
    annotated, features = read_grounding(DATA / "goalstep" / "val.json"), DATA / "ego4d/features/egovlp"
    cases, _ = read_goalstep_cases(protocol.configure(engine), features, annotated, groups, Clock(), protocol=protocol)
    embeddings = TextEmbeddings(cases[0].video.engine, [text for case in cases for text in case.texts])
    options = EvalOptions(num_threads=8, min_nodes=5, num_draws=2, protocol=protocol)
    scores = evaluate_runs(cases, embeddings, options).rows[0].scores
    return [*cells, " / ".join(f"{scores[name]:.1f}" for name in ("R1@.3", "R5@.3", "R1@.5", "R5@.5"))]


def main() -> None:
    print(
        "| | EgoProceL, HiERO: F1 / IoU | raw: F1 / IoU | Goal-Step: R1@.3 / R5@.3 / R1@.5 / R5@.5 |\n|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as folder:
        read_released(DATA / "checkpoint" / "hiero_small.pth").save(Path(folder) / "model")
        engine = load(str(Path(folder) / "model"))
        options = [field.name for field in dataclasses.fields(RELEASE) if field.name != "name"]
        lines = {"release": RELEASE, **{f"without `{name}`": replace(RELEASE, **{name: False}) for name in options}}
        for name, protocol in {**lines, "corrected": CORRECTED}.items():
            print(f"| {name} | {' | '.join(score(engine, protocol))} |", flush=True)


if __name__ == "__main__":
    main()
