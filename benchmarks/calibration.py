"""How often the signature is right on made runs whose truth is known, beside what people look at instead.

`python -m benchmarks.calibration --runs 2000 --seed-block held-out` prints the tables; `--write` puts them
into docs/calibration.md. Whatever was tuned was tuned on the block `tuning`; the two share no seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks import naive
from benchmarks.synthetic import BLIND, CLASSES, NEGATIVE, POSITIVE, Design, Made, make
from ptt.diagnostics.engines.local import SAMPLED_TOKENS, Tokens
from ptt.diagnostics.evidence import Evidence, Series
from ptt.diagnostics.gathering.facts import run_facts
from ptt.diagnostics.gathering.tails import gather_tails, tool_use
from ptt.diagnostics.gathering.validity import gather_validity
from ptt.diagnostics.judging import contaminated
from ptt.diagnostics.model import Answer, Broken
from ptt.diagnostics.rules import RULES
from ptt.diagnostics.rules.aggregates import aggregates_of
from ptt.diagnostics.rules.tool_tail_growth import Judgement, cannot_say, judge
from ptt.diagnostics.statistics.pairs import available
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.store.scan import SequenceFile, SequenceScan

SEEDS: Final = {"tuning": range(100_000), "held-out": range(100_000, 200_000)}
PAGE: Final = Path(__file__).parents[1] / "docs" / "calibration.md"
WORKERS: Final = 2
ABOUT: Final = """\
Runs are made (`benchmarks/synthetic.py`): 20 to 500 steps, 8 to 256 sequences a step, 40,000 to 400,000
model tokens, at least 900 of either slice and 40 sequences with a tool in each third; prompt groups of 4 or
8; tokens of a sequence share its scale, tails are Student t with 4 degrees of freedom; steps carry AR(1)
noise of 0, 0.5 or 0.8 with a log-SD of 0.05 to 0.2, partly shared by both slices. Growth is late third over
early third of the true p99; it is linear, exponential, fast at first and then slower, a step, or a growing
share of sequences. Noise that is worse than that, or a run shorter than that, is not covered by these
figures.

`false alarms` and `recall` are shares of runs with the signature `found`; onset error is in shares of the
run's steps (median), `in interval` the share of 95 % intervals that hold the true onset, `lead` the median
number of steps before the first aggregate's alarm where one came. The last columns are alarms of naive
detectors on the same runs: p95 of |r| over all tokens 1.5 times higher late than early; a 20-step mean KL
above 0.3; a Kolmogorov-Smirnov test of early against late post-tool tokens at p < 0.01."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was said of one run, beside what is true of it."""

    kind: str
    answer: str
    aggregates: str
    alarms_truly: bool
    onset_error: float | None  # share of the run's steps
    covered: bool | None  # whether the onset's interval holds the true onset
    lead: int | None  # where an aggregate did alarm
    naive: tuple[bool, ...]


def outcome(task: tuple[str, int]) -> Outcome:
    """Make a run, judge it as `ptt diagnose` would, and set it against its truth."""
    made = make(*task)
    evidence = evidence_of(made)
    judged = judgement(evidence)
    signature, design = judged.signature, made.design
    error, covered = _onset(judged, design)
    step, r, post = naive.tokens_of(made.frame)
    return Outcome(
        kind=design.kind,
        answer=signature.status,
        aggregates=signature.aggregates.status,
        alarms_truly=design.kind == "entropy collapse" or made.kl_crosses is not None,
        onset_error=error,
        covered=covered,
        lead=None if signature.lead_is_lower_bound else signature.lead_steps,
        naive=(
            naive.p95_ratio(step, r, design.steps),
            naive.mean_kl(evidence.metrics["kl/ref"]),
            naive.ks_on_tokens(step[post], r[post], design.steps),
        ),
    )


def evidence_of(made: Made) -> Evidence:
    """Take a run through the public stages in memory: no files, no store."""
    pairs = available({"policy_logp", "ref_logp"})
    frame = made.frame.lazy()
    tables = token_pass(
        frame.select("seq", "step", "model_mask", "policy_logp", "ref_logp"),
        pairs=pairs,
        min_observation=MIN_OBSERVATION,
        sample_every=max(1, int(made.frame["model_mask"].list.len().sum()) // SAMPLED_TOKENS),
    )
    columns = tuple(made.frame.columns)
    whole = SequenceFile(path=Path("made"), name="made", start=0, rows=made.frame.height, columns=columns)
    scan = SequenceScan(frame=frame, files=(whole,), columns=frozenset(columns), tokens_per_row=1.0)
    tokens = Tokens(tables=tables, pairs=pairs, scan=scan, damaged={})
    found = gather_tails(tokens, post_name="post_tool")
    steps = np.arange(1, made.design.steps + 1)
    metrics = {
        name: Series(name=name, raw_name=name, steps=steps, values=values, flags=np.zeros(len(steps), np.uint8))
        for name, values in made.metrics.items()
    }
    return Evidence(
        run=run_facts("made", {}, metrics, tokens),
        metrics=metrics,
        tails=found[0] if found else None,
        tool_use=tool_use(tokens),
        validity=gather_validity(tokens),
    )


def judgement(evidence: Evidence) -> Judgement:
    """Judge as the pipeline does: with the other rules' alarms, and not where they distrust the logprobs."""
    verdicts = [rule.run(evidence) for rule in RULES]
    aggregates = aggregates_of(evidence, verdicts)
    pair = evidence.tails.pair if evidence.tails is not None else None
    distrust = contaminated(verdicts, pair)
    return judge(evidence, aggregates) if distrust is None else cannot_say(distrust, pair, aggregates)


def _onset(judged: Judgement, design: Design) -> tuple[float | None, bool | None]:
    """Set the onset against the first step whose true percentile passes the limit the finding names."""
    if not isinstance(judged.verdict, Broken) or judged.signature.onset_interval is None:
        return None, None
    finding = judged.verdict.findings[0]
    assert finding.limit is not None
    assert finding.onset_step is not None
    q = {"p95": 0.95, "p99": 0.99}[str(finding.evidence["percentile"])]
    places = np.linspace(0, 1, min(design.steps, 60))
    above = np.array([design.level(q, float(u)) > finding.limit for u in places])
    if not above.any():
        return None, None
    true = 1 + round(float(places[np.argmax(above)]) * (design.steps - 1))
    low, high = judged.signature.onset_interval
    return abs(finding.onset_step - true) / design.steps, low <= true <= high


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Give one line a class."""
    lines = [
        "| class | n | found | not found | cannot say | false alarms | recall | onset error | in interval "
        "| lead | aggregates right |" + "".join(f" {name} |" for name in naive.NAMES),
        "|---|" + "---:|" * (10 + len(naive.NAMES)),
    ]
    for kind in CLASSES:
        mine = [one for one in outcomes if one.kind == kind]
        if not mine:
            continue
        count = {answer: sum(one.answer == answer for one in mine) for answer in Answer}
        share = f"{count[Answer.FOUND] / len(mine):.1%}"
        errors = [one.onset_error for one in mine if one.onset_error is not None]
        covered = [one.covered for one in mine if one.covered is not None]
        leads = [one.lead for one in mine if one.lead is not None]
        cells: list[object] = [
            kind,
            len(mine),
            *count.values(),
            share if kind not in POSITIVE else "",
            share if kind in POSITIVE else "",
            f"{np.median(errors):.1%}" if errors and kind in POSITIVE else "",
            f"{np.mean(covered):.0%}" if covered and kind in POSITIVE else "",
            f"{np.median(leads):.0f}" if leads and kind in POSITIVE else "",
            f"{np.mean([_aggregates_right(one) for one in mine]):.0%}",
            *(f"{np.mean([one.naive[number] for one in mine]):.0%}" for number in range(len(naive.NAMES))),
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def _aggregates_right(one: Outcome) -> bool:
    return (one.aggregates == "alarming") == one.alarms_truly


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Give each required figure, whether it is met, and the naive detectors' own."""

    def of(kinds: Sequence[str]) -> list[Outcome]:
        return [one for one in outcomes if one.kind in kinds]

    negative = of(NEGATIVE)
    false = [one.answer == Answer.FOUND for one in of((*NEGATIVE, *BLIND))]
    lines = [_line("false alarms", false, 0.01, at_most=True)]
    for name, kinds, least in (
        ("recall at 2.5x or more", POSITIVE[1:], 0.95),
        ("recall at 1.6x", POSITIVE[:1], 0.80),
    ):
        lines.append(_line(name, [one.answer == Answer.FOUND for one in of(kinds)], least))
    said = [one.answer == Answer.CANNOT_SAY for one in of(BLIND)]
    said += [one.answer != Answer.FOUND for one in of(("zero-filled",))]
    lines.append(_line("cannot say where nothing can be said", said, 0.95))
    lines.append(_line("aggregates right", [_aggregates_right(one) for one in outcomes], 0.95))
    for number, name in enumerate(naive.NAMES):
        alarms = np.mean([one.naive[number] for one in negative])
        large, small = (np.mean([one.naive[number] for one in of(kinds)]) for kinds in (POSITIVE[1:], POSITIVE[:1]))
        lines.append(f"{name}: false alarms {alarms:.1%}, recall {large:.1%} at 2.5x or more, {small:.1%} at 1.6x")
    return lines


def _line(name: str, hits: Sequence[bool], required: float, *, at_most: bool = False) -> str:
    share = float(np.mean(hits)) if hits else float("nan")
    met = share <= required if at_most else share >= required
    bound = "at most" if at_most else "at least"
    counted = f"{share:.2%} ({sum(hits)} of {len(hits)})"
    return f"{'PASS' if met else 'FAIL'} {name}: {counted}, required {bound} {required:.0%}"


def run(runs: int, block: str) -> list[Outcome]:
    """Judge `runs` runs of a block, class by class in turn, on two processes."""
    seeds = SEEDS[block]
    tasks = [(CLASSES[number % len(CLASSES)], seeds[number // len(CLASSES)]) for number in range(runs)]
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        return list(pool.map(outcome, tasks, chunksize=4))


def main(arguments: Sequence[str]) -> None:
    """Judge, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--write", action="store_true", help="write docs/calibration.md")
    chosen = parser.parse_args(arguments)
    outcomes = run(chosen.runs, chosen.seed_block)
    rows, lines = table(outcomes), summary(outcomes)
    print("\n".join([*rows, "", *lines]))
    if chosen.write:
        PAGE.write_text(page(rows, lines, chosen.runs, chosen.seed_block), encoding="utf-8")


def page(rows: Sequence[str], lines: Sequence[str], runs: int, block: str) -> str:
    """Give the document."""
    command = f"python -m benchmarks.calibration --runs {runs} --seed-block {block} --write"
    seeds = SEEDS[block]
    head = [
        "# Calibration",
        "",
        f"Made by `{command}`: seeds from {seeds.start} on in each class, none of them used for tuning."
        if block == "held-out"
        else f"Made by `{command}`: seeds used for tuning.",
        "",
        ABOUT,
        "",
    ]
    return "\n".join([*head, *rows, "", *(f"- {line}" for line in lines), ""])


if __name__ == "__main__":
    main(sys.argv[1:])
