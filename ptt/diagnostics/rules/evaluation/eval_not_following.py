"""This run shows a training reward that rises while the evaluation stays flat or falls.

What: over the steps that evaluations cover, the training figure (the same one where both are logged, otherwise the mean
reward) rose beyond its noise, while no evaluation figure rose with it and at least one clearly did not: the 95%
interval of its change lies below a third of the reward's relative gain, or it fell. Where the whole run shows nothing,
its later part is judged alone (99.8%): a figure may have risen with the reward at first.
Why it matters: what the policy learns does not carry over to what is evaluated. A checkpoint chosen by the reward is
then no better.
What it is not: an evaluation near its ceiling, or one with fewer than six points: those do not count against a run. Nor
does a score that stays flat beside another figure that goes along with the reward, if not beyond its noise. A flat
figure of ranking (ndcg, MRR, recall) is a note: the reward may pay for something beside it.
What to do: rule out the evaluation first: does it use the prompt template, sampling, tools and parser of training? Then
check whether the training tasks are few and repeated, then whether the reward pays for something else.
Source: relative gains are compared by a straight line through the evaluations with its 95% interval, widened for
autocorrelation. Cobbe et al., Quantifying Generalization in RL (arXiv 1812.02341).
"""

from collections.abc import Sequence
from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import EvalMetric
from ptt.diagnostics.evidence.outcome_agreement import (
    MIN_AGREEMENT,
    Outcome,
    OutcomeState,
    is_ranking,
    judge_evaluation,
)
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.evaluation import figures_with
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, requires, rule
from ptt.diagnostics.wording import sig

FELL_LIMIT = 0.2  # of the evaluation's level: so large a fall is more than a failure to transfer


@requires(figures_with())
def check(figures: Sequence[EvalMetric], evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every figure of an evaluation against training over the same steps."""
    pairs = [(metric, outcome) for metric in figures if (outcome := _judge(evidence, metric)) is not None]
    if not pairs:
        return NotJudged(
            reason="fewer than 30 values of a training reward cover the steps of the evaluations",
            missing=("reward/mean",),
            enable="log the mean reward at every step",
        )
    followed = [outcome for _, outcome in pairs if outcome.state in (OutcomeState.ROSE, OutcomeState.SOLVED)]
    if followed:
        first = followed[0]
        how = "is near 1" if first.state is OutcomeState.SOLVED else "rose as well"
        return Healthy(reason=f"{first.name} {how} ({sig(first.late)})")
    behind = [pair for pair in pairs if pair[1].reward_rose and pair[1].state in (OutcomeState.FLAT, OutcomeState.FELL)]
    ahead = [pair for pair in behind if pair[1].state is OutcomeState.FLAT and pair[1].early >= pair[1].reward_late]
    if ahead and len(ahead) == len(behind):
        first = ahead[0][1]
        return Healthy(reason=f"{first.name} was there before the training reward ({sig(first.late)})")
    leaning = next((outcome for _, outcome in pairs if _leans_along(outcome)), None)
    if leaning is not None and not any(metric.outcome or one.state is OutcomeState.FELL for metric, one in behind):
        return NotJudged(
            reason=f"{leaning.name} went from {sig(leaning.early)} to {sig(leaning.late)}, which its noise may explain",
            missing=("more evaluation points, or more samples a point",),
            enable="evaluate more often, or on more samples at a time",
        )
    if behind:
        finding = _finding(behind, limits["fell"])
        if all(one.state is OutcomeState.FLAT and is_ranking(one.name) for _, one in behind):
            return Healthy(reason=finding.claim, notes=(replace(finding, severity=Severity.LOW),))
        return finding
    if any(outcome.reward_rose for _, outcome in pairs):
        return NotJudged(
            reason=f"training rose, but {pairs[0][1].name} is too noisy to say whether it did",
            missing=("more evaluation points, or more samples a point",),
            enable="evaluate more often, or on more samples at a time",
        )
    return Healthy(reason="the training reward did not rise over the steps that evaluations cover")


def _judge(evidence: Evidence, metric: EvalMetric) -> Outcome | None:
    """Judge an evaluation metric against its training twin, else against the training reward."""
    against = (series for series in (metric.twin, evidence.metrics.get("reward/mean")) if series is not None)
    return next(
        (outcome for series in against if (outcome := judge_evaluation(metric.series, series)) is not None), None
    )


def _leans_along(outcome: Outcome) -> bool:
    """Return whether a figure follows the reward by its level, but not beyond its noise."""
    gain = (outcome.late - outcome.early) / max(abs(outcome.early), abs(outcome.late), 1e-300)
    paid = (outcome.reward_late - outcome.reward_early) / max(
        abs(outcome.reward_early), abs(outcome.reward_late), 1e-300
    )
    return outcome.reward_rose and outcome.state is OutcomeState.UNSURE and gain >= MIN_AGREEMENT * paid


def _finding(behind: list[tuple[EvalMetric, Outcome]], fell_limit: float) -> Finding:
    metric, worst = min(
        behind, key=lambda pair: (not pair[0].outcome, pair[1].state is not OutcomeState.FELL, pair[1].name)
    )
    fell = worst.state is OutcomeState.FELL
    share = (worst.late - worst.early) / max(abs(worst.early), abs(worst.late), 1e-300)
    trained = metric.twin.raw_name if metric.twin is not None else "the training reward"
    return Finding(
        severity=Severity.HIGH if fell and share <= -fell_limit else Severity.MEDIUM,
        claim=f"{trained} rose {sig(worst.reward_early)} → {sig(worst.reward_late)} while {worst.name}"
        f" {'fell' if fell else 'stayed flat'} ({sig(worst.early)} → {sig(worst.late)})",
        observed=share,
        limit=-fell_limit if fell else MIN_AGREEMENT,
        unit="of the evaluation's level",
        onset_step=worst.onset,
        onset_interval=worst.interval,
        evidence={
            "metric": metric.name,
            "logged_as": worst.name,
            "points": worst.points,
            "train_early": worst.reward_early,
            "train_late": worst.reward_late,
            "eval_early": worst.early,
            "eval_late": worst.late,
            "figures_behind": ", ".join(sorted({other.name for _, other in behind})),
        },
        causes=(
            "the evaluation differs from training: prompt, sampling, tools, parser",
            "few training tasks, seen again and again",
            "the reward pays for something that the evaluation does not measure",
        ),
        confirm=(
            "score twenty training prompts with the evaluation's own code: same rewards as in training?",
            f"evaluate the checkpoint near step {worst.onset} and the last one with the same settings and seeds",
        ),
        next=(
            "if the evaluation's code scores lower, fix that first and evaluate the saved checkpoints again",
            "if not, keep the checkpoint with the best evaluation, widen the training tasks and change nothing else",
        ),
    )


RULE = rule(check, "eval-not-following", Link.EVALUATION, fell=FELL_LIMIT)
