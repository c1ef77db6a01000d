"""Score any tool on runs whose truth is known: findings.json in, tables out.

A set is a folder with `runs/CASE-sSEED/`, `truth.json` (by case: the broken `link` or null, the `findings` that name
it, the step `since` when) and `SHA256SUMS`, which seals it. A tool answers with `ANSWERS/CASE-sSEED/findings.json`:
what is scored of it are `verdict.first_broken_link`, `verdict.status`, and of each finding `id`, `severity`, `link`,
`onset_step`, `onset_interval`, and `names` where its id is not that of the truth. `ANSWERS/tool.json` says what
answered, and when.

    python -m benchmarks.runbench seal SET                      # after `make reproduce-gallery`
    python -m benchmarks.runbench ptt SET ANSWERS               # ask ptt
    python -m benchmarks.runbench rival SET ANSWERS --python P  # ask Microsoft's toolkit, installed for P
    python -m benchmarks.runbench score SET ANSWERS [ANSWERS] [--page docs/runbench.md]
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import runbench_rival
from ptt.version import __version__

SEALS: Final = "SHA256SUMS"
LOUD: Final = frozenset({"critical", "high", "medium"})  # severities that accuse a run
NEAR: Final = 12  # steps, a tenth of a run of the gallery: how far off a date may lie whose interval misses the truth
Z: Final = 1.959963984540054


PAGE: Final = """<!-- made from code by benchmarks/runbench.py; edit the code -->
# runbench

{runs} real training runs with known faults, as a sealed set, and a scorer that any tool can be run through. The runs
are the failure gallery of [the reproduction](reproduction.md): GRPO of a small language model with tools, each the
healthy control with one switch thrown, seeds {seeds}. What is true of a run follows from its switch, not from anyone's
reading of its curves.

## Run a tool through it

```
make reproduce-gallery                                   # trains the set: a quarter of an hour on two cores
SET=ptt-report/reproduction-gallery
python -m benchmarks.runbench seal $SET                  # from here on, a changed set is refused
python -m benchmarks.runbench ptt $SET answers/ptt
python -m benchmarks.runbench rival $SET answers/toolkit --python OTHER_ENVIRONMENT/bin/python
python -m benchmarks.runbench score $SET answers/ptt answers/toolkit --page docs/runbench.md
```

Any other tool: write `answers/TOOL/CASE-sSEED/findings.json` with the keys below, then `score`. A run holds
`trainer_state.json` as TRL writes it and `tokens/`, one Parquet file a step ([recorder](recorder.md)).

```
{{"verdict": {{"status": "suspect", "first_broken_link": "environment"}},
 "findings": [{{"id": "tool-failures", "severity": "high", "link": "environment", "onset_step": 63,
               "onset_interval": [58, 66], "names": []}}]}}
```

- **headline**: `first_broken_link` is the planted link. Counted only if a finding is medium or worse.
- **found**: some finding, medium or worse, is of that link.
- **named**: some finding, medium or worse, is one of those that name the fault; `names` translates a tool's own ids.
- **dated**: its `onset_interval` holds the planted step, or `onset_step` is within 12 steps, a tenth of a run.
- **accused**: of a run in which nothing is broken, any finding of medium severity or worse.

## The set

Seal: `{seal}`, the first 16 digits of the SHA-256 of `SHA256SUMS`. Training elsewhere gives runs with the same
faults and other bytes, hence another seal: compare scores of the same seal only.

| case | broken link | since step | what is wrong |
|---|---|---|---|
{cases}

## The scores

Intervals are Wilson's, as if runs were independent; seeds of a case are not, so they are too narrow. ptt's rules were
mended on seeds 11 and 12, some switches with them; seed 13 was trained afterwards and changed nothing.

{tables}

## What this does not measure

- **Generality.** One task, one model of 0.28 million parameters, one framework, 120 steps. The truth table
  ([truth_table.md](truth_table.md)) measures made logs of SFT, DPO, PPO and GRPO instead.
- **False alarms.** So few benign cases say little; the calibration pages have thousands of healthy runs.
- **Runs that nobody had seen.** ptt's authors made the set and saw verdicts while they mended rules; seeds trained
  later are the fairer test. The links, and the findings that name a fault, are ptt's too.
- **The other tool at its best.** It is given every row that TRL logged through its own callback, and also the
  lengths, spread of rewards, gradient norm and clipped share that its callback drops and its rules read. It cannot see
  per-token logprobs, ranks, or tool calls and their times: its training rules read a log of step means, so stale
  samplers and failing tools reach it only by their effect on reward, KL, entropy and length. Its agent rules read
  conversations, which these runs do not hold. Its findings have no link: each was given the one that its type
  suggests, and for `named` all faults that it could be about. Its headline is the first of its most severe findings.
"""


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a run."""

    link: str | None
    findings: tuple[str, ...]
    since: int | None


@dataclass(frozen=True, kw_only=True)
class Score:
    """How one answer compares with the truth; None is what was not asked of it."""

    run: str
    link: str | None
    said: str | None  # the link of the headline
    first: str | None  # the finding of the headline
    right: bool
    found: bool | None  # some loud finding is of the broken link, headline or not
    named: bool | None
    dated: bool | None
    accused: bool | None  # of a run in which nothing is broken
    silent: bool  # judged nothing at all


def truths(folder: Path) -> dict[str, Truth]:
    """Read what is true of each run of a set."""
    cases = json.loads((folder / "truth.json").read_text())
    found = {}
    for run in sorted(path.name for path in (folder / "runs").iterdir()):
        case = cases[run.rpartition("-s")[0]]
        found[run] = Truth(link=case["link"], findings=tuple(case["findings"]), since=case["since"])
    return found


def score(run: str, truth: Truth, answer: Mapping[str, Any]) -> Score:
    """Compare one answer with the truth."""
    verdict, findings = answer["verdict"], answer.get("findings", [])
    loud = [finding for finding in findings if finding["severity"] in LOUD]
    said = verdict.get("first_broken_link") if loud else None
    naming = [finding for finding in loud if {finding["id"], *finding.get("names", ())} & set(truth.findings)]
    heads = [finding for finding in loud if not finding.get("consequence_of")]
    broken = truth.link is not None
    return Score(
        run=run,
        link=truth.link,
        said=said,
        first=next((finding["id"] for finding in heads if finding["link"] == said), loud[0]["id"]) if loud else None,
        right=said == truth.link,
        found=any(finding["link"] == truth.link for finding in loud) if broken else None,
        named=bool(naming) if broken else None,
        dated=any(_is_near(finding, truth) for finding in naming) if broken and naming else None,
        accused=bool(loud) if not broken else None,
        silent=verdict.get("status") == "cannot_say",
    )


def _is_near(finding: Mapping[str, Any], truth: Truth) -> bool:
    onset, interval = finding.get("onset_step"), finding.get("onset_interval")
    if truth.since is None or onset is None:
        return False
    if interval and interval[0] <= truth.since <= interval[1]:
        return True
    return bool(abs(onset - truth.since) <= NEAR)


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95% interval of a share (Wilson, 1927)."""
    if not trials:
        return 0.0, 1.0
    share, spread = hits / trials, Z * Z / trials
    half = Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return max(0.0, (share + spread / 2 - half) / (1 + spread)), min(1.0, (share + spread / 2 + half) / (1 + spread))


def table(scores: Iterable[Score], title: str) -> str:
    """Spell the scores out as Markdown: a line a measure, then a line a run."""
    scores = list(scores)
    broken, benign = [one for one in scores if one.link], [one for one in scores if not one.link]
    lines = [f"### {title}", "", "| measure | runs | share | 95% interval |", "|---|---|---|---|"]
    measures = {
        "headline names the broken link": [one.right for one in broken],
        "a finding is of the broken link": [bool(one.found) for one in broken],
        "a finding names the fault": [bool(one.named) for one in broken],
        "of these, dated right": [one.dated for one in broken if one.dated is not None],
        "run with nothing broken accused": [bool(one.accused) for one in benign],
        "nothing judged": [one.silent for one in scores],
    }
    for name, told in measures.items():
        hits, (low, high) = sum(told), wilson(sum(told), len(told))
        shown = f"{hits / len(told):.0%} | {low:.0%} to {high:.0%}" if told else "- | -"
        lines.append(f"| {name} | {hits} of {len(told)} | {shown} |")
    lines += ["", "| run | broken | headline | its finding | named | dated |", "|---|---|---|---|---|---|"]
    marks = {True: "yes", False: "no", None: "-"}
    lines += [
        f"| {one.run} | {one.link or 'nothing'} | {one.said or ('other' if one.first else 'nothing')} | "
        f"{one.first or '-'} | {marks[one.named]} | {marks[one.dated]} |"
        for one in scores
    ]
    return "\n".join(lines)


def digests(folder: Path) -> str:
    """Return the checksum of each file of a set, in the format of sha256sum."""
    files = [folder / "truth.json", *(path for path in sorted((folder / "runs").rglob("*")) if path.is_file())]
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n" for path in files
    )


def check_seal(folder: Path) -> None:
    """Refuse a set that was changed since it was sealed."""
    seals = folder / SEALS
    if not seals.is_file():
        raise SystemExit(f"{folder}: is not sealed; run the command `seal` on it first.")
    if seals.read_text() != digests(folder):
        raise SystemExit(f"{folder}: was changed since it was sealed; its scores could not be compared with others.")


def ask_ptt(folder: Path, answers: Path) -> None:
    """Judge each run with `ptt diagnose`."""
    for run in truths(folder):
        command = [sys.executable, "-m", "ptt", "diagnose", str(folder / "runs" / run), "--out", str(answers / run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    _sign(answers, f"ptt {__version__}{_commit()}")


def ask_rival(folder: Path, answers: Path, python: str) -> None:
    """Judge each run with Microsoft's toolkit, recorded by its own callback."""
    runbench_rival.ask([folder / "runs" / run for run in truths(folder)], answers, python)
    _sign(answers, runbench_rival.TOOL)


def _sign(answers: Path, tool: str) -> None:
    signed = {"tool": tool, "date": datetime.date.today().isoformat()}
    (answers / "tool.json").write_text(json.dumps(signed) + "\n")


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False)
    return f" ({told.stdout.strip()})" if told.returncode == 0 else ""


def scored(folder: Path, answers: Path) -> str:
    """Return a tool's tables."""
    signed = answers / "tool.json"
    tool = json.loads(signed.read_text()) if signed.is_file() else {"tool": answers.name, "date": "date unknown"}
    found = [
        score(run, truth, json.loads((answers / run / "findings.json").read_text()))
        for run, truth in truths(folder).items()
    ]
    return table(found, f"{tool['tool']}, {tool['date']}")


def page(folder: Path, tables: Sequence[str]) -> str:
    """Return docs/runbench.md: how to run a tool through the set, the set, and the scores."""
    cases = json.loads((folder / "truth.json").read_text())
    runs = list(truths(folder))
    seeds = sorted({run.rpartition("-s")[2] for run in runs}, key=int)
    rows = [
        f"| `{name}` | {case['link'] or 'nothing'} | {case['since'] or '-'} | {case.get('says', '')} |"
        for name, case in cases.items()
    ]
    return PAGE.format(
        runs=len(runs),
        seeds=", ".join(seeds),
        seal=hashlib.sha256((folder / SEALS).read_bytes()).hexdigest()[:16],
        cases="\n".join(rows),
        tables="\n\n".join(tables),
    )


def main(arguments: Sequence[str]) -> None:
    """Do what the command says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["seal", "ptt", "rival", "score"])
    parser.add_argument("set", type=Path)
    parser.add_argument("answers", type=Path, nargs="*")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--page", type=Path, help="write the scores here, with what the set is")
    given = parser.parse_args(arguments)
    if given.command == "seal":
        (given.set / SEALS).write_text(digests(given.set))
        return
    check_seal(given.set)
    for answers in given.answers if given.command != "score" else ():
        if given.command == "ptt":
            ask_ptt(given.set, answers)
        else:
            ask_rival(given.set, answers, given.python)
    if given.command == "score":
        tables = [scored(given.set, answers) for answers in given.answers]
        print("\n\n".join(tables))
        if given.page:
            given.page.write_text(page(given.set, tables), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
