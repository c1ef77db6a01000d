"""This run shows a spike in an evaluation that training does not share.

What: at most a fifth of an evaluation's points stand above both neighbours by more than eight times what the other
points do, and by at least a tenth of the figure's level, while the training reward does not rise there.
Why it matters: the best checkpoint is then chosen by chance, or by a different protocol.
What it is not: a jump that stays; or a few more right answers in a small suite, whose steps count as noise. Where all
other points are equal, the noise is unknown and the finding is low.
What to do: before you use or report that checkpoint, evaluate it again with the same settings and another seed.
Source: each point is compared with those that do not stand out; Henderson et al., Deep RL that Matters (arXiv
1709.06560), on what single evaluations are worth.
"""

from collections.abc import Sequence

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import EvalMetric
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.evaluation import figures_with
from ptt.diagnostics.rules.interface import EVERY, Broken, Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.wording import counted, sig

SPIKE_SDS = 8.0  # of the other points' distance from their neighbours: noise does not reach it in a long run
MAX_FINDINGS = 3  # the highest
SPIKE_SHARE = 0.1  # of the largest level: smaller spikes choose no checkpoint that differs
SPIKE_POINTS = 0.2  # of the points may be spikes: with more, nobody can say which points are normal
MIN_SPIKE_POINTS = 10  # points: seven others are left to estimate the noise from


@requires(figures_with(MIN_SPIKE_POINTS))
def check(figures: Sequence[EvalMetric], evidence: Evidence, limits: Limits) -> Verdict:
    """Judge every figure point by point."""
    reward = evidence.metrics.get("reward/mean")
    spikes = (_spike(metric, metric.twin or reward, limits["sds"]) for metric in figures)
    findings = [spike for spike in spikes if spike is not None]
    if findings:
        findings.sort(key=lambda finding: (-(finding.observed or 0.0), finding.claim))
        return Broken(findings=tuple(findings[:MAX_FINDINGS]))
    return Healthy(reason=f"no point of {counted(len(figures), 'figure(s)')} stands out")


def _spike(metric: EvalMetric, trained: Series | None, limit: float) -> Finding | None:
    steps, values = metric.series.finite()
    places, noise, equal = _places(values, limit)
    if trained is not None:
        shared = [_shared(trained, *(int(step) for step in steps[place - 1 : place + 2])) for place in places]
        places = [place for place, is_shared in zip(places, shared, strict=True) if not is_shared]
    if not places:
        return None
    highest = max(places, key=lambda place: (values[place], -place))
    first, step, value = min(places), int(steps[highest]), float(values[highest])
    before, after = float(values[highest - 1]), float(values[highest + 1])
    height = value - max(before, after)
    best = bool(value >= values.max())
    several = f" and at {len(places) - 1} more point{'s' if len(places) > 2 else ''}" if len(places) > 1 else ""
    at = ", ".join(str(int(steps[place])) for place in sorted(places))
    return Finding(
        severity=Severity.MEDIUM if best and not equal else Severity.LOW,
        claim=f"{metric.title} spikes to {sig(value)} at step {step}{several}, between {sig(before)} and {sig(after)}"
        + ("; it is the best point of the run" if best else ""),
        observed=height / noise if noise > 0 else None,
        limit=limit,
        unit="x the others' noise",
        onset_step=int(steps[first]),
        onset_interval=(int(steps[first - 1]), int(steps[first])),
        evidence={"metric": metric.name, "logged_as": metric.title, "value": value, "before": before, "after": after,
                  "best_of_run": best, "spikes": len(places), "at_steps": at},
        causes=("a different protocol at that point: temperature, max_tokens, tools, part of the suite",
                "a small suite and a lucky draw", "tasks or answers that leaked into that point's prompts"),
        confirm=(f"evaluate the checkpoint of step {step} again with the same settings and another seed",),
        next=("ignore the point when you choose a checkpoint, unless it comes back",))  # fmt: skip


def _places(values: FloatArray, limit: float) -> tuple[list[int], float, bool]:
    """Return the points that stand out, the noise of all others, and whether those are all equal.

    Up to a fifth of all points, the highest, are left out together if each of them then stands out. Otherwise two of
    three spikes would hide each other.
    """
    above = values[1:-1] - np.maximum(values[:-2], values[2:])
    order = np.argsort(-above, kind="stable")
    for count in range(max(1, int(SPIKE_POINTS * len(values))), 0, -1):
        chosen = order[:count] + 1
        rest = np.delete(values, chosen)
        off = rest[1:-1] - (rest[:-2] + rest[2:]) / 2
        equal = bool((rest == rest[0]).all())  # then nothing shows how far a point may be off by chance
        if equal and count > 1:  # the other points that differ give the noise
            continue
        noise = max(float(np.sqrt(np.mean(np.square(off)))), 0.0 if equal else _smallest_step(rest))
        if float(above[order[count - 1]]) > max(limit * noise, SPIKE_SHARE * float(np.max(np.abs(rest)))):
            return chosen.tolist(), noise, equal
    return [], 0.0, False


def _smallest_step(values: FloatArray) -> float:
    """Return the smallest difference of two levels: one answer more of a small suite."""
    gaps = np.diff(np.unique(values))
    return float(gaps.min()) if len(gaps) else 0.0


def _shared(trained: Series, before: int, at: int, after: int) -> bool:
    """Return whether training is higher around that step than at both neighbours, beyond its noise."""
    steps, values = trained.finite()
    half = max(1, (after - before) // 4)

    here, left, right = (values[(steps > step - half) & (steps <= step + half)] for step in (at, before, after))
    if min(len(here), len(left), len(right)) < 3:
        return False
    noise = np.sqrt(sum(part.var(ddof=1) / len(part) for part in (here, left, right)))
    return bool(here.mean() - max(left.mean(), right.mean()) > 3 * noise)


RULE = rule(check, "eval-spikes", Link.EVALUATION, max_severity=Severity.MEDIUM, sds=SPIKE_SDS, families=EVERY)
