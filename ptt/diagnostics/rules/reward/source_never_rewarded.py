"""This run shows a data source whose samples never earn anything.

What: every recorded training sample of one data source or environment has the lowest reward of the run, 50 samples
and more at two steps and more, while the others earn a tenth of the range on average. Medium from a fifth of the
samples on. Or the logged reward of one source is exactly 0 throughout, while its score is not, and another source's
is not (high). An evaluation of that source that is exactly 0 throughout is named beside it; alone, next to the same
figure of another source that moves, it is a note.
Why it matters: its groups carry no signal, however long the run is, and the mean reward hides it. A scorer that raises
and is counted as 0 looks just like tasks that are too hard.
What to do: score ten of its answers by hand, right ones among them; read the log of the reward workers for exceptions.
Source: veRL's pull request 5635, where the scorer of one data source raised in every thread but the main one; the
limits are our own.
"""

import re
from typing import Final

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.rewards import PaidSource
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Broken,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    rule,
)
from ptt.diagnostics.wording import counted, pct, sig

MIN_SAMPLES = 50.0  # of a source: of tasks that succeed one time in ten, none in 50 is a chance of one in two hundred
MIN_STEPS = 2  # at which they were recorded: one step may be one prompt
MIN_EARNED = 0.1  # of the range of rewards, by the others on average: else the run as a whole earns nothing
MEDIUM_SHARE = 0.2  # of the recorded samples: a fifth of the batch carries no signal
EQUAL = 1e-9  # a reward that is no higher than the lowest by more is the lowest
MIN_EVALUATIONS = 3
MIN_SILENT_EVALUATIONS = 5  # that nothing but the evaluation itself speaks of
OF_SOURCE: Final = re.compile(
    r"(?:train/)?([^/]+)/((?:.+/)?(?:reward|score|correct|accuracy)s?(?:/[a-z]+)*/(?:mean|avg))"
)
MIN_VALUES: Final = 20  # steps at which it was logged


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether one of several data sources never earns anything."""
    sources = evidence.rewards.sources if evidence.rewards is not None else {}
    logged = _logged(evidence)
    known = {name: source for name, source in sources.items() if source.samples >= limits["samples"]}
    note = _never_passed(evidence)
    if len(known) < 2:
        if logged is not None:
            return Broken(findings=(logged,))
        if note is not None:
            return Healthy(reason=note.claim, notes=(note,))
        return NotJudged(
            reason="no sample names its data source"
            if not sources
            else f"{counted(len(known), 'data source(s)')} with enough samples: two are needed to compare",
            missing=("trajectories.env", "trajectories.reward"),
            enable="save samples with reward and data source (veRL: trainer.rollout_data_dir; recorder files: `env`)",
            absent=not sources,
        )
    low = min(source.lowest for source in known.values())
    scale = max(source.highest for source in known.values()) - low
    silent = [name for name, source in known.items() if source.highest <= low + EQUAL and source.steps >= MIN_STEPS]
    others = [source for name, source in known.items() if name not in silent]
    if not silent or not others or max(other.mean - low for other in others) < limits["earned"] * scale:
        silent = []
    total = sum(source.samples for source in known.values())
    findings = [_finding(evidence, name, known, total, limits) for name in silent]
    if logged is not None:
        findings = [logged, *(one for one in findings if one.slice != logged.slice)]
    if not findings:
        notes = () if note is None else (note,)
        return Healthy(reason=f"each of {len(known)} data sources earns something, or none does", notes=notes)
    return Broken(findings=tuple(findings))


def _logged(evidence: Evidence) -> Finding | None:
    """Return the finding of a source whose logged reward is exactly 0 throughout, while its score is not."""
    by_source: dict[str, dict[str, Series]] = {}
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        if (match := OF_SOURCE.fullmatch(series.raw_name)) and len(series.finite()[0]) >= MIN_VALUES:
            by_source.setdefault(match[1], {})[match[2]] = series
    for source, figures in sorted(by_source.items()):
        for name, series in sorted(figures.items()):
            if "reward" not in name or series.finite()[1].any():
                continue
            others = [parts[name] for key, parts in sorted(by_source.items()) if key != source and name in parts]
            paid = next((other for other in others if other.finite()[1].mean() > 0), None)
            scored = next((one for one in figures.values() if one.finite()[1].mean() > 0), None)
            if paid is not None and scored is not None:
                return _of_series(source, series, scored, paid)
    return None


def _never_passed(evidence: Evidence) -> Finding | None:
    """Return the note on an evaluation that is exactly 0 throughout, while the same figure of another source moves."""
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    told = [one for one in figures if one.outcome and len(one.series.finite()[1]) >= MIN_SILENT_EVALUATIONS]
    for figure in told:
        source, _, measure = figure.name.rpartition("/")
        if not source or figure.series.finite()[1].any():
            continue
        same = [one.series for one in told if one.split == figure.split and one.name.rpartition("/")[2] == measure]
        moving = [series for series in same if np.ptp(series.finite()[1]) > 0]
        if moving:
            return _of_evaluation(source, figure.series, max(moving, key=lambda one: float(one.finite()[1].mean())))
    return None


def _of_evaluation(source: str, silent: Series, other: Series) -> Finding:
    values = other.finite()[1]
    return Finding(
        severity=Severity.LOW,
        claim=f"{silent.raw_name} is exactly 0 at all {len(silent.finite()[1])} evaluations, while {other.raw_name} "
        f"went from {sig(float(values[0]))} to {sig(float(values[-1]))}: a "
        "verifier that reads none of its answers looks so",
        observed=0.0,
        limit=0.0,
        unit="score",
        slice=f"env:{source}",
        onset_step=None,
        evidence={"metric": silent.raw_name, "logged_as": silent.raw_name, "beside": other.raw_name},
        causes=(
            "the verifier cannot read the format that these answers are given in",
            "its tasks are too hard for the policy",
        ),
        confirm=("score ten of its saved answers by hand: is one of them right?",),
        next=(f"look whether {source} is trained on: by the same verifier it earns nothing there either",),
    )


def _of_series(source: str, series: Series, scored: Series, paid: Series) -> Finding:
    steps = series.finite()[0]
    mean = float(scored.finite()[1].mean())
    return Finding(
        severity=Severity.HIGH,
        claim=f"{series.raw_name} is exactly 0 at all {len(steps)} logged steps, while {scored.raw_name} is "
        f"{sig(mean)} and {paid.raw_name} {sig(float(paid.finite()[1].mean()))}: {source} is scored, and its scores do "
        "not reach the training",
        observed=0.0,
        limit=mean,
        unit="reward",
        slice=f"env:{source}",
        onset_step=None,
        evidence={"metric": series.raw_name, "logged_as": series.raw_name, "scored_as": scored.raw_name, "score": mean},
        causes=(
            "the scores of this source are normalised, masked or looked up under another name, and come out as 0",
            "its reward worker's result is written to a key that the trainer does not read",
        ),
        confirm=(f"follow one sample of {source} with a score above 0 from the scorer to its advantage",),
        next=("mend how scores of this source become rewards, and train again: it taught nothing so far",),
    )


def _finding(evidence: Evidence, name: str, known: dict[str, PaidSource], total: int, limits: Limits) -> Finding:
    source = known[name]
    share = source.samples / total
    evaluated = _evaluated(evidence, name)
    best = max((other for other in known if other != name), key=lambda other: known[other].mean)
    return Finding(
        severity=Severity.MEDIUM if share >= limits["medium"] else Severity.LOW,
        claim=f"All {source.samples} recorded samples of {name} earn {sig(source.highest)}, those of {best} "
        f"{sig(known[best].mean)} on average: {pct(share)} of the samples carry no signal"
        + (f"; {evaluated} is 0 throughout as well" if evaluated else ""),
        observed=source.highest,
        limit=limits["earned"],
        unit="reward",
        slice=f"env:{name}",
        onset_step=None,
        evidence={
            "metric": "trajectories.reward",
            "of_source": name,
            "samples": source.samples,
            "steps": source.steps,
            "share_of_samples": share,
        },
        causes=(
            "the scorer of this data source raises, and the exception is scored as 0",
            "it cannot read the format that these answers are given in",
            "its tasks are too hard for the policy",
        ),
        confirm=("score ten of its answers by hand: is one of them right?",),
        next=(
            "read the log of the reward workers for exceptions",
            "if answers are right: fix the scorer and score the run again; if none is: leave the source out for now",
        ),
    )


def _evaluated(evidence: Evidence, name: str) -> str | None:
    """Return the evaluation of a data source that is exactly 0 throughout."""
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    for figure in figures:
        values = figure.series.finite()[1]
        if name in figure.series.raw_name and len(values) >= MIN_EVALUATIONS and not values.any():
            return figure.series.raw_name
    return None


RULE = rule(
    check,
    "source-never-rewarded",
    Link.REWARD,
    samples=MIN_SAMPLES,
    earned=MIN_EARNED,
    medium=MEDIUM_SHARE,
    families=REWARDED_LANGUAGE,
)
