"""This run shows a gap between two splits that grows.

What: a public figure minus the private one of the same name, or a training figure minus its held-out counterpart, grew
over the run by at least 15% of the figure's level: its straight line rises (p < 0.001), or its thirds lie ten times the
noise apart. A held-out figure that was ahead at first counts as level. Or the other way about: a source's evaluation
rises and its training figure falls, while its samples are never short of the most there were and one other source alone
loses a quarter of its own, and with it the sum of all: what is left out is booked under the wrong source.
Why it matters: the gain is on the split that was trained on or tuned against. The public figure no longer shows how
good the policy is on unseen tasks.
What to do: choose checkpoints by the held-out split; check how often the public one was used to tune prompts, rewards
or coefficients; widen the training tasks.
Source: both figures at the steps of the evaluation; the line's error is widened for autocorrelation. Dwork et al., The
reusable holdout (Science 349, 2015), on what tuning against one test set does.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import EvalMetric
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import LIKELY, Link, Severity
from ptt.diagnostics.rules.evaluation import figures_with
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.rules.single_series import aligned
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import MIN_POINTS, estimate_change
from ptt.diagnostics.statistics.trend import rolling_mean
from ptt.diagnostics.wording import counted, sig

GAP_LIMIT = 0.15  # of the figure's level: less is what a dozen points that follow one another give by chance
SOURCE = re.compile(r"((?:env|data|task|domain)/[\w.-]+)/")
COUNTED = re.compile(r"((?:env|data|task|domain)/[\w.-]+)/(?:total_episodes|num_(?:samples|episodes|rollouts)|count)$")
ALL_SOURCES = ("env/all", "data/all", "task/all", "domain/all")
LOSES = 0.25  # of the most samples a step, on average
FALLS_WITH = 0.5  # of what the short source loses, at least, the sum of all sources must lose
LAST_COUNTS = 10  # logged steps whose median is told
MISBOOKED = (
    "samples booked under another source: groups are left out and their list of sources is not, so that later ones "
    "move up; the policy forgot nothing"
)
HIDDEN = ("private", "heldout", "held_out", "hidden")
Pair = tuple[str, str, IntArray, FloatArray, FloatArray]


@requires(figures_with())
def check(figures: Sequence[EvalMetric], evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every pair of splits with points enough."""
    found = [finding for one in figures if (finding := _misbooked(one, evidence, limits["gap"])) is not None][:1]
    pairs = [*_published(figures), *_trained(figures)]
    if not pairs and not found:
        return NotJudged(
            reason="no figure is logged for two splits at six steps",
            missing=("the same figure of two splits",),
            enable="log one figure under one name for both splits: accuracy and eval_accuracy, or public and private",
        )
    grown = [finding for pair in pairs if (finding := _grown(pair, limits["gap"])) is not None]
    if grown:
        found.append(max(grown, key=lambda finding: (finding.observed or 0.0, finding.claim)))
    if found:
        return Broken(findings=tuple(found))
    return Healthy(reason=f"the distance stays the same in {counted(len(pairs), 'pair(s)')} of splits")


def _misbooked(metric: EvalMetric, evidence: Evidence, gap: float) -> Finding | None:
    """Return the finding of a source that parts from its own evaluation, while another one bears all that is lost."""
    pair = next(_trained([metric]), None)
    named = SOURCE.match(metric.twin.raw_name) if metric.twin is not None else None
    if pair is None or named is None:
        return None
    seen, held_out, steps, mine, theirs = pair
    ahead, level = estimate_change(theirs - mine), float(np.abs(np.concatenate([mine, theirs])).max())
    risen = estimate_change(theirs)
    if ahead is None or risen is None or ahead.amount < gap * level or mine[-1] >= mine[0]:
        return None
    counts = {
        found[1]: one
        for raw, one in evidence.other.items()
        if (found := COUNTED.match(raw)) and found[1] not in ALL_SOURCES and len(one.finite()[1])
    }
    own, other = counts.pop(named[1], None), _alone_short(counts)
    if own is None or min(ahead.significant_sign, risen.significant_sign) <= 0 or np.ptp(own.finite()[1]) or not other:
        return None
    lost = counts[other].finite()[1]
    most, late = float(lost.max()), float(np.median(lost[-LAST_COUNTS:]))
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{seen} falls ({sig(float(mine[0]))} → {sig(float(mine[-1]))}) while {held_out}, of the same source, "
        f"rises ({sig(float(theirs[0]))} → {sig(float(theirs[-1]))}); all samples that are left out are missing from "
        f"{other} ({sig(most)} → {sig(late)} a step), none from {named[1]}",
        context=(f"{LIKELY}{MISBOOKED}",),
        observed=ahead.amount / level,
        limit=gap,
        unit="of the figure's level",
        onset_step=int(steps[0]),
        onset_interval=(int(steps[0]), int(steps[0])),
        evidence={"metric": seen, "logged_as": held_out, "never_short": named[1], "short": other},
        causes=(MISBOOKED,),
        confirm=("count the samples of each source in one batch before and after groups are left out",),
        next=("read the figures of each source from the evaluation", "leave out groups and their labels together"),
    )


def _alone_short(counts: Mapping[str, Series]) -> str | None:
    """Return the one source that is short of its most samples, where the sum over sources is short with it."""
    held = {name: one.finite() for name, one in counts.items()}
    short = [name for name, (_, values) in held.items() if values.mean() < (1 - LOSES) * values.max()]
    if len(short) != 1:
        return None
    steps = reduce(np.intersect1d, (at for at, _ in held.values()))
    shared = {name: values[np.isin(at, steps)] for name, (at, values) in held.items()}
    total, lost = np.sum(list(shared.values()), axis=0), shared[short[0]]
    falls = len(steps) and total.max() - total.mean() >= FALLS_WITH * (lost.max() - lost.mean())
    return short[0] if falls else None


def _published(figures: Sequence[EvalMetric]) -> Iterator[Pair]:
    """Yield the pairs of metrics whose names differ only by public and private."""
    by_name = {f"{metric.split}/{metric.name}": metric.series for metric in figures}
    for name, public in sorted(by_name.items()):
        for word in HIDDEN if "public" in name else ():
            if (hidden := by_name.get(name.replace("public", word))) is not None:
                yield public.raw_name, hidden.raw_name, *aligned(public, hidden)


def _trained(figures: Sequence[EvalMetric]) -> Iterator[Pair]:
    """Yield each figure beside the rolling mean of its twin of training."""
    for metric in figures:
        if metric.twin is None or len(metric.twin.finite()[0]) < MIN_POINTS:
            continue
        steps, values = metric.twin.finite()
        means = rolling_mean(values, metric.twin.width, minimum=1)
        at, evaluated = metric.series.finite()
        places = np.searchsorted(steps, at, side="right") - 1
        usable = places >= 0
        yield metric.twin.raw_name, metric.series.raw_name, at[usable], means[places[usable]], evaluated[usable]


def _grown(pair: Pair, limit: float) -> Finding | None:
    seen, held_out, steps, mine, theirs = pair
    change = estimate_change(mine - theirs)
    if change is None or change.significant_sign <= 0:
        return None
    level = float(np.max(np.abs(np.concatenate([mine, theirs]))))
    before = max(0.0, change.early)  # a held-out figure that was ahead, as while training's mean lags, leaves no gap
    if level == 0 or min(change.amount, change.late - before) < limit * level:
        return None
    late_on = np.flatnonzero(mine - theirs - before > limit * level)
    onset = int(steps[late_on[0]]) if len(late_on) else int(steps[-1])
    last = int(steps[max(0, int(np.searchsorted(steps, onset)) - 1)])
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The gap between {seen} and {held_out} grew {sig(change.early)} → {sig(change.late)}",
        observed=(change.late - before) / level,
        limit=limit,
        unit="of the figure's level",
        onset_step=onset,
        onset_interval=(last, onset),
        evidence={"metric": seen, "logged_as": held_out, "points": len(steps), "gap_early": change.early,
                  "gap_late": change.late},
        causes=("few training tasks, seen again and again", "the public split was tuned against",
                "tasks of the public split are among the training tasks"),
        confirm=("look for tasks that occur in both splits, word for word or nearly so",
                 "evaluate the checkpoint before the gap and the last one on a third, untouched set"),
        next=("choose the checkpoint by the held-out split", "widen or refresh the training tasks"))  # fmt: skip


RULE = rule(check, "split-gap", Link.EVALUATION, max_severity=Severity.MEDIUM, gap=GAP_LIMIT, families=EVERY)
