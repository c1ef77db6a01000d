"""Why growth was missed: what the best test of each missed run shows, and which condition was not met.

`python -m benchmarks.growth_ceiling KEPT...` takes files of `benchmarks.calibration --details`, of tuning seeds alone,
and prints a table with a pair of columns for each file: growth of 2.5 times and more, and rare tails.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.calibration import SEEDS, read
from benchmarks.span.ceiling import ceiling
from benchmarks.span.draw import draw
from benchmarks.span.judged import Judged
from benchmarks.span.strata import LARGE, is_found, sort
from benchmarks.span.truth import ALARM

CAUSES: Final = (
    "no test that must learn the noise shows it at 1%",
    "the tail is not shown to matter (p99 above ln 2)",
    "the test of growth or of its place",
    "the run is not judged, or is not seen to stay high",
)


def cause_of(one: Judged) -> str:
    """Give why the growth of a run was missed."""
    if ceiling(draw(one.seed)).p_value > ALARM:
        return CAUSES[0]
    met = one.conditions
    if not met or (met["growth"] and not met["lasting"]):
        return CAUSES[3]
    if not (met["growth"] and met["localised"]):
        return CAUSES[2]
    return CAUSES[1]


def table(files: Sequence[Path]) -> list[str]:
    """Give the lines of the table."""
    columns = []
    for kept in files:
        runs = sort([one for one in read(kept) if one.seed in SEEDS["tuning"]])
        growth = [one for one in runs.ordinary if one.truth.size >= LARGE]
        columns += [growth, [one for one in runs.carried if one.truth.rare]]
    missed = [Counter(cause_of(one) for one in column if not is_found(one)) for column in columns]
    names = [f"{kind}, {kept.stem}" for kept in files for kind in ("growth of 2.5x", "rare tails")]
    rows = {"runs": [len(column) for column in columns], "missed": [count.total() for count in missed]}
    rows |= {f"- {name}": [count[name] for count in missed] for name in CAUSES}
    return [
        f"| | {' | '.join(names)} |",
        f"|---|{'---:|' * len(names)}",
        *(f"| {name} | {' | '.join(map(str, counts))} |" for name, counts in rows.items()),
    ]


if __name__ == "__main__":
    print("\n".join(table([Path(name) for name in sys.argv[1:]])))
