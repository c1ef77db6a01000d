"""Find what a report says twice and not alike: recorded and not, rose and fell, found and healthy, two values of one.

    python -m benchmarks.contradictions RUN... [--keep DIR]

Compared are typed claims, each a quantity with its slice, window and statistic, not sentences: what the verdict, its
findings, the checks that passed, what was not judged, the tables, the lists to hand over and the figures' titles are
made from. RUN is all that `ptt diagnose` takes. Prints each pair that cannot both be true; exit code 1 where there is
one. `--keep`: where the stores of the runs are kept; a second look is then quick.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import combinations
from pathlib import Path

import polars as pl

from ptt import api
from ptt.diagnostics.evidence.tails import TAIL_NATS
from ptt.diagnostics.model import MOVED, Answer, Diagnosis, Finding, Severity, Status
from ptt.diagnostics.rules.evaluation import NO_EVALUATION
from ptt.diagnostics.verdict.catalogue import OF_ONE_RULE
from ptt.diagnostics.verdict.coverage import CORE, UNRECORDED
from ptt.diagnostics.verdict.handover import DURING, NO, SEEDS, YES
from ptt.reports.figures.tail_emergence import ends
from ptt.reports.figures.windowed_cdf import shares_above_two
from ptt.reports.run.answers import levels
from ptt.reports.run.view import lanes, settings
from ptt.reports.text.tables import rows_where

SIGNATURE = "tool-tail-growth"
CLOSE = 0.03  # of a value: two that a reader sees rounded to two digits are one
SIDES = {"policy": "policy_logp", "old": "old_logp", "rollout": "rollout_logp", "ref": "ref_logp"}
RATIO_OF = (("early", "late"), ("early_s", "late_s"))  # what a finding that counts in times keeps beside its factor


class Kind(Enum):
    """What a claim says of its quantity; the value is what two of them are called that disagree."""

    RECORDED = "recorded against not recorded"
    MOVED = "rose against fell"
    FOUND = "found against healthy"
    VALUE = "one quantity, two values"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What one place of a report says of one quantity."""

    kind: Kind
    quantity: str
    says: bool | float | str
    where: str
    slice: str = ""
    window: str = ""
    measure: str = ""  # p95, share beyond 2, ...; empty for what is said of all of them

    def __str__(self) -> str:
        """Return it in a line."""
        says = f"{self.says:.4g}" if isinstance(self.says, float) else self.says
        of = " ".join(filter(None, (self.slice, self.measure, self.quantity, self.window)))
        return f"{of}: {says} ({self.where})"


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two claims that cannot both be true."""

    one: Claim
    other: Claim

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.one.kind.value}: {self.one} / {self.other}"


def contradictions(diagnosis: Diagnosis) -> list[Contradiction]:
    """Return the pairs of claims of one diagnosis, and of what is shown of it, that cannot both be true."""
    groups: defaultdict[tuple[Kind, str, str, str], list[Claim]] = defaultdict(list)
    for claim in claims_of(diagnosis):
        groups[claim.kind, claim.quantity, claim.slice, claim.window].append(claim)
    pairs = (pair for claims in groups.values() for pair in combinations(claims, 2))
    return [Contradiction(one=one, other=other) for one, other in pairs if _disagree(one, other)]


def _disagree(one: Claim, other: Claim) -> bool:
    if one.measure != other.measure and one.measure and other.measure:
        return False
    if one.kind is Kind.MOVED:
        return {one.says, other.says} == {"rose", "fell"}
    if isinstance(one.says, float) and isinstance(other.says, float):
        return not math.isclose(one.says, other.says, rel_tol=CLOSE, abs_tol=1e-9)
    return one.says != other.says


def claims_of(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield what a diagnosis and its pages claim."""
    yield from _recorded(diagnosis)
    yield from _absent(diagnosis)
    yield from _handed_over(diagnosis)
    yield from _movements(diagnosis)
    yield from _answers(diagnosis)
    yield from _verdict(diagnosis)
    yield from _tails(diagnosis)
    yield from _findings(diagnosis)


def _recorded(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield what is recorded: by the tables, the findings' curves, and the pair that is judged."""

    def claim(quantity: str, where: str) -> Claim:
        return Claim(kind=Kind.RECORDED, quantity=quantity, says=True, where=where)

    series, metrics = diagnosis.tables.get("series"), diagnosis.tables.get("metrics")
    if series is not None:
        finite = series.filter(pl.col("value").is_finite())
        yield from (claim(name, "the curves") for name in finite["name"].unique().sort())
    if metrics is not None:
        logged = pl.col("step").is_not_null() & pl.col("value").is_finite() & (pl.col("split") == "eval")
        named = metrics.filter(logged & pl.col("rank").is_null())
        yield from (claim(name, "logged of evaluations") for name in named["name"].drop_nulls().unique().sort())
        if named.height:
            yield claim("evaluation", f"{named.height} logged figures of evaluations")
    if diagnosis.signature.pair:
        yield from (claim(SIDES[side], "the pair") for side in diagnosis.signature.pair.split("/") if side in SIDES)
    for finding in diagnosis.findings:
        if (name := finding.evidence.get("metric")) and finding.evidence.get("logged_as"):
            yield claim(str(name), f"finding {finding.id}")
    for name, movement in diagnosis.signature.aggregates.metrics.items():
        if movement != "cannot_say":
            yield claim(name, "the usual curves")


def _absent(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield what is called not recorded: by checks that could not judge, and by the core questions."""

    def claim(quantity: str, where: str) -> Claim:
        return Claim(kind=Kind.RECORDED, quantity=quantity, says=False, where=where)

    for item in diagnosis.not_judged:
        if item.reason == NO_EVALUATION:
            yield claim("evaluation", f"not judged: {item.id}")
        elif item.absent:
            yield from (claim(name, f"not judged: {item.id}") for name in item.missing)
    covered = diagnosis.verdict.coverage
    ways = {core.question: core.ways for family in CORE.values() for core in family}
    for question in covered.core if covered is not None else ():
        if question.why == UNRECORDED:
            for way in ways.get(question.question, ()):
                yield claim(way.metric, f"core question: {question.question}")


def _handed_over(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield what the run's context and the lists say is there, and what the settings on the page show."""

    def claim(item: str, says: bool, where: str) -> Claim:
        return Claim(kind=Kind.RECORDED, quantity=f"{item} of the run", says=says, where=where)

    context, lists = (diagnosis.tables.get(name) for name in ("context", "checklists"))
    for row in context.to_dicts() if context is not None else ():
        if row["present"] is not None:
            yield claim(row["item"], row["present"], "the run's context")
    if context is not None and not diagnosis.redacted:
        unread = context.filter(item="settings", present=True, source="the logs").height
        if settings(diagnosis) or unread:
            yield claim("settings", bool(settings(diagnosis)), "logged settings")
        if any(diagnosis.run.settings.get(name) is not None for name in SEEDS):
            yield claim("seed", True, "logged settings")
    if lists is not None and not diagnosis.redacted:
        for row in lists.filter(phase="before", answer=YES).filter(pl.col("item").str.contains("settings")).to_dicts():
            yield claim("evaluation", True, f"list: {row['item']}")
    checked = {finding.id for finding in diagnosis.findings if finding.severity.at_least(Severity.MEDIUM)}
    answers = {row["item"]: row["answer"] for row in lists.to_dicts()} if lists is not None else {}
    for item, ids, _ in DURING:
        if answers.get(item) in (YES, NO):
            where = f"list: {item}"
            yield Claim(kind=Kind.FOUND, quantity=item, says=answers[item] == NO, where=where)
            yield Claim(kind=Kind.FOUND, quantity=item, says=bool(checked & set(ids)), where="the findings")


def _movements(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield which way each slice's tail went from the early to the late third, by each measure and in general."""

    def claim(name: str, measure: str, early: float, late: float, where: str) -> Claim:
        moved = late / early if early > 0 else MOVED if late > 0 else 1.0
        way = "rose" if moved >= MOVED else "fell" if moved <= 1 / MOVED else "flat"
        return Claim(
            kind=Kind.MOVED, quantity="tail", slice=name, measure=measure, window="early to late", says=way, where=where
        )

    for name, growth in diagnosis.signature.growth.items():
        for measure, ratio in (("p95", growth.p95), ("p99", growth.p99)):
            if ratio is not None:
                yield claim(name, measure, 1.0, ratio, "the signature")
        if len(growth.movements) == 1 and name == "text_only":  # what the claim on tails after tools says beside it
            way = next(iter(growth.movements))
            yield Claim(
                kind=Kind.MOVED, quantity="tail", slice=name, window="early to late", says=way, where="the claim"
            )
        if (thirds := ends(diagnosis, name)) is not None:
            yield claim(name, "p95", *thirds, "title of the tail's figure")
    for name, (early, late) in shares_above_two(diagnosis).items():
        yield claim(name, f"share beyond {math.exp(TAIL_NATS):g}", early, late, "title of the distributions' figure")


def _answers(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield which checks found something, and which passed or could not judge."""
    for finding in diagnosis.findings:
        rule = OF_ONE_RULE.get(finding.id, finding.id)
        yield Claim(kind=Kind.FOUND, quantity=rule, says="found", where=f"finding: {finding.claim}")
    for check in diagnosis.passed:
        yield Claim(kind=Kind.FOUND, quantity=check.id, says="healthy", where=f"healthy: {check.reason}")
    for item in diagnosis.not_judged:
        yield Claim(kind=Kind.FOUND, quantity=item.id, says="not judged", where=f"not judged: {item.reason}")
    signature = diagnosis.signature
    if signature.conditions:
        held = list(signature.conditions.values())
        answer = Answer.FOUND if all(held) else Answer.NOT_FOUND if False in held else Answer.CANNOT_SAY
        met = Claim(kind=Kind.FOUND, quantity="all conditions", says=answer is Answer.FOUND, where="the conditions")
        yield met
        found = signature.status is Answer.FOUND
        yield Claim(kind=Kind.FOUND, quantity="all conditions", says=found, where="the signature")
    if not diagnosis.redacted:
        found = any(finding.id == SIGNATURE for finding in diagnosis.findings)
        yield Claim(kind=Kind.FOUND, quantity="the signature", says=found, where="the findings")
        says = signature.status is Answer.FOUND
        yield Claim(kind=Kind.FOUND, quantity="the signature", says=says, where="the signature")


def _verdict(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield what the verdict, the loop's lanes and the findings say is broken."""
    verdict = diagnosis.verdict
    serious = [finding for finding in diagnosis.findings if finding.severity.at_least(Severity.MEDIUM)]

    def claim(quantity: str, says: bool, where: str) -> Claim:
        return Claim(kind=Kind.FOUND, quantity=quantity, says=says, where=where)

    yield claim("a fault", verdict.status in (Status.UNSTABLE, Status.SUSPECT), "the status")
    yield claim("a fault", bool(serious), "the findings")
    yield claim("a fault", any(lane.state == "broken" for lane in lanes(diagnosis)), "the loop")
    if verdict.first_broken_link is not None:
        link = verdict.first_broken_link
        yield claim(f"a fault of {link}", True, "the first broken link")
        yield claim(f"a fault of {link}", any(finding.link is link for finding in serious), "the findings")


def _tails(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield the figures of tails and their dates, as the signature, its finding and the tables have them."""

    def claim(quantity: str, says: float | None, where: str, **of: str) -> Iterator[Claim]:
        if says is not None:
            yield Claim(kind=Kind.VALUE, quantity=quantity, says=float(says), where=where, **of)

    signature = diagnosis.signature
    growth = diagnosis.tables.get("growth")
    for name, grown in signature.growth.items():
        for measure, ratio in (("p95", grown.p95), ("p99", grown.p99)):
            yield from claim("late over early", ratio, "the signature", slice=name, measure=measure)
            yield from claim("late over early", _ratio(growth, name, measure), "thirds", slice=name, measure=measure)
        shown, counted = shares_above_two(diagnosis).get(name), rows_where(diagnosis, "extremes", slice=name)
        for place, window in enumerate(("early", "late")):
            of = {"slice": name, "window": window}
            yield from claim("share beyond 2", grown.beyond and grown.beyond[place], "the signature", **of)
            yield from claim("share beyond 2", shown and shown[place], "the distributions", **of)
            for row in counted:
                if row["window"] == window:
                    yield from claim("share beyond 2", row["above_2"], "the table of exceedances", **of)
    for finding in diagnosis.findings:
        if finding.id == SIGNATURE and signature.status is Answer.FOUND:
            for date in ("onset_step", "limit_passed_step"):
                yield from claim(f"{date} of the tail", getattr(finding, date), "the finding")
                yield from claim(f"{date} of the tail", getattr(signature, date), "the signature")
            if finding.slice is not None and growth is not None:
                for measure in ("p95", "p99"):
                    of = {"slice": finding.slice, "measure": measure, "window": "late"}
                    yield from claim("|r|", _number(finding, f"late_{measure}"), "the finding", **of)
                    yield from claim("|r|", _third(growth, finding.slice, measure, -1), "thirds", **of)


def _findings(diagnosis: Diagnosis) -> Iterator[Claim]:
    """Yield of each finding its factor and its dates, each as often as the page has it."""
    run, metrics = diagnosis.run, diagnosis.tables.get("metrics")
    logged = [] if metrics is None else metrics["step"].drop_nulls().to_list()  # an evaluation may lie outside
    steps = [step for step in (run.first_step, run.last_step, *logged) if step is not None]
    for place, finding in enumerate(diagnosis.findings):
        of = f"{finding.id} {place}"

        def claim(quantity: str, says: float, where: str, of: str = of) -> Claim:
            return Claim(kind=Kind.VALUE, quantity=f"{quantity} of {of}", says=says, where=where)

        if finding.unit in ("x", "×") and finding.observed is not None:
            for early, late in RATIO_OF:
                before, after = _number(finding, early), _number(finding, late)
                if before and after:
                    yield claim("factor", finding.observed, "observed")
                    yield claim("factor", after / before, f"{early} and {late} of the evidence")
            moved = levels(finding, diagnosis)
            if moved is not None and moved.before and "late" in "".join(finding.evidence):
                ratio = moved.after / moved.before
                if not math.isclose(ratio, finding.observed, rel_tol=MOVED - 1):
                    yield claim("level", finding.observed, "observed")
                    yield claim("level", ratio, "medians of its curve")
        for name in ("onset", "seen"):
            step = finding.onset_step if name == "onset" else finding.seen_step
            interval = finding.onset_interval if name == "onset" else finding.seen_interval
            if step is None:
                continue
            within = not steps or min(steps) <= step <= max(steps)
            known = interval is None or interval[0] <= step <= interval[1]
            yield Claim(kind=Kind.VALUE, quantity=f"{name} of {of} lies in the run", says=True, where="its date")
            yield Claim(kind=Kind.VALUE, quantity=f"{name} of {of} lies in the run", says=within, where="the run")
            yield Claim(kind=Kind.VALUE, quantity=f"{name} of {of} lies in its interval", says=True, where="its date")
            where = f"{step} in {interval}"
            yield Claim(kind=Kind.VALUE, quantity=f"{name} of {of} lies in its interval", says=known, where=where)


def _number(finding: Finding, name: str) -> float | None:
    value = finding.evidence.get(name)
    return float(value) if isinstance(value, int | float) else None


def _third(growth: pl.DataFrame, name: str, measure: str, place: int) -> float | None:
    values = growth.filter(slice=name, parts=3).sort("part")[measure].to_list()
    return values[place] if len(values) == 3 else None


def _ratio(growth: pl.DataFrame | None, name: str, measure: str) -> float | None:
    """Return late over early by thirds; None where the early one is so small that the signature floors it."""
    early, late = (None if growth is None else _third(growth, name, measure, place) for place in (0, -1))
    return late / early if early is not None and late is not None and min(early, late) > MIN_NATS else None


MIN_NATS = 0.02


def main(arguments: list[str] | None = None) -> int:
    """Print the contradictions of each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        keep = options.keep or Path(folder)
        for number, path in enumerate(options.runs):
            name = f"{number:03}-{path.name}" if options.keep is None else path.name
            try:
                diagnosis = api.open_run(path, out=keep / name).diagnosis
            except (api.InputError, api.SeveralRunsError) as error:
                print(f"{path}: not read: {error}")
                continue
            found = contradictions(diagnosis)
            counts[str(path)] = len(found)
            for each in found:
                print(f"{path}: {each}")
    said = f"{sum(counts.values())} contradictions in {len(counts)} runs"
    print(said)
    return int(any(counts.values()))


if __name__ == "__main__":
    sys.exit(main())
