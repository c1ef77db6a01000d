"""Make a baseline of measured runs: seeds of one setting, over the steps that all of them share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import SettingsError
from ptt.diagnostics.evidence.logged_metrics import LOST_SHARE, IntArray, Logged, logged_metrics
from ptt.diagnostics.gate.baseline.values import Baseline, Figures, LateEss, MetricFigures, hull
from ptt.diagnostics.model import Diagnosis, Link, Severity, Status
from ptt.diagnostics.statistics.autocorrelated_mean import WindowMean, window_means
from ptt.diagnostics.statistics.ess import pooled_ess
from ptt.diagnostics.statistics.step_matching import MatchedSpans, NotMatched, match_by_steps, recorded_steps
from ptt.diagnostics.statistics.tail_curves import Curve, Profile, tail_curves
from ptt.diagnostics.statistics.windows import Span
from ptt.diagnostics.store.damage import MAX_LOST, damage_of
from ptt.diagnostics.store.diagnosis import LoadedRun

MIN_LOGGED: Final = 10  # finite values of a metric that is kept; evidence.series.MIN_LOGGED is the same
NOTHING_SAID: Final = "nothing could be judged"
TOO_DAMAGED: Final = "a part of it is lost"
MAX_REASON: Final = 280  # letters of a reason: a file's name may take thousands, and a baseline's file takes 300
DISTRUSTED: Final = "the logprobs cannot be trusted"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run at hand: what its figures are made of, whatever steps they are asked for."""

    facts: Figures  # without figures
    first: int  # of all that was recorded or logged; last below first where there is nothing
    last: int
    profile: Profile | None
    series: Mapping[str, Logged]
    ess: pl.DataFrame | None


def measure(opened: LoadedRun) -> Measured:
    """Return what a run can be held against a baseline by, or become one with."""
    diagnosis = opened.diagnosis
    run, series = diagnosis.run, _series(diagnosis)
    profile, why = opened.profile, opened.why_no_profile
    if profile is not None and diagnosis.signature.reason.startswith(DISTRUSTED):
        profile, why = None, diagnosis.signature.reason
    ends = [logged.steps[[0, -1]] for logged in series.values()]
    if profile is not None and len(steps := recorded_steps(profile)):
        ends.append(steps[[0, -1]])
    first, last = (min(int(end[0]) for end in ends), max(int(end[1]) for end in ends)) if ends else (0, -1)
    facts = Figures(
        name=run.name,
        source=opened.source,
        framework=run.framework,
        algorithm=run.algorithm,
        pair=profile.pair if profile else None,
        slices=tuple(profile.slices[number] for number in sorted(profile.slices)) if profile else (),
        steps=(first, last, run.step_count),
        sequences=run.sequences,
        model_tokens=run.model_tokens,
        status=diagnosis.verdict.status.value,
        accepted=refusals(diagnosis),
        why_no_tails=why,
    )
    return Measured(
        facts=facts, first=first, last=last, profile=profile, series=series, ess=diagnosis.tables.get("ess")
    )


def refusals(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return why a run is no baseline: findings at or above high, a rule that crashed, nothing to say, damage."""
    reasons = [
        f"{finding.id}" + (f" ({finding.slice})" if finding.slice else "")
        for finding in diagnosis.findings
        if finding.severity.at_least(Severity.HIGH)
    ]
    reasons += [f"crash: {finding.id}" for finding in diagnosis.crashes]
    if not anything_judged(diagnosis):
        reasons.append(NOTHING_SAID)
    damage = damage_of(diagnosis)
    if damage.whole or damage.share > MAX_LOST:
        reasons.append(f"{TOO_DAMAGED}: {damage.words}"[:MAX_REASON])
    return tuple(sorted(set(reasons)))


def anything_judged(diagnosis: Diagnosis) -> bool:
    """Return whether any rule gave an answer on the training, not only on whether its files are in order.

    findings.json does not list the rules that found nothing: there the verdict counts.
    """
    if not holds_training(diagnosis):
        return False
    covered = diagnosis.verdict.coverage
    links = {judged.link for judged in diagnosis.healthy} | {judged.link for judged in diagnosis.findings}
    return (
        bool(links - {Link.DATA_VALIDITY})
        or (covered is not None and any(question.judged for question in covered.core))
        or diagnosis.verdict.status is Status.HEALTHY
    )


def holds_training(diagnosis: Diagnosis) -> bool:
    """Return whether anything of the training itself was judged, or found: how a run ended is no judgement on it."""
    covered = diagnosis.verdict.coverage
    found = any(finding.severity.at_least(Severity.LOW) for finding in diagnosis.findings)
    judged = any(verdict.link not in {Link.SYSTEMS, Link.DATA_VALIDITY} for verdict in diagnosis.healthy)
    return covered is None or bool(covered.core) or found or judged


def only_blind(accepted: Sequence[str]) -> bool:
    """Return whether a run is refused because it could not be looked at, not because of what it shows."""
    return all(reason == NOTHING_SAID or reason.startswith(TOO_DAMAGED) for reason in accepted)


def placed(run: Measured, baseline: Baseline) -> Figures:
    """Return a run's figures on the baseline's steps: small, and all that `against` and `drift` look at."""
    return figures_of(run, baseline.steps, hull(baseline.runs))


def windows_of(steps: Span) -> tuple[Span, Span, Span]:
    """Return early, mid and late: thirds of the steps, whatever was logged at them."""
    count = steps.last - steps.first + 1
    cuts = [steps.first + (count * part) // 3 for part in range(4)]
    return (Span(cuts[0], cuts[1] - 1), Span(cuts[1], cuts[2] - 1), Span(cuts[2], cuts[3] - 1))


def figures_of(run: Measured, steps: Span, spans: Sequence[Span]) -> Figures:
    """Measure a run over windows of `steps`, and its tails over `spans`."""
    windows = windows_of(steps)
    tails: list[Curve] = []
    if run.profile is not None and spans:
        for name in run.facts.slices:
            curves = tail_curves(run.profile, slice_name=name, spans=spans)
            tails += [_rounded(curves[quantile]) for quantile in ("p95", "p99")]
    metrics = [_metric(name, logged, windows) for name, logged in sorted(run.series.items())]
    return replace(
        run.facts,
        tails=tuple(tails),
        metrics=tuple(metric for metric in metrics if metric is not None),
        ess=_ess(run, windows[2]),
        ess_late=_ess_late(run, windows[2]),
    )


def _series(diagnosis: Diagnosis) -> dict[str, Logged]:
    """Return the metrics that can be kept; one that is all NaN is not the same as one that is not logged."""
    return {
        name: logged
        for name, logged in logged_metrics(diagnosis).items()
        if np.isfinite(logged.values).sum() >= MIN_LOGGED or logged.bad.any()
    }


def _metric(name: str, logged: Logged, windows: tuple[Span, Span, Span]) -> MetricFigures | None:
    inside = (logged.steps >= windows[0].first) & (logged.steps <= windows[2].last)
    late = (logged.steps >= windows[2].first) & (logged.steps <= windows[2].last)
    if np.isfinite(logged.values[inside]).sum() < MIN_LOGGED and not logged.bad[late].any():
        return None
    means = window_means(logged.steps, logged.values, windows)
    late_steps = logged.steps[late & np.isfinite(logged.values)]
    return MetricFigures(
        name=name,
        logged_as=logged.logged_as,
        windows=(_round_mean(means[0]), _round_mean(means[1]), _round_mean(means[2])),
        not_numbers=int(logged.bad[late].sum()),
        reach=_reach(late_steps, windows[2].last),
    )


def _reach(steps: IntArray, end: int) -> int | None:
    """Return how far values reach: one stands for the steps up to the next, so that few values reach as far as many."""
    if not len(steps):
        return None
    every = int(np.median(np.diff(steps))) if len(steps) > 1 else 1
    return min(end, int(steps[-1]) + every - 1)


def _ess(run: Measured, late: Span) -> dict[str, float]:
    """Return the mean over sliding windows of the share of tokens that would count under the pair's weights, late."""
    table = run.ess
    if table is None or table.is_empty() or run.facts.pair is None:
        return {}
    rows = table.filter(
        (pl.col("level") == "token")
        & (pl.col("weights") == run.facts.pair)
        & pl.col("step_mid").is_between(late.first, late.last)
        & pl.col("ess_fraction").is_finite()
    )
    means = rows.group_by("slice").agg(pl.col("ess_fraction").mean()).sort("slice")
    return {str(name): significant(float(value), 4) for name, value in means.iter_rows()}


def _ess_late(run: Measured, late: Span) -> tuple[LateEss, ...]:
    """Return the share of all late tokens at once: one large weight, lost in a mean of windows, decides it."""
    if run.profile is None:
        return ()
    pooled = {name: pooled_ess(run.profile, slice_name=name, span=late) for name in sorted(run.facts.slices)}
    return tuple(
        LateEss(slice=name, share=significant(ess.share, 4), noise=significant(ess.error, 3), tokens=ess.tokens)
        for name, ess in pooled.items()
        if ess.tokens
    )


def significant(value: float, digits: int) -> float:
    """Round to so many digits: figures are the same before and after they were written."""
    return float(f"{value:.{digits}g}")


def _round_mean(mean: WindowMean) -> WindowMean:
    return WindowMean(
        mean=significant(mean.mean, 6),
        error=significant(mean.error, 4),
        freedom=significant(mean.freedom, 3),
        n=mean.n,
        scatter=significant(mean.scatter, 3),
    )


def _rounded(curve: Curve) -> Curve:
    """Round as the file does, which holds nats and a standard deviation."""
    return replace(
        curve,
        log_value=np.log([significant(math.exp(value), 5) for value in curve.log_value]),
        own=np.square([significant(math.sqrt(value), 4) for value in curve.own]),
    )


MIN_SHARED: Final = 0.5  # of the longest run's steps: a baseline of less says little about such runs


def without_refusals(runs: Sequence[Measured]) -> list[Measured]:
    """Return the runs that could be a baseline."""
    return [run for run in runs if not run.facts.accepted]


def baseline_of(runs: Sequence[Measured], *, name: str, version: str) -> Baseline:
    """Make a baseline of runs of one setting: figures of each over the steps that all of them share."""
    if not runs:
        raise SettingsError("a baseline needs a run; `ptt baseline update FILE RUN...` takes one or more.")
    first, last = max(run.first for run in runs), min(run.last for run in runs)
    longest = max(run.last - run.first + 1 for run in runs)
    if last - first + 1 < MIN_SHARED * longest or longest < 1:
        raise SettingsError(_no_overlap_message(runs))
    shared = Span(first, last)
    frameworks = sorted({run.facts.framework for run in runs if run.facts.framework is not None})
    if len(frameworks) > 1:
        raise SettingsError(
            f"these runs come from different frameworks ({', '.join(frameworks)}), whose metrics are means of "
            "different things; give each framework its own baseline."
        )
    profiles = [run.profile for run in runs if run.profile is not None]
    pairs = sorted({profile.pair for profile in profiles})
    if len(pairs) > 1:
        raise SettingsError(
            f"these runs record different pairs of logprobs ({', '.join(pairs)}), so they are not seeds of one "
            "setting; give each pair its own baseline."
        )
    names = [run.facts.name for run in runs if run.profile is not None]
    matched = match_by_steps(profiles, names=names) if profiles else None
    spans = iter(matched.spans if isinstance(matched, MatchedSpans) else ())
    why = matched.reason if isinstance(matched, NotMatched) else ""
    figures = []
    for run in runs:
        run_figures = figures_of(run, shared, next(spans, ()) if run.profile is not None else ())
        figures.append(
            _drop_unusable(replace(run_figures, why_no_tails=why) if why and run.profile is not None else run_figures)
        )
    for run_figures in figures:
        if not run_figures.metrics and not run_figures.tails:
            raise SettingsError(_no_content_message(run_figures.name))
    return Baseline(name=name, ptt_version=version, steps=shared, runs=_number_names(figures))


def _drop_unusable(figures: Figures) -> Figures:
    """Leave out metrics whose late values are no numbers, and what only a run held against the baseline needs."""
    kept = [
        metric
        for metric in figures.metrics
        if metric.not_numbers <= LOST_SHARE * (metric.not_numbers + metric.late.n)
        and sum(window.n for window in metric.windows) >= MIN_LOGGED
    ]
    return replace(figures, metrics=tuple(replace(metric, not_numbers=0, reach=None) for metric in kept))


def _number_names(figures: Sequence[Figures]) -> tuple[Figures, ...]:
    """Number equal names."""
    seen: dict[str, int] = {}
    named = []
    for run in figures:
        seen[run.name] = seen.get(run.name, 0) + 1
        named.append(replace(run, name=f"{run.name}-{seen[run.name]}") if seen[run.name] > 1 else run)
    return tuple(named)


def _no_content_message(name: str) -> str:
    return (
        f"{name}: nothing in it can go into a baseline: no metric with {MIN_LOGGED} values, no tokens with two "
        "logprobs; `ptt sources` lists what the run contains."
    )


def _no_overlap_message(runs: Sequence[Measured]) -> str:
    empty = [run.facts.name for run in runs if run.last < run.first]
    if empty:
        return _no_content_message(empty[0])
    spans = "; ".join(f"{run.facts.name}: {run.first} to {run.last}" for run in runs)
    return (
        f"these runs share less than half of their steps ({spans}); a baseline takes runs of one length: give runs "
        "that reached about the same step."
    )
