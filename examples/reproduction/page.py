"""Write the pages from reports that exist: `python -m examples.reproduction.page FOLDER [--docs FILE]`.

The experiment's page is index.html with the figures of every arm and seed; the gallery's is index.md with what was
planted and what ptt said. `--docs` puts the gallery's table between its marks in a Markdown file. Numbers and verdicts
are those of `ptt diagnose` and `ptt compare`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from examples.reproduction import gallery
from examples.reproduction.arms import ARMS, DIFFERENCES
from examples.reproduction.arms import SEEDS as ARM_SEEDS
from examples.reproduction.gallery import GALLERY
from examples.reproduction.panels import Figure, Tables, figures, svg
from ptt.reports.text.numbers import bounds, number

HERE: Final = Path(__file__).parent
LOUD: Final = ("critical", "high", "medium")  # severities at which a benign run is accused
BEGIN, END = "<!-- gallery: made by examples.reproduction.page -->", "<!-- end of gallery -->"
REWARD: Final = "reward/mean"
COLUMNS: Final = ("case", "seed", "planted", "said", "right", "dated")

Cell = tuple[str, str]  # a value and its interval


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run, its findings.json, and the tables behind its figures."""

    name: str
    seed: int
    findings: Mapping[str, Any]
    tables: Tables = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name its folder."""
        return f"{self.name}-s{self.seed}"

    @property
    def link(self) -> str | None:
        """Return the first broken link, or None if nothing is broken."""
        loud = any(finding["severity"] in LOUD for finding in self.findings["findings"])
        return self.findings["verdict"]["first_broken_link"] if loud else None

    @property
    def first(self) -> Mapping[str, Any]:
        """Return the finding that the headline is about, or nothing."""
        heads = [one for one in self.findings["findings"] if one["link"] == self.link and not one.get("consequence_of")]
        return next(iter(heads), {}) if self.link else {}


def read_judged(report: Path, name: str, seed: int) -> Judged:
    """Read what `ptt diagnose` left of a run; a report without its store has no tables."""
    from ptt import api

    findings = json.loads((report / "findings.json").read_text())
    kept = api.open_run(report, out=report, as_judged=True).diagnosis.tables if (report / "store").exists() else {}
    return Judged(name=name, seed=seed, findings=findings, tables=kept)


def results_page(judged: Sequence[Judged], comparison: Mapping[str, Any]) -> str:
    """Return the page of the experiment."""
    names = list(dict.fromkeys(run.name for run in judged))
    runs = sorted(judged, key=lambda run: (names.index(run.name), run.seed))
    steps = _last_step(comparison)
    inputs = [(run.tables, run.findings["signature"].get("limit_passed_step")) for run in runs]
    rows = [_arm_row(name, comparison) for name in names]
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("page.html.j2").render(
        style=Markup((HERE / "page.css").read_text()),
        arms=len(names),
        seeds=len({run.seed for run in runs}),
        steps=steps,
        headline=comparison["headline"],
        sentences=comparison["sentences"],
        arm_rows=rows,
        baseline=rows[0],
        figures=[_drawn(figure, runs, names) for figure in figures(inputs, steps)],
        seed_rows=[_seed_row(run) for run in runs],
    )


def _last_step(comparison: Mapping[str, Any]) -> int:
    return max((run["steps"]["last"] for arm in comparison["arms"] for run in arm["runs"]), default=1)


def _arm_row(name: str, comparison: Mapping[str, Any]) -> dict[str, str | Cell]:
    """Return what the comparison says of the late third of an arm."""
    late = {"arm": name, "axis": "steps", "window": "late"}
    post = late | {"slice": "post_tool"}
    return {
        "arm": name,
        "differs": DIFFERENCES.get(name, ""),
        "text_p95": _with_interval(_one(comparison["windows"], late | {"slice": "text_only", "q": "p95"}), "value"),
        "post_p95": _with_interval(_one(comparison["windows"], post | {"q": "p95"}), "value"),
        "post_p99": _with_interval(_one(comparison["windows"], post | {"q": "p99"}), "value"),
        "factor": _with_interval(_one(comparison["differences"], post | {"q": "p95"}), "ratio"),
        "reward": _with_interval(
            _one(comparison["aggregates"], {"arm": name, "metric": REWARD, "window": "late"}), "mean"
        ),
    }


def _one(rows: Sequence[Mapping[str, Any]], wanted: Mapping[str, str]) -> Mapping[str, Any] | None:
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)


def _with_interval(row: Mapping[str, Any] | None, key: str) -> Cell:
    if row is None or row[key] is None:
        return "–", ""
    return number(row[key], 2), "" if row["lo"] is None else f"{number(row['lo'], 2)} to {number(row['hi'], 2)}"


def _drawn(figure: Figure, runs: Sequence[Judged], names: Sequence[str]) -> dict[str, Any]:
    """Return a figure as the template wants it: its panels grouped by arm."""
    pairs = list(zip(runs, figure.panels, strict=True))
    groups = {
        name: [
            (run.seed, Markup(svg(panel, figure, f"{name}, seed {run.seed}")))  # svg escapes the words
            for run, panel in pairs
            if run.name == name
        ]
        for name in names
    }
    return {"title": figure.title, "caption": figure.caption, "legend": figure.legend, "groups": groups}


def _seed_row(run: Judged) -> dict[str, Any]:
    signature = run.findings["signature"]
    lead = signature.get("lead_steps")
    at_least = "≥ " if signature.get("lead_is_lower_bound") else ""
    return {
        "arm": run.name,
        "seed": run.seed,
        "report": f"reports/{run.label}/report.html",
        "signature": signature["status"].replace("_", " "),
        "onset": _step(signature, "onset"),
        "passed": _step(signature, "limit_passed"),
        "lead": "–" if lead is None else f"{at_least}{lead}",
        "reason": signature["reason"],
    }


def _step(signature: Mapping[str, Any], what: str) -> Cell:
    step, interval = signature.get(f"{what}_step"), signature.get(f"{what}_interval")
    if step is None:
        return "–", ""
    return str(step), f"({bounds(*interval)})" if interval else ""


def is_right(run: Judged) -> bool:
    """Return whether the first broken link is the planted one."""
    return run.link == GALLERY[run.name].link


def gallery_page(judged: Sequence[Judged], steps: int) -> str:
    """Return the page of the gallery: its table, then a line for each miss."""
    missed = [miss_line(run) for run in judged if not is_right(run)]
    misses = "\n".join(["", "Missed:", "", *missed, ""]) if missed else ""
    return f"# The failure gallery\n\n{gallery_table(judged, steps)}\n{misses}"


def gallery_table(judged: Sequence[Judged], steps: int) -> str:
    """Return how many verdicts are right, and a row for each run."""
    lines = [
        f"{sum(map(is_right, judged))} of {len(judged)} verdicts name the planted link; a benign case is right if "
        "nothing of medium severity or above is reported.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
        *(gallery_row(run, steps) for run in judged),
    ]
    return "\n".join(lines)


def gallery_row(run: Judged, steps: int) -> str:
    """Return what was planted in a run and what was said of it, as a row of a Markdown table."""
    case, since = GALLERY[run.name], GALLERY[run.name].since(steps)
    planted = "nothing" if case.link is None else f"{case.link}, step {since}"
    said = f"{run.link}: {run.first['id']}" if run.link else "nothing"
    cells = (f"`{run.name}`", run.seed, planted, said, "yes" if is_right(run) else "**no**", dated(run, since))
    return "| " + " | ".join(map(str, cells)) + " |"


def dated(run: Judged, since: int | None) -> str:
    """Return the step since when the headline dates its finding, and how far from the planted one that is."""
    said = run.first.get("onset_step")
    if said is None:
        return "–"
    if since is None or said == since:
        return f"step {said}"
    return f"step {said}, {abs(said - since)} {'late' if said > since else 'early'}"


def miss_line(run: Judged) -> str:
    """Return what was said instead of what was planted, and where the right finding stands if there is one."""
    case = GALLERY[run.name]
    named = [finding for finding in run.findings["findings"] if finding["id"] in case.findings]
    rest = "no finding names it" if case.link else "nothing is wrong"
    if named:
        since = named[0].get("onset_step")
        dates = "" if since is None else f", since step {since}"
        rest = f"`{named[0]['id']}` is found at {named[0]['severity']} severity{dates}"
    said = f"said `{run.first['id']}`" if run.link else "said nothing"
    return f"- `{run.name}` ({run.seed}): {said}; {rest}. Planted: {case.says}."


def replaced(document: str, table: str) -> str:
    """Return a document with the gallery's table between its marks."""
    before, mark, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"there is no place for the table: put {BEGIN} and {END} around it")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def reports_in(out: Path, names: Sequence[str], seeds: Sequence[int]) -> list[Judged]:
    """Read the reports of a folder that exist, in the order of the names."""
    wanted = [(out / "reports" / f"{name}-s{seed}", name, seed) for name in names for seed in seeds]
    return [read_judged(*one) for one in wanted if (one[0] / "findings.json").exists()]


def write_results(out: Path, judged: Sequence[Judged]) -> Path:
    """Write the page of the experiment, and return where."""
    page = out / "index.html"
    page.write_text(results_page(judged, json.loads((out / "compare" / "compare.json").read_text())))
    return page


def write_gallery(out: Path, judged: Sequence[Judged], steps: int) -> Path:
    """Write the page of the gallery, and return where."""
    page = out / "index.md"
    page.write_text(gallery_page(judged, steps))
    return page


def main(arguments: Sequence[str]) -> int:
    """Read the arguments and write the page of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `examples.reproduction.run` wrote")
    parser.add_argument("--docs", type=Path, help="put the gallery's table into this Markdown file as well")
    parser.add_argument("--steps", type=int, default=gallery.STEPS, help="of a run of the gallery")
    given = parser.parse_args(arguments)
    if arms := reports_in(given.folder, list(ARMS), ARM_SEEDS):
        print(write_results(given.folder, arms))
    if cases := reports_in(given.folder, list(GALLERY), range(100)):
        print(write_gallery(given.folder, cases, given.steps))
    if not arms and not cases:
        raise SystemExit(f"{given.folder}: there are no reports of the experiment or the gallery here")
    if given.docs and cases:
        given.docs.write_text(replaced(given.docs.read_text(), gallery_table(cases, given.steps)))
        print(given.docs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
