"""Large metric tables are read as columns: each cell counts as it does where cells are read one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from metric_pieces import assert_same, read_in_blocks, rows_and_losses
from slow_cases import first_fast

from ptt.diagnostics.parsers import PARSERS, RunFile
from ptt.diagnostics.parsers.io import metric_blocks

CSV = next(parser for parser in PARSERS if parser.name == "metrics_csv")
NUMBERS = ("0.5", "1", "-2.25", "3e-5", "1E+20", " 7.5", "nan", "NaN", "Infinity", "-inf", "1e400", "007", "-0.0", ".5",
           "0.1234567890123456", "12345678901234567890123")  # fmt: skip
ODD = ("null", "None", "no log", "oops", "8 ", "1_0", '"2.5"', "true", "0x1f", "1,5", "\u00a03", "[1 2]", "+nan", "5-")
STEPS = ("+7", "-3", "7.0", "7/100", "x", "", "99999999999999999999", "9007199254740993", " 7")
TIMES = ("1700000000", "1700000000.25", "2026-01-01T00:00:00+00:00", "", "5", "yesterday")


def drawn_table(drawn: random.Random) -> str:
    """Draw a table whose rows are mostly sound, and some of them odd in one way or another."""
    time = drawn.choice([None, "timestamp", "wall_time"])
    kinds = [*(["eval/reward"] if drawn.random() < 0.5 else []), *(["kind"] if drawn.random() < 0.1 else [])]
    names = ["my/own", *drawn.sample(["__time", "^x.*$", "^.*$", "*"], drawn.choice([0, 0, 2]))]
    header = ["step", *([time] if time else []), "loss", "reward", *names, "note", "empty", *kinds]
    odd = drawn.choice([0.0, 0.0, 0.002, 0.02])
    clock = drawn.choice(TIMES)
    table = [",".join(header)]
    for step in range(1, drawn.randrange(20, 160)):
        row = []
        for name in header:
            if name == "step":
                cell = drawn.choice(STEPS) if drawn.random() < odd else str(step)
            elif name == time:
                cell = drawn.choice(TIMES) if drawn.random() < odd else clock
            elif name == "note":
                cell = drawn.choice([*ODD, "3"]) if drawn.random() < odd else drawn.choice(["", "a", "warm up"])
            elif name == "kind":
                cell = drawn.choice(["train", "eval"])
            else:
                empty = 1.0 if name == "empty" else 0.1
                cell = drawn.choice(ODD) if drawn.random() < odd else drawn.choice(NUMBERS)
                cell = "" if drawn.random() < empty else cell
            row.append(cell)
        if drawn.random() < odd:
            row = drawn.choice([row[:2], [*row, "9"], [], [""] * len(row)])
        table.append(",".join(row))
    end = drawn.choice(["\n", "\n", "\r\n"])
    return end.join(table) + (end if drawn.random() < 0.8 else "")


def drawn_long_table(drawn: random.Random) -> str:
    """Draw a table with a value a row, whose rows are mostly sound, and some of them odd in one way or another."""
    time = drawn.choice([None, None, "timestamp"])
    header = drawn.sample(
        ["step", drawn.choice(["name", "metric"]), "value", *([time] if time else [])], 4 if time else 3
    )
    names = ["loss", "reward", "my/own", *drawn.sample(["eval/reward", " kl ", "probs_ratio_max", "step", "1"], 2)]
    odd = drawn.choice([0.0, 0.0, 0.002, 0.02])
    table = [",".join(header)]
    step = 0
    for _ in range(drawn.randrange(20, 120)):
        step = drawn.randrange(1, step + 2) if drawn.random() < odd else step + 1
        for name in names:
            if name == "my/own" and step % 7:
                continue
            cells = {
                "step": str(step),
                "value": "" if drawn.random() < 0.05 else drawn.choice(NUMBERS),
                time: str(1.7e9),
            }
            if drawn.random() < odd:
                cells |= {"step": drawn.choice(STEPS), time: drawn.choice(TIMES)}
            if drawn.random() < odd:
                cells["value"] = drawn.choice(ODD)
            row = [cells.get(column, "" if drawn.random() < odd else name) for column in header]
            if drawn.random() < odd:
                row = drawn.choice([row[:2], [*row, "9"], [], [""] * len(row)])
            table.append(",".join(row))
    return "\n".join(table) + ("\n" if drawn.random() < 0.8 else "")


@pytest.mark.parametrize("draw", [drawn_table, drawn_long_table])
@pytest.mark.parametrize("seed", first_fast(range(24), 4))
def test_a_table_read_as_columns_has_the_values_and_losses_of_its_cells(
    seed: int, draw: Callable[[random.Random], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(seed)
    path = tmp_path / "metrics.csv"
    path.write_text(draw(drawn), encoding="utf-8", newline="")
    size = drawn.choice([400, 1500, 1 << 18])
    read_in_blocks(size, monkeypatch)
    by_cell = rows_and_losses(CSV, path)
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    assert_same(rows_and_losses(CSV, path), by_cell)


@pytest.mark.parametrize("name", ["note", "*", "^.*$", "^x.*$", "__time"])
def test_a_sound_table_is_read_as_columns_alone(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.csv"
    path.write_text(f"step,loss,{name}\n" + "".join(f"{step},0.{step},fine\n" for step in range(1, 100)))
    found, lost, facts, wide = rows_and_losses(CSV, path)
    assert (found.height, lost, facts, wide) == (99, [], [], 1)


def test_a_table_with_a_value_a_row_becomes_a_row_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "WIDE_BYTES", 0)
    path = tmp_path / "metrics.csv"
    names = ("loss", "kl", "my/own")
    path.write_text(
        "step,metric,value\n" + "".join(f"{step},{name},0.{step}\n" for step in range(1, 50) for name in names)
    )
    found, lost, facts, wide = rows_and_losses(CSV, path)
    assert (found.height, lost, facts, wide) == (147, [], [], 1)


def test_a_table_of_steps_and_ids_alone_is_no_metric_table(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("step,id\n1,2\n2,3\n3,4\n")
    assert not CSV.recognises(RunFile(path=path, rel=path.name, size=path.stat().st_size))
