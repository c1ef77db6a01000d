"""What strangers call their metrics: read by words, values and neighbours, and never wrongly with confidence."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from unknown_names import HELD_OUT, TUNED, Run, Spelling

import ptt
from ptt.diagnostics.store.scan import read_table

ROWS = 60


def _write(folder: Path, names: dict[str, Spelling]) -> Path:
    """Write a log whose metrics go from their first value to their last, with a little of a wave on top."""
    folder.mkdir(parents=True)
    lines = []
    for step in range(ROWS):
        row: dict[str, float] = {"step": step}
        for number, (raw, (_, first, last)) in enumerate(names.items()):
            share = step / (ROWS - 1)
            wave = 0.02 * abs(last - first) * math.sin(2.3 * step + number) * (0.0 < share < 1.0)
            row[raw] = first + (last - first) * share + wave
        lines.append(json.dumps(row))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _read(run: Path) -> dict[str, str | None]:
    store = ptt.ingest(run, out=run.parent / f"{run.name}-out")
    return dict(read_table(store, "metrics").select("name_raw", "name").unique().rows())


@pytest.fixture(scope="module", params=[("tuned", name) for name in TUNED] + [("held out", name) for name in HELD_OUT])
def read(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, dict[str, str | None]]:
    which, name = request.param
    run = (TUNED if which == "tuned" else HELD_OUT)[name]
    return run, _read(_write(tmp_path_factory.mktemp("names") / "run", run[1]))


def test_no_name_is_taken_for_another_metric(read: tuple[Run, dict[str, str | None]]) -> None:
    (_, names), found = read
    assert not {raw: found[raw] for raw, (name, _, _) in names.items() if found[raw] not in (None, name)}
