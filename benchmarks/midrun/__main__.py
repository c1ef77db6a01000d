"""Judges runs of each kind and prints how often the answer was right.

python -m benchmarks.midrun --kinds named --runs 20 --seed-block dev --workers 2
python -m benchmarks.midrun --kinds "shifted since" "tools rise" --runs 3 --keep /tmp/runs   # runs stay there
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before ptt loads polars: workers share the cores

from benchmarks.midrun.judged import BLOCKS, judge
from benchmarks.midrun.kinds import KINDS, Kind

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["named"], help="named, file, a sort, or names of kinds")
    parser.add_argument("--kinds-file", type=Path, help="a Python file with further KINDS")
    parser.add_argument("--runs", type=int, default=20, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="number of the first run")
    parser.add_argument("--seed-block", choices=BLOCKS, default="dev")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("midrun.jsonl"), help="a JSON line for each run")
    parser.add_argument("--keep", type=Path, help="keep the made runs in this folder")
    told = parser.parse_args()
    kinds = chosen(told.kinds, told.kinds_file)
    rows = judged(kinds, told)
    print(table(kinds, rows))
    print(f"\n{len(rows)} runs, each a line of {told.out}")


def chosen(wanted: Sequence[str], file: Path | None) -> list[Kind]:
    """Give the kinds of these names, sorts or groups."""
    further = read_kinds(file) if file else ()
    groups = {"named": KINDS, "file": further, "all": (*KINDS, *further)}
    kinds: dict[str, Kind] = {}
    for word in wanted:
        own = groups.get(word) or [one for one in (*KINDS, *further) if word in (one.name, one.sort)]
        if not own:
            raise SystemExit(f"no kind is called {word!r}; there are {', '.join(one.name for one in KINDS)}")
        kinds |= {one.name: one for one in own}
    return list(kinds.values())


def read_kinds(file: Path) -> tuple[Kind, ...]:
    """Load the kinds of a Python file."""
    spec = importlib.util.spec_from_file_location("further_kinds", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tuple(module.KINDS)


def judged(kinds: Sequence[Kind], told: argparse.Namespace) -> list[Row]:
    """Judge all runs, and write each as a line as it ends."""
    tasks = [(kind.name, number) for kind in kinds for number in range(told.first, told.first + told.runs)]
    work = partial(one_run, told.kinds_file, BLOCKS[told.seed_block], told.keep)
    rows = []
    with told.out.open("w", encoding="utf-8") as lines:
        for row in _mapped(work, tasks, told.workers):
            rows.append(row)
            lines.write(json.dumps(row) + "\n")
            lines.flush()
    return rows


def _mapped(work: Any, tasks: Sequence[tuple[str, int]], workers: int) -> Any:
    if workers == 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, tasks)


def one_run(file: Path | None, block: int, keep: Path | None, task: tuple[str, int]) -> Row:
    """Judge one run: kinds of a file are read where the work is done."""
    name, number = task
    kind = next(one for one in chosen(["all"], file) if one.name == name)
    return judge(kind, block, number, keep)


def table(kinds: Sequence[Kind], rows: Sequence[Row]) -> str:
    """Write a table for each sort of kind."""
    parts = []
    for sort, write in (("faulty", _faulty), ("sound", _sound), ("growth", _growth)):
        names = [kind.name for kind in kinds if kind.sort == sort]
        if names:
            lines = [write(name, [row for row in rows if row["kind"] == name]) for name in names]
            parts.append("\n".join([_HEADS[sort], "|---" * (_HEADS[sort].count("|") - 1) + "|", *lines]))
            parts.append(write(f"all {sort}", [row for row in rows if row["kind"] in names]))
    return "\n".join(parts)


_HEADS = {
    "faulty": "\n| faulty | n | found wrongly | cannot say | nameable | named | with step | said of those | s a run |",
    "sound": "\n| sound | n | found | cannot say | medium or above | which | s a run |",
    "growth": "\n| growth | n | wanted | of those found | found | cannot say | named | onset | covered | accused | s |",
}


def _ids(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in found.most_common(5)) or "-"


def _mean(rows: Sequence[Row]) -> str:
    return f"{sum(row.get('seconds', 0) for row in rows) / max(1, len(rows)):.2f}{_crashes(rows)}"


def _crashes(rows: Sequence[Row]) -> str:
    crashed = sum(bool(row["crash"]) for row in rows)
    return f" ({crashed} crashed)" if crashed else ""


def _count(rows: Sequence[Row], key: str, value: Any = True) -> int:
    return sum(row.get(key) == value for row in rows)


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _faulty(name: str, rows: Sequence[Row]) -> str:
    able = [row for row in rows if row["truth"]["nameable"]]
    said = Counter(f"{one['id']}" for row in rows for one in row.get("findings", ()) if one["severity"] not in _SMALL)
    unsure, wrong = _count(rows, "status", "cannot_say"), _count(rows, "wrongly_found")
    named = (_count(able, "named"), _count(able, "named_with_step"))
    return _line(name, len(rows), wrong, unsure, len(able), *named, _ids(said), _mean(rows))


_SMALL = ("info", "low")


def _sound(name: str, rows: Sequence[Row]) -> str:
    accused = [row for row in rows if row.get("medium")]
    which = Counter(found for row in rows for found in row.get("medium", ()))
    unsure, found = _count(rows, "status", "cannot_say"), _count(rows, "found")
    return _line(name, len(rows), found, unsure, len(accused), _ids(which), _mean(rows))


def _growth(name: str, rows: Sequence[Row]) -> str:
    links = Counter(
        one["id"]
        for row in rows
        for one in row.get("findings", ())
        if one["link"] == "data_validity" and one["severity"] not in _SMALL
    )
    unsure = _count(rows, "status", "cannot_say")
    onsets = (_count(rows, "onset_right"), _count(rows, "onset_covered"))
    found, named = _count(rows, "found"), _count(rows, "named")
    wanted = [row for row in rows if row["truth"]["found_wanted"]]
    own = (len(wanted), _count(wanted, "found"))
    return _line(name, len(rows), *own, found, unsure, named, *onsets, _ids(links), _mean(rows))


if __name__ == "__main__":
    main()
